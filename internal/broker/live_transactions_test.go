package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// generations are franz-go as it is, and as a client from before KIP-890.
var generations = map[string]func() []kgo.Opt{
	"new": func() []kgo.Opt { return nil },
	"old": func() []kgo.Opt {
		v := kversion.Stable()
		for key, max := range map[kmsg.Key]int16{kmsg.Produce: 11, kmsg.EndTxn: 4, kmsg.TxnOffsetCommit: 4, kmsg.AddPartitionsToTxn: 3} {
			v.SetMaxKeyVersion(key.Int16(), max)
		}
		return []kgo.Opt{kgo.MaxVersions(v)}
	},
}

func liveTopics(t *testing.T, b *Broker, names ...string) {
	t.Helper()
	for _, name := range names {
		for _, err := range b.createTopics(t.Context(), []topicSpec{{name: name, partitions: 4, replication: -1}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func liveClient(t *testing.T, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr("PLAINTEXT"))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// committedValues reads a topic to its end with read_committed and returns the values, sorted.
func committedValues(t *testing.T, b *Broker, topic, marker string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := liveClient(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for n := range int32(4) { // behind everything, so that the reader knows when it has seen all
		if err := p.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: n, Value: []byte(marker)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c := liveClient(t, b, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for ends := 0; ends < 4; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%v after %d records", err, len(got))
		}
		f.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == marker {
				ends++
				return
			}
			got = append(got, string(r.Value))
		})
	}
	slices.Sort(got)
	return got
}

// TestLiveTransactions: franz-go's transactional producer in both generations. Committed records are read, aborted ones
// are not.
func TestLiveTransactions(t *testing.T) {
	for name, opts := range generations {
		t.Run(name, func(t *testing.T) {
			b := startLive(t, memDirectory(t), metatest.NewMemory())
			liveTopics(t, b, "t")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			p := liveClient(t, b, append(opts(), kgo.TransactionalID("id"))...)
			var want []string
			for n := range 10 {
				if err := p.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				commit := kgo.TransactionEndTry(n%3 != 0)
				for i := range 8 {
					value := fmt.Sprintf("%02d/%d", n, i)
					if err := p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
						t.Fatal(err)
					}
					if commit {
						want = append(want, value)
					}
				}
				if err := p.EndTransaction(ctx, commit); err != nil {
					t.Fatalf("transaction %d: %v", n, err)
				}
			}
			if got := committedValues(t, b, "t", "end"); !slices.Equal(got, want) {
				t.Fatalf("read %d values, want %d: %v", len(got), len(want), got)
			}
			all := make(chan []coordinator.TxnDescription, 1)
			b.groups.DescribeTxns([]string{"id"}, func(d []coordinator.TxnDescription) { all <- d })
			if d := (<-all)[0]; (name == "new") != (d.Epoch > 5) || d.State != "CompleteAbort" {
				t.Errorf("%s protocol: %+v after 10 transactions", name, d)
			}
		})
	}
}

// TestLiveTransactionFencing: a second incarnation aborts what the first has open and fences it.
func TestLiveTransactionFencing(t *testing.T) {
	for name, opts := range generations {
		t.Run(name, func(t *testing.T) {
			b := startLive(t, memDirectory(t), metatest.NewMemory())
			liveTopics(t, b, "t")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			first := liveClient(t, b, append(opts(), kgo.TransactionalID("id"))...)
			second := liveClient(t, b, append(opts(), kgo.TransactionalID("id"))...)
			for i, p := range []*kgo.Client{first, second} {
				if err := p.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				if err := p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := first.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("late")}).FirstErr(); err == nil {
				t.Error("the first incarnation still writes")
			}
			if err := first.EndTransaction(ctx, kgo.TryCommit); err == nil {
				t.Error("the first incarnation still commits")
			}
			if err := second.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			if got := committedValues(t, b, "t", "end"); !slices.Equal(got, []string{"1"}) {
				t.Fatalf("read %v", got)
			}
		})
	}
}

// TestLiveConsumeTransformProduce: records go from one topic to another in transactions, with the offsets in them, and
// every fourth is aborted and done again. Every record arrives once.
func TestLiveConsumeTransformProduce(t *testing.T) {
	for name, opts := range generations {
		t.Run(name, func(t *testing.T) {
			b := startLive(t, memDirectory(t), metatest.NewMemory())
			liveTopics(t, b, "in", "out")
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			p := liveClient(t, b)
			var want []string
			for i := range 200 {
				want = append(want, fmt.Sprintf("%03d", i))
				p.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte(want[i])}, nil)
			}
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			s, err := kgo.NewGroupTransactSession(append(opts(), kgo.SeedBrokers(b.Addr("PLAINTEXT")), kgo.TransactionalID("id"), kgo.ConsumerGroup("g"),
				kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for done, round := 0, 0; done < len(want); round++ {
				f := s.PollRecords(ctx, 17)
				if err := f.Err(); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("%v after %d", err, done)
				}
				if err := s.Begin(); err != nil {
					t.Fatal(err)
				}
				f.EachRecord(func(r *kgo.Record) { s.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}, nil) })
				committed, err := s.End(ctx, kgo.TransactionEndTry(round%4 != 2))
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if committed {
					done += f.NumRecords()
				}
			}
			if got := committedValues(t, b, "out", "end"); !slices.Equal(got, want) {
				t.Fatalf("read %d, want %d: %v", len(got), len(want), got)
			}
		})
	}
}
