package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// figure is one measured case.
type figure struct {
	Mode             string        `json:"durability"`
	Case             string        `json:"case"`
	Round            int           `json:"round"`
	Records          int64         `json:"records"`
	Seconds          float64       `json:"seconds"`
	MiBPerSecond     float64       `json:"mib_per_second"`
	RecordsPerSecond float64       `json:"records_per_second"`
	CPUSecondsPerGiB float64       `json:"broker_cpu_seconds_per_gib"`
	RequestP50       time.Duration `json:"request_p50_ns"`
	RequestP99       time.Duration `json:"request_p99_ns"`
}

// workload is one shape of produce and fetch.
type workload struct {
	name       string
	recordSize int
	batchBytes int32
	producers  int
	partitions int32
}

var workloads = []workload{
	{"1 KiB, 64 KiB batches", 1024, 64 << 10, 1, 1},
	{"1 KiB, 16 KiB batches", 1024, 16 << 10, 1, 1},
	{"100 B, 64 KiB batches", 100, 64 << 10, 1, 1},
	{"256 KiB, 4 producers", 256 << 10, 1 << 20, 4, 4},
}

// measure starts a broker of one durability and runs every workload on it, produce then fetch.
func measure(ctx context.Context, binary, mode string, totalMiB int) ([]figure, error) {
	n, err := startNode(ctx, binary, mode)
	if err != nil {
		return nil, err
	}
	defer n.stop()
	var figures []figure
	for i, w := range workloads {
		topic := fmt.Sprintf("bench-%d", i)
		if err := createTopic(ctx, n.bootstrap, topic, w.partitions); err != nil {
			return nil, err
		}
		count := int64(totalMiB) << 20 / int64(w.recordSize)
		for _, step := range []struct {
			name string
			run  func(context.Context, string, string, workload, int64, *latencies) error
		}{{"produce", produce}, {"fetch", fetch}} {
			f, err := n.timed(mode, step.name+" "+w.name, count, w.recordSize, func(l *latencies) error {
				return step.run(ctx, n.bootstrap, topic, w, count, l)
			})
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", step.name, w.name, err)
			}
			figures = append(figures, f)
		}
	}
	return figures, nil
}

// timed measures one step on the wall and in the broker.
func (n *node) timed(mode, name string, count int64, size int, step func(*latencies) error) (figure, error) {
	before, err := n.cpu()
	if err != nil {
		return figure{}, err
	}
	began := time.Now()
	l := newLatencies()
	if err := step(l); err != nil {
		return figure{}, err
	}
	took := time.Since(began).Seconds()
	after, err := n.cpu()
	if err != nil {
		return figure{}, err
	}
	gib := float64(count) * float64(size) / (1 << 30)
	return figure{
		Mode: mode, Case: name, Records: count, Seconds: took, MiBPerSecond: gib * 1024 / took, RecordsPerSecond: float64(count) / took,
		CPUSecondsPerGiB: (after - before).Seconds() / gib, RequestP50: l.quantile(50), RequestP99: l.quantile(99),
	}, nil
}

func createTopic(ctx context.Context, bootstrap, topic string, partitions int32) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	configs := map[string]*string{"max.message.bytes": kadm.StringPtr("4194304")}
	_, err = kadm.NewClient(client).CreateTopic(ctx, partitions, 1, configs, topic)
	return err
}

// produce sends count records in all and waits for every acknowledgement.
func produce(ctx context.Context, bootstrap, topic string, w workload, count int64, l *latencies) error {
	var sent, acked atomic.Int64
	var failure atomic.Pointer[error]
	var group sync.WaitGroup
	for p := range w.producers {
		client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerBatchMaxBytes(w.batchBytes), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1<<20),
			kgo.MaxBufferedBytes(64<<20), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.WithHooks(l))
		if err != nil {
			return err
		}
		defer client.Close()
		group.Add(1)
		go func() {
			defer group.Done()
			value := make([]byte, w.recordSize)
			fill(value, uint64(p))
			for i := int64(p); i < count; i += int64(w.producers) {
				sent.Add(1)
				client.Produce(ctx, &kgo.Record{Value: value, Partition: int32(p) % w.partitions}, func(_ *kgo.Record, err error) {
					if err != nil {
						failure.CompareAndSwap(nil, &err)
						return
					}
					acked.Add(1)
				})
			}
			if err := client.Flush(ctx); err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		}()
	}
	group.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	if sent.Load() != count || acked.Load() != count {
		return fmt.Errorf("%d records, %d sent, %d acknowledged", count, sent.Load(), acked.Load())
	}
	return nil
}

// fetch reads the topic from its start and counts.
func fetch(ctx context.Context, bootstrap, topic string, w workload, count int64, l *latencies) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(32<<20), kgo.FetchMaxPartitionBytes(8<<20), kgo.WithHooks(l))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var read, bytes int64
	for read < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("after %d of %d records: %w", read, count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			bytes += int64(len(r.Value))
		})
	}
	if read != count || bytes != count*int64(w.recordSize) {
		return fmt.Errorf("%d records of %d bytes written, %d records and %d bytes read", count, w.recordSize, read, bytes)
	}
	return nil
}

// fill makes bytes that do not compress.
func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.Uint64())
		b = b[8:]
	}
}

// latencies collects the time from writing a Produce or Fetch to its answer.
type latencies struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	return &latencies{hist: hdrhistogram.New(1, int64(time.Minute), 3)}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (l *latencies) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key > 1 || e2e.Err() != nil {
		return
	}
	l.mu.Lock()
	_ = l.hist.RecordValue(int64(e2e.DurationE2E()))
	l.mu.Unlock()
}

func (l *latencies) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.hist.ValueAtQuantile(q))
}
