package broker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// methodCounts counts what a broker asks of Postgres, by method. Each method is one transaction.
type methodCounts struct {
	meta.Store
	mu sync.Mutex
	n  map[string]int
}

func (c *methodCounts) count(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[method]++
}

// since is what was counted after an earlier copy, renewals apart.
func (c *methodCounts) since(before map[string]int) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for method, n := range c.n {
		if n > before[method] && method != "Renew" {
			out[method] = n - before[method]
		}
	}
	return out
}

func (c *methodCounts) copy() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *methodCounts) Renew(ctx context.Context, o meta.Owner, lease time.Duration, known int64) (meta.Renewal, error) {
	c.count("Renew")
	return c.Store.Renew(ctx, o, lease, known)
}

func (c *methodCounts) CommitShards(ctx context.Context, owner int32, changes []meta.ShardChange) error {
	c.count("CommitShards")
	return c.Store.CommitShards(ctx, owner, changes)
}

func (c *methodCounts) CommitShardsRelaxed(ctx context.Context, owner int32, changes []meta.ShardChange) error {
	c.count("CommitShardsRelaxed")
	return c.Store.CommitShardsRelaxed(ctx, owner, changes)
}

func (c *methodCounts) ResolveShards(ctx context.Context, owner int32, shards []meta.Resolve) ([]meta.Resolved, error) {
	c.count("ResolveShards")
	return c.Store.ResolveShards(ctx, owner, shards)
}

func (c *methodCounts) LoadShards(ctx context.Context, owner int32, shards []meta.Shard) (map[int16]meta.ShardRows, error) {
	c.count("LoadShards")
	return c.Store.LoadShards(ctx, owner, shards)
}

func (c *methodCounts) AllocateProducerIDs(ctx context.Context, o meta.Owner, n int64) (int64, error) {
	c.count("AllocateProducerIDs")
	return c.Store.AllocateProducerIDs(ctx, o, n)
}

func (c *methodCounts) ChangePartitions(ctx context.Context, o meta.Owner, changes []meta.PartitionChange) error {
	c.count("ChangePartitions")
	return c.Store.ChangePartitions(ctx, o, changes)
}

// clientLog keeps what franz-go writes about the codes that it hears: each retry for a coordinator's code is a line.
type clientLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *clientLog) Level() kgo.LogLevel { return kgo.LogLevelDebug }

func (l *clientLog) Log(_ kgo.LogLevel, text string, keyvals ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(text, keyvals))
}

func (l *clientLog) with(word string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}

// TestPostgresCommitsPerTransaction: with a real Postgres a transaction that only produces costs exactly one commit when
// it is alone, and at most a quarter of one when 16 producers commit at once, counted by method with renewals apart. No
// answer tells a client that the last transaction is not over yet: txnPeer.again sees to that.
func TestPostgresCommitsPerTransaction(t *testing.T) {
	store, err := meta.Open(t.Context(), meta.Options{URL: pgtest.URL(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := &methodCounts{Store: store, n: map[string]int{}}
	b := startLiveOn(t, memDirectory(t), counts, segstore.Strict)
	alone := &txnPeer{t: t, addr: b.Addr("PLAINTEXT")}
	alone.dial()
	alone.begin("t")
	for _, version := range []int16{4, 5} {
		w := alone.init(fmt.Sprint("alone", version), 60_000)
		const transactions = 20
		before := counts.copy()
		for n := range int32(transactions) {
			alone.transaction(version, &w, n)
		}
		got := counts.since(before)
		t.Logf("%d transactions of EndTxn v%d, alone: %v", transactions, version, got)
		if len(got) != 1 || got["CommitShards"] != transactions {
			t.Errorf("EndTxn v%d alone: %v for %d transactions, want CommitShards for each and nothing else", version, got, transactions)
		}
	}

	const many, rounds = 16, 30
	peers, ids := make([]*txnPeer, many), make([]who, many)
	for i := range peers {
		p := *alone
		peers[i] = &p
		peers[i].dial()
		ids[i] = peers[i].init(fmt.Sprint("many", i), 60_000)
	}
	// In rounds, so that all of them commit at once.
	before := counts.copy()
	for range rounds {
		for i, p := range peers {
			p.is("produce", p.produce(12, ids[i], 0, 0), 0)
		}
		var running sync.WaitGroup
		for i, p := range peers {
			running.Go(func() { p.commit(&ids[i]) })
		}
		running.Wait()
	}
	got := counts.since(before)
	each := float64(got["CommitShards"]) / (many * rounds)
	t.Logf("%d transactions, %d producers commit at once: %v, %.3f commits each", many*rounds, many, got, each)
	if len(got) != 1 || each > 0.25 {
		t.Errorf("%v for %d transactions: %.3f commits each, want at most 0.25", got, many*rounds, each)
	}
	// And each at its own pace, where some produce while others commit.
	before = counts.copy()
	var running sync.WaitGroup
	for i, p := range peers {
		running.Go(func() {
			for n := range int32(rounds) {
				p.transaction(5, &ids[i], n)
			}
		})
	}
	running.Wait()
	got = counts.since(before)
	each = float64(got["CommitShards"]) / (many * rounds)
	t.Logf("%d transactions, %d producers at their own pace: %v, %.3f commits each", many*rounds, many, got, each)
	if len(got) != 1 || each > 0.5 {
		t.Errorf("%v for %d transactions: %.3f commits each, want at most 0.5", got, many*rounds, each)
	}
}

// commit ends the open transaction in the new protocol.
func (p *txnPeer) commit(w *who) {
	end := p.end(5, *w, true)
	p.is("commit", end.ErrorCode, 0)
	w.pid, w.epoch = end.ProducerID, end.ProducerEpoch
}

// transaction writes a record and commits.
func (p *txnPeer) transaction(version int16, w *who, n int32) {
	produce, sequence := int16(12), int32(0)
	if version < 5 {
		produce, sequence = 9, n // the epoch stays, so the sequence goes on
		p.is("register", p.add(3, *w, 0)[0], 0)
	}
	p.is("produce", p.produce(produce, *w, 0, sequence), 0)
	if version >= 5 {
		p.commit(w)
		return
	}
	p.is("commit", p.end(version, *w, true).ErrorCode, 0)
}

// TestHealthyClientsNeverHearConcurrentTransactions: franz-go, which begins its next transaction at once, in both
// protocol generations, with offsets and without, committed and aborted.
func TestHealthyClientsNeverHearConcurrentTransactions(t *testing.T) {
	for name, opts := range generations {
		t.Run(name, func(t *testing.T) {
			b := startLive(t, memDirectory(t), metatest.NewMemory())
			liveTopics(t, b, "t")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var running sync.WaitGroup
			log := &clientLog{}
			for i := range 4 {
				p := liveClient(t, b, append(opts(), kgo.WithLogger(log), kgo.TransactionalID(fmt.Sprint("id", i)))...)
				running.Go(func() {
					for n := range 25 {
						if err := p.BeginTransaction(); err != nil {
							t.Error(err)
							return
						}
						for range 3 {
							p.Produce(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}, nil)
						}
						if err := p.Flush(ctx); err != nil {
							t.Error(err)
						}
						if err := p.EndTransaction(ctx, kgo.TransactionEndTry(n%4 != 0)); err != nil {
							t.Errorf("transaction %d: %v", n, err)
							return
						}
					}
				})
			}
			running.Wait()
			if len(log.with("EndTxn")) == 0 {
				t.Error("the client logs nothing of its requests")
			}
			for _, code := range []string{"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "INVALID_TXN_STATE", "NOT_COORDINATOR"} {
				if found := log.with(code); len(found) > 0 {
					t.Errorf("%d times %s in a healthy run, first %s", len(found), code, found[0])
				}
			}
			ended := grepLines(scrape(t, b.registerer.(*prometheus.Registry)), "pgbroker_txn_commits_total")
			t.Log(ended)
			if !slices.Contains(ended, `pgbroker_txn_commits_total{result="committed"} 72`) || !slices.Contains(ended, `pgbroker_txn_commits_total{result="aborted"} 28`) {
				t.Errorf("%v", ended)
			}
		})
	}
}
