// Command sarama runs the suite's scenarios with github.com/IBM/sarama.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/pgbroker/pgbroker/test/compat/go/suite"
)

func main() {
	suite.Run(func(bootstrap string) suite.Client { return client{[]string{bootstrap}} },
		suite.Further{Name: "transactions", Run: transactions})
}

type client struct{ bootstrap []string }

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.ClientID = "compat"
	c.Metadata.AllowAutoTopicCreation = false
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	return c
}

func (c client) CreateTopic(_ context.Context, topic string, partitions int, configs map[string]string) error {
	admin, err := sarama.NewClusterAdmin(c.bootstrap, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	return admin.CreateTopic(topic,
		&sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1, ConfigEntries: values}, false)
}

func (c client) PartitionCount(_ context.Context, topic string) (int, error) {
	admin, err := sarama.NewClusterAdmin(c.bootstrap, config())
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	topics, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if topics[0].Err != sarama.ErrNoError {
		return 0, topics[0].Err
	}
	return len(topics[0].Partitions), nil
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func (c client) Produce(_ context.Context, topic, codec, acks string, records []suite.Record) error {
	conf := config()
	conf.Producer.Compression = codecs[codec]
	switch acks {
	case "0":
		conf.Producer.RequiredAcks = sarama.NoResponse
	case "1":
		conf.Producer.RequiredAcks = sarama.WaitForLocal
	default:
		conf.Producer.RequiredAcks = sarama.WaitForAll
		conf.Producer.Idempotent = true
		conf.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(c.bootstrap, conf)
	if err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, r := range records {
		messages[i] = &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Key: sarama.ByteEncoder(r.Key)}
		if r.Value != nil {
			messages[i].Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
	}
	if err := producer.SendMessages(messages); err != nil {
		return errors.Join(err, producer.Close())
	}
	if acks != "0" {
		for i, m := range messages {
			records[i].Offset = m.Offset
		}
	}
	return producer.Close()
}

func (c client) Open(_ context.Context, topic string, partitions int, from int64) (suite.Reader, error) {
	consumer, err := sarama.NewConsumer(c.bootstrap, config())
	if err != nil {
		return nil, err
	}
	r := &reader{records: make(chan suite.Record, 1000), errs: make(chan error, 10), close: consumer.Close}
	for p := range int32(partitions) {
		// FromStart and FromEnd are the numbers of sarama's OffsetOldest and OffsetNewest too: both are Kafka's.
		part, err := consumer.ConsumePartition(topic, p, from)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.parts = append(r.parts, part)
		r.wg.Go(func() {
			for m := range part.Messages() {
				r.records <- record(m)
			}
		})
		r.wg.Go(func() {
			for err := range part.Errors() {
				r.errs <- err
			}
		})
	}
	return r, nil
}

func record(m *sarama.ConsumerMessage) suite.Record {
	r := suite.Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, suite.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

type reader struct {
	records chan suite.Record
	errs    chan error
	parts   []sarama.PartitionConsumer
	wg      sync.WaitGroup
	close   func() error
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
	for _, part := range r.parts {
		part.AsyncClose()
	}
	r.wg.Wait()
	_ = r.close()
}

func (c client) Join(_ context.Context, group, topic string) (suite.Member, error) {
	g, err := sarama.NewConsumerGroup(c.bootstrap, group, config())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{topic: topic, group: g, stop: stop, records: make(chan suite.Record, 1000)}
	m.wg.Go(func() {
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil {
				return
			}
		}
	})
	return m, nil
}

// member is a member of a group and the handler of its sessions.
type member struct {
	topic   string
	group   sarama.ConsumerGroup
	stop    context.CancelFunc
	wg      sync.WaitGroup
	records chan suite.Record

	mu      sync.Mutex
	session sarama.ConsumerGroupSession // nil between generations
}

func (m *member) set(s sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = s
	return nil
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error   { return m.set(s) }
func (m *member) Cleanup(_ sarama.ConsumerGroupSession) error { return m.set(nil) }

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.records <- record(message):
		case <-s.Context().Done():
			return nil
		}
	}
	return nil
}

func (m *member) current() sarama.ConsumerGroupSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

func (m *member) Assigned() []int32 {
	if s := m.current(); s != nil {
		return s.Claims()[m.topic]
	}
	return nil
}

func (m *member) Read(ctx context.Context) (suite.Record, error) {
	select {
	case r := <-m.records:
		return r, nil
	case err := <-m.group.Errors():
		return suite.Record{}, err
	case <-ctx.Done():
		return suite.Record{}, ctx.Err()
	}
}

// Commit waits for the broker's answer; sarama reports a failure on the group's channel of errors only.
func (m *member) Commit(_ context.Context, r suite.Record) error {
	s := m.current()
	if s == nil {
		return errors.New("no session")
	}
	s.MarkOffset(m.topic, r.Partition, r.Offset+1, "")
	s.Commit()
	select {
	case err := <-m.group.Errors():
		return err
	default:
		return nil
	}
}

func (m *member) Close() {
	m.stop()
	m.wg.Wait()
	_ = m.group.Close()
}

func (client) IsUnknownTopic(err error) bool {
	return errors.Is(err, sarama.ErrUnknownTopicOrPartition)
}
func (client) IsOutOfRange(err error) bool { return errors.Is(err, sarama.ErrOffsetOutOfRange) }
func (client) IsTooLarge(err error) bool {
	var failed sarama.ProducerErrors
	return errors.As(err, &failed) && len(failed) == 1 && errors.Is(failed[0].Err, sarama.ErrMessageSizeTooLarge)
}
