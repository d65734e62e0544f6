package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	valueBytes = 1024
	keys       = 2000
)

// work is everything that goes on beside the broker.
type work struct {
	t         testing.TB
	bootstrap string
	rate      float64 // bytes a second
	running   sync.WaitGroup

	sent, fast, slow, keyed, tombstones, committed, aborted atomic.Int64
	skipped                                                 atomic.Int64 // offsets that retention took from the slow group

	mu     sync.Mutex // guards failed
	failed []error
}

func (w *work) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failed) < 20 {
		w.failed = append(w.failed, err)
	}
}

func (w *work) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.bootstrap)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// create makes the topics. Retention is small enough to delete all the time.
func (w *work) create(partitions int32, ageMs int) {
	w.t.Helper()
	admin := kadm.NewClient(w.client())
	value := func(v any) *string { s := fmt.Sprint(v); return &s }
	common := map[string]*string{"segment.bytes": value(1 << 20), "file.delete.delay.ms": value(1000)}
	for topic, t := range map[string]struct {
		partitions int32
		configs    map[string]*string
	}{
		"sized": {partitions, map[string]*string{"retention.bytes": value(1 << 20)}},
		"aged":  {2, map[string]*string{"retention.ms": value(ageMs), "segment.ms": value(ageMs / 2)}},
		"keyed": {4, map[string]*string{"cleanup.policy": value("compact"), "min.cleanable.dirty.ratio": value("0.3"), "delete.retention.ms": value(1000)}},
		"txn":   {2, map[string]*string{"retention.bytes": value(1 << 20)}},
	} {
		for k, v := range common {
			t.configs[k] = v
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
		_, err := admin.CreateTopic(ctx, t.partitions, 1, t.configs, topic)
		cancel()
		if err != nil {
			w.t.Fatalf("create topic %s: %v", topic, err)
		}
	}
}

// start runs all clients until ctx ends.
func (w *work) start(ctx context.Context) {
	w.running.Go(func() { w.produce(ctx, "sized", 0.7) })
	w.running.Go(func() { w.produce(ctx, "aged", 0.1) })
	w.running.Go(func() { w.produceKeyed(ctx, 0.2) })
	w.running.Go(func() { w.transact(ctx) })
	for range 2 {
		w.running.Go(func() { w.consume(ctx, "fast", 10_000, 0, &w.fast) })
	}
	w.running.Go(func() { w.consume(ctx, "slow", 100, time.Second, &w.slow) })
}

// paced calls send for each record that is due at a share of the rate, every 20 ms.
func (w *work) paced(ctx context.Context, share float64, send func(number int64)) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began, number := time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int64(time.Since(began).Seconds() * w.rate * share / valueBytes); number < due; number++ {
			send(number)
		}
	}
}

// answered takes a producer's answer.
func (w *work) answered(_ *kgo.Record, err error) {
	if err != nil {
		w.fail(fmt.Errorf("produce: %w", err))
		return
	}
	w.sent.Add(1)
}

func (w *work) produce(ctx context.Context, topic string, share float64) {
	client := w.client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	value := make([]byte, valueBytes)
	w.paced(ctx, share, func(int64) { client.Produce(context.Background(), &kgo.Record{Value: value}, w.answered) })
	w.flush(client)
}

// produceKeyed writes the same keys again and again; one of twenty is deleted.
func (w *work) produceKeyed(ctx context.Context, share float64) {
	client := w.client(kgo.DefaultProduceTopic("keyed"), kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))
	random := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, valueBytes)
	w.paced(ctx, share, func(int64) {
		r := &kgo.Record{Key: fmt.Appendf(nil, "key-%d", random.IntN(keys)), Value: value}
		if random.IntN(20) == 0 {
			r.Value = nil
			w.tombstones.Add(1)
		}
		w.keyed.Add(1)
		client.Produce(context.Background(), r, w.answered)
	})
	w.flush(client)
}

func (w *work) flush(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.Flush(ctx); err != nil {
		w.fail(fmt.Errorf("flush: %w", err))
	}
}

// transact ends two transactions a second; one of five is aborted.
func (w *work) transact(ctx context.Context) {
	client := w.client(kgo.DefaultProduceTopic("txn"), kgo.TransactionalID("soak"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	value := make([]byte, valueBytes)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.transaction(client, value, kgo.TransactionEndTry(n%5 > 0)); err != nil {
			w.fail(fmt.Errorf("transaction %d: %w", n, err))
			return
		}
	}
}

func (w *work) transaction(client *kgo.Client, value []byte, end kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for range 50 {
		client.Produce(ctx, &kgo.Record{Value: value}, w.answered)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if err := client.EndTransaction(ctx, end); err != nil {
		return err
	}
	if end == kgo.TryCommit {
		w.committed.Add(1)
	} else {
		w.aborted.Add(1)
	}
	return nil
}

// consume is a group member that reads at most so many records, commits them and pauses. What retention took from it is
// counted, not complained about.
func (w *work) consume(ctx context.Context, group string, atMost int, pause time.Duration, count *atomic.Int64) {
	client := w.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics("sized", "aged", "txn"), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(64<<10), kgo.FetchMaxBytes(1<<20),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	next := map[string]int64{}
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, atMost)
		fetches.EachError(func(topic string, p int32, err error) {
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("group %s reads %s-%d: %w", group, topic, p, err))
			}
		})
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			name := fmt.Sprint(p.Topic, "-", p.Partition)
			for _, r := range p.Records {
				if want, ok := next[name]; ok && p.Topic != "txn" && group == "slow" && r.Offset > want { // markers are gaps too
					w.skipped.Add(r.Offset - want)
				}
				next[name] = r.Offset + 1
			}
			count.Add(int64(len(p.Records)))
		})
		if records := fetches.Records(); len(records) > 0 {
			committing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if err := client.CommitRecords(committing, records...); err != nil && ctx.Err() == nil {
				w.fail(fmt.Errorf("group %s commits: %w", group, err))
			}
			cancel()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
