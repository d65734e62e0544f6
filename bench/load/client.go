package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// API keys of the protocol that are measured by name.
const (
	keyProduce      = 0
	keyFetch        = 1
	keyOffsetCommit = 8
	keyEndTxn       = 26
)

// producer connects a client that produces as the benchmark does everywhere: acks=all, idempotent, 5 requests in flight (the
// client's default for both), no compression, no linger.
func producer(s Spec, hook *requests, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.Bootstrap), kgo.DefaultProduceTopic(s.Topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(s.BatchBytes), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(1 << 20), kgo.MaxBufferedBytes(32 << 20), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.WithHooks(hook),
	}, more...)...)
}

// createLimit bounds the wait for a new topic, and for one to go.
const createLimit = 30 * time.Second

// CreateTopic makes the topic of a case, with room for batches of 4 MiB, and waits until each of its partitions answers: a
// broker may say that it made a topic before it knows it everywhere.
func CreateTopic(ctx context.Context, bootstrap, topic string, partitions int32) error {
	ctx, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	configs := map[string]*string{"max.message.bytes": kadm.StringPtr("4194304")}
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	for {
		_, err := endOffsets(ctx, Spec{Bootstrap: bootstrap, Topic: topic, Partitions: partitions})
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // there is no event to wait for
		}
	}
}

// DeleteTopic removes the topic of a case, so that its files need no room any more.
func DeleteTopic(ctx context.Context, bootstrap, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
}

// payload makes bytes that do not compress.
func payload(size int, seed uint64) []byte {
	b := make([]byte, size+8)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:size]
}

// errorBox keeps the first error of several goroutines.
type errorBox struct{ c chan error }

func newErrorBox() errorBox { return errorBox{make(chan error, 1)} }

func (b errorBox) put(err error) {
	if err == nil {
		return
	}
	select {
	case b.c <- err:
	default:
	}
}

func (b errorBox) first() error {
	select {
	case err := <-b.c:
		return err
	default:
		return nil
	}
}

// FirstAck returns when a record was acknowledged by a broker that has just begun to listen. It asks again every few
// milliseconds: the client's own pauses between tries must not be measured.
func FirstAck(ctx context.Context, bootstrap, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.UnknownTopicRetries(-1), kgo.RecordRetries(1<<20), kgo.RequestRetries(1<<20))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, &kgo.Record{Value: payload(1024, 1)}).FirstErr()
}
