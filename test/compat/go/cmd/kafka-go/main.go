// Command kafka-go runs the suite's scenarios with github.com/segmentio/kafka-go.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pgbroker/pgbroker/test/compat/go/suite"
)

func main() {
	suite.Run(func(bootstrap string) suite.Client {
		return &client{bootstrap, &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 20 * time.Second}}
	})
}

type client struct {
	bootstrap string
	low       *kafka.Client
}

func (c *client) CreateTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	config := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	for key, value := range configs {
		config.ConfigEntries = append(config.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	resp, err := c.low.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	if err != nil {
		return err
	}
	return resp.Errors[topic]
}

func (c *client) PartitionCount(ctx context.Context, topic string) (int, error) {
	resp, err := c.low.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	return len(resp.Topics[0].Partitions), resp.Topics[0].Error
}

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var requiredAcks = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}

func (c *client) Produce(ctx context.Context, topic, codec, acks string, records []suite.Record) error {
	// A Writer chooses partitions by a balancer only: this one looks them up by the record's key, which is unique.
	byKey := map[string]*suite.Record{}
	messages := make([]kafka.Message, len(records))
	for i, r := range records {
		byKey[string(r.Key)] = &records[i]
		messages[i] = kafka.Message{Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	var mu sync.Mutex
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.bootstrap), Topic: topic, Compression: codecs[codec], RequiredAcks: requiredAcks[acks],
		BatchTimeout: 5 * time.Millisecond, MaxAttempts: 3,
		// A fresh transport: the shared one caches metadata and would not see a topic created just now.
		Transport: &kafka.Transport{},
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int {
			return int(byKey[string(m.Key)].Partition)
		}),
		Completion: func(sent []kafka.Message, err error) {
			if err != nil || acks == "0" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range sent {
				byKey[string(m.Key)].Offset = m.Offset
			}
		},
	}
	err := writer.WriteMessages(ctx, messages...)
	return errors.Join(err, writer.Close())
}

func (c *client) Open(_ context.Context, topic string, partitions int, from int64) (suite.Reader, error) {
	r := newReader()
	for p := range partitions {
		if err := r.start(c.partition(topic, p), from); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func (c *client) partition(topic string, partition int) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.bootstrap}, Topic: topic, Partition: partition, MaxWait: 200 * time.Millisecond,
		OffsetOutOfRangeError: true,
	})
}

// reader joins the readers of several partitions; kafka-go has one for each.
type reader struct {
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	records chan suite.Record
	errs    chan error
}

func newReader() *reader {
	r := &reader{records: make(chan suite.Record, 1000), errs: make(chan error, 10)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// start reads one partition from an offset; FromStart and FromEnd are kafka-go's FirstOffset and LastOffset too.
func (r *reader) start(in *kafka.Reader, from int64) error {
	if err := in.SetOffset(from); err != nil {
		return errors.Join(err, in.Close())
	}
	r.wg.Go(func() {
		defer in.Close()
		for {
			m, err := in.ReadMessage(r.ctx)
			if err != nil {
				select {
				case r.errs <- err:
				case <-r.ctx.Done():
				}
				return
			}
			record := suite.Record{Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				record.Headers = append(record.Headers, suite.Header{Key: h.Key, Value: h.Value})
			}
			select {
			case r.records <- record:
			case <-r.ctx.Done():
				return
			}
		}
	})
	return nil
}

func (r *reader) Read(ctx context.Context) (suite.Record, error) {
	select {
	case record := <-r.records:
		return record, nil
	case err := <-r.errs:
		return suite.Record{}, err
	case <-ctx.Done():
		return suite.Record{}, ctx.Err()
	}
}

func (r *reader) Close() {
	r.stop()
	r.wg.Wait()
}

// Join uses ConsumerGroup, the part of kafka-go that shows assignments; its Reader with a GroupID is built on it.
func (c *client) Join(_ context.Context, group, topic string) (suite.Member, error) {
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: []string{c.bootstrap}, Topics: []string{topic}, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	m := &member{reader: newReader(), client: c, topic: topic, group: g}
	m.loop.Go(m.run)
	return m, nil
}

type member struct {
	*reader
	client *client
	topic  string
	group  *kafka.ConsumerGroup
	loop   sync.WaitGroup

	mu         sync.Mutex
	generation *kafka.Generation // nil between generations
}

func (m *member) set(g *kafka.Generation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation = g
}

func (m *member) run() {
	for {
		generation, err := m.group.Next(m.ctx)
		if err != nil {
			if m.ctx.Err() != nil {
				return
			}
			continue // a join that failed is tried again by Next
		}
		m.set(generation)
		generation.Start(func(ctx context.Context) {
			records := &reader{records: m.records, errs: m.errs}
			records.ctx, records.stop = context.WithCancel(ctx)
			for _, p := range generation.Assignments[m.topic] {
				if err := records.start(m.client.partition(m.topic, p.ID), p.Offset); err != nil {
					m.errs <- err
				}
			}
			<-ctx.Done()
			m.set(nil)
			records.Close()
		})
	}
}

func (m *member) current() *kafka.Generation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

func (m *member) Assigned() []int32 {
	generation := m.current()
	if generation == nil {
		return nil
	}
	var partitions []int32
	for _, p := range generation.Assignments[m.topic] {
		partitions = append(partitions, int32(p.ID))
	}
	return partitions
}

func (m *member) Commit(_ context.Context, r suite.Record) error {
	generation := m.current()
	if generation == nil {
		return errors.New("no generation")
	}
	return generation.CommitOffsets(map[string]map[int]int64{m.topic: {int(r.Partition): r.Offset + 1}})
}

func (m *member) Close() {
	_ = m.group.Close()
	m.reader.Close()
	m.loop.Wait()
}

func (*client) IsUnknownTopic(err error) bool { return errors.Is(err, kafka.UnknownTopicOrPartition) }
func (*client) IsOutOfRange(err error) bool   { return errors.Is(err, kafka.OffsetOutOfRange) }
func (*client) IsTooLarge(err error) bool {
	var failed kafka.WriteErrors
	return errors.As(err, &failed) && failed.Count() == 1 && errors.Is(failed[0], kafka.MessageSizeTooLarge)
}
