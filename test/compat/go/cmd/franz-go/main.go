// Command franz-go runs the suite's scenarios with github.com/twmb/franz-go.
package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/compat/go/suite"
)

func main() {
	suite.Run(func(bootstrap string) suite.Client { return client{bootstrap} },
		suite.Further{Name: "transactions", Run: transactions},
		suite.Further{Name: "consumer-protocol", Run: consumerProtocol},
		suite.Further{Name: "consumer-regex", Run: consumerRegex},
		suite.Further{Name: "consumer-static", Run: consumerStatic})
}

type client struct{ bootstrap string }

func (c client) open(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.bootstrap)}, opts...)...)
}

func (c client) CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	cl, err := c.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, int32(partitions), 1, values, topic)
	return err
}

func (c client) PartitionCount(ctx context.Context, topic string) (int, error) {
	cl, err := c.open()
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	details, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return 0, err
	}
	return len(details[topic].Partitions), details[topic].Err
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (c client) Produce(ctx context.Context, topic, codec, acks string, records []suite.Record) error {
	opts := []kgo.Opt{kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	switch acks {
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	cl, err := c.open(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	out := make([]*kgo.Record, len(records))
	for i, r := range records {
		out[i] = &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	if err := cl.ProduceSync(ctx, out...).FirstErr(); err != nil {
		return err
	}
	if acks != "0" {
		for i, r := range out {
			records[i].Offset = r.Offset
		}
	}
	return nil
}

func (c client) Open(_ context.Context, topic string, partitions int, from int64) (suite.Reader, error) {
	offset := kgo.NewOffset()
	switch from {
	case suite.FromStart:
		offset = offset.AtStart()
	case suite.FromEnd:
		offset = offset.AtEnd()
	default:
		offset = offset.At(from)
	}
	positions := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		positions[p] = offset
	}
	cl, err := c.open(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: positions}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return nil, err
	}
	return &reader{cl: cl}, nil
}

func (c client) Join(_ context.Context, group, topic string) (suite.Member, error) {
	m := &member{topic: topic}
	var err error
	m.cl, err = c.open(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			m.change(func(has []int32) []int32 { return append(has, added[topic]...) })
		}),
		kgo.OnPartitionsRevoked(m.lose), kgo.OnPartitionsLost(m.lose))
	return m, err
}

type reader struct {
	cl      *kgo.Client
	pending []*kgo.Record
}

func (r *reader) Read(ctx context.Context) (suite.Record, error) {
	for len(r.pending) == 0 {
		fetches := r.cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return suite.Record{}, err
		}
		r.pending = fetches.Records()
	}
	in := r.pending[0]
	r.pending = r.pending[1:]
	record := suite.Record{Partition: in.Partition, Offset: in.Offset, Key: in.Key, Value: in.Value}
	for _, h := range in.Headers {
		record.Headers = append(record.Headers, suite.Header{Key: h.Key, Value: h.Value})
	}
	return record, nil
}

func (r *reader) Close() { r.cl.Close() }

type member struct {
	reader
	topic string
	mu    sync.Mutex
	has   []int32
}

func (m *member) change(f func([]int32) []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.has = f(m.has)
}

func (m *member) lose(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	m.change(func(has []int32) []int32 {
		return slices.DeleteFunc(has, func(p int32) bool { return slices.Contains(lost[m.topic], p) })
	})
}

func (m *member) Assigned() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.has)
}

func (m *member) Commit(ctx context.Context, r suite.Record) error {
	return m.cl.CommitRecords(ctx, &kgo.Record{Topic: m.topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: -1})
}

func (client) IsUnknownTopic(err error) bool { return errors.Is(err, kerr.UnknownTopicOrPartition) }
func (client) IsTooLarge(err error) bool     { return errors.Is(err, kerr.MessageTooLarge) }
func (client) IsOutOfRange(err error) bool   { return errors.Is(err, kerr.OffsetOutOfRange) }
