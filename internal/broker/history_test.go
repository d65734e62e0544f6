package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// startRun is a whole broker whose start may fail, and which the test stops.
func startRun(t *testing.T, disk *vfs.Mem, store *metatest.Memory, durability segstore.Durability, change ...func(*Options)) (*testBroker, error) {
	t.Helper()
	cfg, _, err := config.Load(config.Sources{Set: []string{"postgres.url=postgres://localhost/none", "node.id=1", "log.dirs=/log",
		"listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=PLAINTEXT://127.0.0.1:0", "broker.heartbeat.interval.ms=50", "broker.session.timeout.ms=2000"}})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	segments, err := segstore.Open(segstore.Options{FS: disk, Dir: "/log", Durability: durability, Now: time.Now, Log: log, RecoveryThreads: 1,
		RetentionEvery: time.Hour, CheckpointEvery: time.Hour, ProducerExpiry: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Config: cfg, Store: store, Segments: segments, FS: disk, Dir: "/log", Durability: durability, Log: log,
		Registerer: prometheus.NewRegistry(), Software: "test", BootID: "boot", LockID: "the disk"}
	for _, f := range change {
		f(&o)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Start(ctx, nil); err != nil {
		b.Abandon()
		_ = segments.Close(false, 0)
		return nil, err
	}
	return &testBroker{Broker: b, t: t, disk: disk, store: store}, nil
}

func (b *testBroker) stopRun() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		b.t.Error(err)
	}
}

// until waits for something that a renewal brings.
func (b *testBroker) until(what string, f func() bool) {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); {
		if time.Now().After(end) {
			b.t.Fatalf("never: %s", what)
		}
		select {
		case err := <-b.Fatal():
			b.t.Fatalf("%s: the broker ends: %v", what, err)
		case <-b.lease.Changed():
		}
	}
}

// TestForkUnderBroker forgets any number of the last commits under a broker that serves: everything that it had
// answered is in the database again, and it goes on.
func TestForkUnderBroker(t *testing.T) {
	for _, durability := range []segstore.Durability{segstore.Strict, segstore.Relaxed} {
		for _, forget := range []int{0, 1, 2, 4, 7, 1000} {
			t.Run(fmt.Sprintf("%s/%d", durabilityName(durability), forget), func(t *testing.T) {
				t.Parallel()
				store := metatest.NewMemory()
				b, err := startRun(t, memDirectory(t), store, durability)
				if err != nil {
					t.Fatal(err)
				}
				defer b.stopRun()
				forkUnder(b, forget)
			})
		}
	}
}

func forkUnder(b *testBroker, forget int) {
	t := b.t
	b.create("kept", 2, nil)
	b.create("deleted", 1, nil)
	init := b.initTxn(4, "tx", -1, -1)
	wantCode(t, "init", init.ErrorCode, nil)
	commit := func(offset int64) {
		t.Helper()
		r := b.offsetCommit(8, "g", "", -1, map[string]map[int32]int64{"kept": {0: offset}})
		wantCode(t, "commit", r.Topics[0].Partitions[0].ErrorCode, nil)
	}
	commit(1)
	b.create("a", 1, map[string]string{"retention.ms": "777"})
	if first := b.mustProduce("a", 0, batchOf{times: []int64{1}}); first != 0 {
		t.Fatalf("first offset %d", first)
	}
	deleted := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 6, deleteByName("deleted"))
	wantCode(t, "delete", deleted.Topics[0].ErrorCode, nil)
	init = b.initTxn(4, "tx", -1, -1)
	commit(2)
	term := b.leader("a", 0).row.Term

	b.store.Fork(min(forget, b.store.Commits()-1)) // the cluster stays
	b.until("another history", func() bool { return b.catalog.Load().cluster.History > 1 })
	b.until("put back", func() bool { _, shards := b.groups.Unsettled(); return shards == 0 })

	seen, err := b.store.Look(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, topic := range seen.Catalog.Topics {
		names = append(names, fmt.Sprint(topic.Name, len(topic.Partitions), topic.Configs["retention.ms"]))
	}
	if slices.Sort(names); !slices.Equal(names, []string{"a1777", "kept2"}) {
		t.Errorf("topics in the database: %v", names)
	}
	if seen.Incarnation != b.owner.Incarnation {
		t.Errorf("incarnation %d, want %d", seen.Incarnation, b.owner.Incarnation)
	}
	rows, err := b.store.LoadShards(t.Context(), 1, b.shards)
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, r := range rows {
		for _, o := range r.Offsets {
			found += fmt.Sprint(" offset ", o.Offset)
		}
		for _, x := range r.Transactions {
			if x.ProducerID != init.ProducerID || x.Epoch != init.ProducerEpoch {
				t.Errorf("producer %d/%d in the database, %d/%d was given out", x.ProducerID, x.Epoch, init.ProducerID, init.ProducerEpoch)
			}
		}
	}
	if found != " offset 2" {
		t.Errorf("the database has %q", found)
	}
	commit(3)
	if next := b.mustProduce("a", 0, batchOf{times: []int64{2}, producer: 5}); next != 1 {
		t.Errorf("next offset %d", next)
	}
	if now := b.leader("a", 0).row.Term; now < term {
		t.Errorf("term %d after %d", now, term)
	}
	b.create("new", 1, nil)
	other := b.initTxn(4, "other", -1, -1)
	if other.ErrorCode != 0 || other.ProducerID == init.ProducerID {
		t.Errorf("another producer: %+v", other)
	}
	again := b.initTxn(4, "tx", init.ProducerID, init.ProducerEpoch)
	if again.ErrorCode != 0 || again.ProducerEpoch != init.ProducerEpoch+1 {
		t.Errorf("the producer goes on: %+v", again)
	}
}

// TestStartOnForkedDatabase: the database went back while no broker ran.
func TestStartOnForkedDatabase(t *testing.T) {
	for _, forget := range []int{0, 1, 3, 6, 1000} {
		t.Run(fmt.Sprint(forget), func(t *testing.T) {
			t.Parallel()
			store, disk := metatest.NewMemory(), memDirectory(t)
			b, err := startRun(t, disk, store, segstore.Strict)
			if err != nil {
				t.Fatal(err)
			}
			b.create("first", 1, nil)
			b.create("a", 1, nil)
			init := b.initTxn(4, "tx", -1, -1)
			wantCode(t, "open", b.produceTxn(8, "tx", batchOf{times: []int64{1}, producer: init.ProducerID, epoch: init.ProducerEpoch}), kerr.InvalidTxnState) // not added
			wantCode(t, "add", b.addPartitions(3, "tx", init.ProducerID, init.ProducerEpoch, 0)[0], nil)
			wantCode(t, "open", b.produceTxn(8, "tx", batchOf{times: []int64{1}, producer: init.ProducerID, epoch: init.ProducerEpoch}), nil)
			term := b.leader("a", 0).row.Term
			b.stopRun()
			store.Fork(min(forget, store.Commits()-1))

			b, err = startRun(t, disk, store, segstore.Strict)
			if err != nil {
				t.Fatal(err)
			}
			defer b.stopRun()
			lead := b.leader("a", 0)
			if lead.row.Term <= term {
				t.Errorf("term %d after %d", lead.row.Term, term)
			}
			if end, open := lead.log.Offsets().End, lead.log.OpenTransactions(); end != 2 || len(open) > 0 {
				t.Errorf("one record and the marker of its abort end at %d, open is %v", end, open)
			}
			b.leader("first", 0)
			wantCode(t, "the old producer", b.produceTxn(8, "tx", batchOf{times: []int64{2}, producer: init.ProducerID, epoch: init.ProducerEpoch, sequence: 1}), kerr.InvalidProducerIDMapping)
			again := b.initTxn(4, "tx", -1, -1)
			if again.ErrorCode != 0 || again.ProducerID == init.ProducerID {
				t.Errorf("a producer id was given out twice: %+v after %+v", again, init)
			}
			if h := b.catalog.Load().cluster.History; h != 2 {
				t.Errorf("history %d", h)
			}
		})
	}
}

// TestRestoredBackupNeedsConsent: a database that is far behind is refused, with what is missing, and taken with consent.
func TestRestoredBackupNeedsConsent(t *testing.T) {
	store, disk := metatest.NewMemory(), memDirectory(t)
	b, err := startRun(t, disk, store, segstore.Strict)
	if err != nil {
		t.Fatal(err)
	}
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{times: []int64{1}})
	b.stopRun()
	raw, err := disk.ReadFile("/log/" + runFileName)
	if err != nil {
		t.Fatal(err)
	}
	var last runFile
	if err := json.Unmarshal(raw, &last); err != nil {
		t.Fatal(err)
	}
	if last.Beat == 0 || last.CatalogVersion == 0 {
		t.Fatalf("run file %s", raw)
	}
	last.Beat += 1_000_000 // the day after the backup
	raw, _ = json.Marshal(last)
	if err := disk.WriteFile("/log/"+runFileName, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	store.Fork(2)
	commits := store.Commits()
	if _, err = startRun(t, disk, store, segstore.Strict); !errors.Is(err, errRestored) || !strings.Contains(err.Error(), "--accept-restored-metadata") || !strings.Contains(err.Error(), "beat") {
		t.Fatalf("start: %v", err)
	}
	if store.Commits() != commits {
		t.Error("the refused start has changed something")
	}
	b, err = startRun(t, disk, store, segstore.Strict, func(o *Options) { o.AcceptRestored = true })
	if err != nil {
		t.Fatal(err)
	}
	if end := b.leader("a", 0).log.Offsets().End; end != 1 {
		t.Errorf("end %d", end)
	}
	b.stopRun()
	if b, err = startRun(t, disk, store, segstore.Strict); err != nil { // consent is needed once
		t.Fatal(err)
	}
	b.stopRun()
}

// TestLosslessFailoverKeepsProducers: a start that meets another server fences transactional producers, since their epochs
// may be forgotten; with postgres.failover=lossless it does so only if something has surely gone back.
func TestLosslessFailoverKeepsProducers(t *testing.T) {
	for _, c := range []struct {
		failover string
		forget   int
		fenced   bool
	}{{"lossy", 0, true}, {"lossless", 0, false}, {"lossless", 1000, true}} {
		t.Run(fmt.Sprint(c.failover, " ", c.forget), func(t *testing.T) {
			t.Parallel()
			store, disk := metatest.NewMemory(), memDirectory(t)
			set := settings(t, "postgres.failover="+c.failover)
			b, err := startRun(t, disk, store, segstore.Strict, set)
			if err != nil {
				t.Fatal(err)
			}
			b.create("a", 1, nil)
			init := b.initTxn(4, "tx", -1, -1)
			wantCode(t, "add", b.addPartitions(3, "tx", init.ProducerID, init.ProducerEpoch, 0)[0], nil)
			batch := batchOf{times: []int64{1}, producer: init.ProducerID, epoch: init.ProducerEpoch}
			wantCode(t, "open", b.produceTxn(8, "tx", batch), nil)
			b.stopRun()
			store.Fork(min(c.forget, store.Commits()-1))

			if b, err = startRun(t, disk, store, segstore.Strict, set); err != nil {
				t.Fatal(err)
			}
			defer b.stopRun()
			if h := b.catalog.Load().cluster.History; h != 2 {
				t.Errorf("history %d", h)
			}
			batch.sequence = 1
			goesOn := b.produceTxn(8, "tx", batch) == 0 && b.endTxn(4, "tx", init.ProducerID, init.ProducerEpoch, true).ErrorCode == 0
			if goesOn == c.fenced {
				t.Errorf("the open transaction went on and was committed: %t", goesOn)
			}
			b.until("no transaction is open", func() bool { return len(b.leader("a", 0).log.OpenTransactions()) == 0 })
			again := b.initTxn(4, "tx", -1, -1)
			if kept := again.ProducerID == init.ProducerID; again.ErrorCode != 0 || kept == c.fenced {
				t.Errorf("it was producer %d and is %d (code %d)", init.ProducerID, again.ProducerID, again.ErrorCode)
			}
			if other := b.initTxn(4, "other", -1, -1); other.ProducerID < init.ProducerID+100_000 {
				t.Errorf("producer id %d, after %d before the failover", other.ProducerID, init.ProducerID)
			}
		})
	}
}

// settings changes the configuration that startRun has made.
func settings(t *testing.T, set ...string) func(*Options) {
	return func(o *Options) {
		cfg, _, err := config.Load(config.Sources{Set: append([]string{"postgres.url=postgres://localhost/none", "node.id=1", "log.dirs=/log",
			"listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=PLAINTEXT://127.0.0.1:0", "broker.heartbeat.interval.ms=50", "broker.session.timeout.ms=2000"}, set...)})
		if err != nil {
			t.Fatal(err)
		}
		o.Config = cfg
	}
}

// TestKillAfterAFollowedFailover: a broker that has followed a failover, has put back what it knew and is killed at once
// starts as after any kill: nobody is fenced, and no other history begins.
func TestKillAfterAFollowedFailover(t *testing.T) {
	store, disk := metatest.NewMemory(), memDirectory(t)
	b, err := startRun(t, disk, store, segstore.Strict)
	if err != nil {
		t.Fatal(err)
	}
	b.create("a", 1, nil)
	init := b.initTxn(4, "tx", -1, -1)
	store.Fork(0)
	mark, err := store.ServerMark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var last runFile
	b.until("the run file names the new server", func() bool { last, _, err = b.readRunFile(); return err != nil || last.ServerMark == mark })
	if err != nil {
		t.Fatal(err)
	}
	next, err := startRun(t, disk.CrashCopy(rand.New(rand.NewPCG(1, 1))), store, segstore.Strict)
	if err != nil {
		t.Fatal(err)
	}
	defer next.stopRun()
	<-b.Fatal() // the killed one, which is still here
	b.stopRun()
	if h := next.catalog.Load().cluster.History; h != 2 {
		t.Errorf("history %d", h)
	}
	if again := next.initTxn(4, "tx", -1, -1); again.ErrorCode != 0 || again.ProducerID != init.ProducerID {
		t.Errorf("the id was producer %d and is %d (code %d)", init.ProducerID, again.ProducerID, again.ErrorCode)
	}
}

// TestForkHiddenBySomebodyElsesWrite: a server is promoted that lacks a commit, and before the broker hears of it a SQL user's
// write moves the shard's seq past all that the broker knows. Only the server's mark says that something is missing.
func TestForkHiddenBySomebodyElsesWrite(t *testing.T) {
	store := metatest.NewMemory()
	b, err := startRun(t, memDirectory(t), store, segstore.Strict)
	if err != nil {
		t.Fatal(err)
	}
	defer b.stopRun()
	b.create("a", 1, nil)
	settled := store.Commits()
	r := b.offsetCommit(8, "g", "", -1, map[string]map[int32]int64{"a": {0: 7}})
	wantCode(t, "commit", r.Topics[0].Partitions[0].ErrorCode, nil)
	own := func() meta.Shard { // its term rises with each fork
		b.control.Lock()
		defer b.control.Unlock()
		return b.shards[meta.ShardOf("g")]
	}
	shard := own()
	other := "" // a group of the same shard
	for i := 0; other == "" || meta.ShardOf(other) != shard.Shard; i++ {
		other = fmt.Sprint("somebody-", i)
	}
	write := meta.Resolve{Shard: shard.Shard, Term: shard.Term, Seq: shard.Seq + 100, Missing: meta.ShardChange{Offsets: []meta.OffsetRow{
		{Group: other, TopicID: b.catalog.Load().byName["a"].id, Offset: 1, LeaderEpoch: -1, CommittedAt: time.Now(), Version: 1 << 32}}}}

	store.Fork(store.Commits() - settled)
	b.until("the write lands", func() bool { // a server that has not been compared refuses this process
		write.Term = own().Term
		_, err := store.ResolveShards(t.Context(), 1, []meta.Resolve{write})
		return err == nil
	})
	found := map[string]int64{"g": -1, other: -1}
	patience := time.Now().Add(5 * time.Second)
	b.until("both offsets are there, or the broker had time enough", func() bool {
		rows, err := store.LoadShards(t.Context(), 1, []meta.Shard{own()})
		for _, o := range rows[shard.Shard].Offsets {
			found[o.Group] = o.Offset
		}
		return err == nil && found["g"] == 7 || time.Now().After(patience)
	})
	if found["g"] != 7 || found[other] != 1 {
		t.Errorf("offset 7 was acknowledged, the database has %d; somebody else's is %d, want 1", found["g"], found[other])
	}
}
