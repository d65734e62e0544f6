package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// startLive starts a whole broker with sockets, on a disk and a control store in memory.
func startLive(t *testing.T, disk *vfs.Mem, store *metatest.Memory, set ...string) *Broker {
	t.Helper()
	return startLiveOn(t, disk, store, segstore.Strict, set...)
}

func startLiveOn(t *testing.T, disk vfs.FS, store meta.Store, durability segstore.Durability, set ...string) *Broker {
	t.Helper()
	cfg, _, err := config.Load(config.Sources{Set: append([]string{
		"postgres.url=postgres://localhost/none", "node.id=1", "log.dirs=/log",
		"listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=PLAINTEXT://127.0.0.1:0",
		"group.initial.rebalance.delay.ms=100", "group.min.session.timeout.ms=1000",
	}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	segments, err := segstore.Open(segstore.Options{
		FS: disk, Dir: "/log", Durability: durability, Now: time.Now, Log: log, RecoveryThreads: 1,
		RetentionEvery: time.Hour, CheckpointEvery: time.Hour, ProducerExpiry: time.Hour,
		Space: segstore.SpaceOptions{WarnPercent: cfg.Int("log.disk.usage.warn.percent"), StopPercent: cfg.Int("log.disk.usage.stop.percent")},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{
		Config: cfg, Store: store, Segments: segments, FS: disk, Dir: "/log", Durability: durability, Log: log,
		Registerer: prometheus.NewRegistry(), Software: "test", BootID: "boot", LockID: "the disk",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Start(ctx, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

// liveConsumer is one member of a group that commits after each poll.
type liveConsumer struct {
	*kgo.Client
	assigned chan struct{} // one for each assignment
	// committed counts the records whose offsets have landed.
	committed atomic.Int64
	removed   atomic.Int32 // how often it lost partitions
}

func newLiveConsumer(t *testing.T, ctx context.Context, addr string, got chan<- string) *liveConsumer {
	t.Helper()
	c := &liveConsumer{assigned: make(chan struct{}, 100)}
	lost := func(context.Context, *kgo.Client, map[string][]int32) { c.removed.Add(1) }
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"),
		kgo.SessionTimeout(2*time.Second), kgo.HeartbeatInterval(300*time.Millisecond), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { c.assigned <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	c.Client = client
	go func() {
		for ctx.Err() == nil {
			f := client.PollFetches(ctx)
			if f.IsClientClosed() {
				return
			}
			f.EachRecord(func(r *kgo.Record) { got <- string(r.Value) })
			if err := client.CommitUncommittedOffsets(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("commit: %v", err)
			}
			c.committed.Add(int64(f.NumRecords()))
		}
	}()
	return c
}

// Two members consume while Postgres hangs for twice their session timeout: nobody is expelled, nobody rebalances, and
// what they committed meanwhile lands.
func TestLiveGroupOutlivesHangingPostgres(t *testing.T) {
	store := metatest.NewMemory()
	b := startLive(t, memDirectory(t), store)
	addr := b.Addr("PLAINTEXT")
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for _, err := range b.createTopics(ctx, []topicSpec{{name: "t", partitions: 2, replication: -1}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	got := make(chan string, 1000)
	expect := func(from, n int) {
		t.Helper()
		for i := from; i < from+n; i++ {
			if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for len(seen) < n {
			select {
			case v := <-got:
				if seen[v] {
					t.Errorf("%s came twice", v)
				}
				seen[v] = true
			case <-ctx.Done():
				t.Fatalf("%d of %d records came", len(seen), n)
			}
		}
	}
	first := newLiveConsumer(t, ctx, addr, got)
	<-first.assigned
	second := newLiveConsumer(t, ctx, addr, got)
	<-second.assigned
	<-first.assigned // its half
	expect(0, 40)
	for first.committed.Load()+second.committed.Load() < 40 && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // a commit under way would hang with its consumer
	}
	before := first.removed.Load() + second.removed.Load()

	store.SetHanging(true)
	time.AfterFunc(4*time.Second, func() { store.SetHanging(false) })
	began := time.Now()
	expect(40, 2) // one for each partition, before the consumers wait for their commits
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("produce and fetch took %s", took)
	}
	time.Sleep(time.Until(began.Add(5 * time.Second)))
	expect(42, 40)
	if n := first.removed.Load() + second.removed.Load() - before; n != 0 {
		t.Errorf("partitions were taken away %d times", n)
	}
	first.Close()
	second.Close()
}
