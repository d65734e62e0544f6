package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

// newClient makes a client that is closed with the test at the latest.
func newClient(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.DialTimeout(2 * time.Second),
		kgo.AlwaysRetryEOF(), // a cut is not the answer of a TLS listener
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// produce sends records of one idempotent producer to random topics until ctx ends, then waits for every answer.
func produce(ctx context.Context, t *testing.T, bootstrap string, l *ledger, producer int, topics []string, random *rand.Rand) {
	client := newClient(t, bootstrap, kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.UniformBytesPartitioner(16<<10, true, true, nil)),
		kgo.ProducerBatchCompression([]kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}[producer%3]))
	defer client.Close()
	answered := make(chan struct{}, 64) // records under way
	for number := int64(0); ctx.Err() == nil; number++ {
		select {
		case answered <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		m := harness.Message{Producer: uint32(producer), Number: uint64(number)}
		r := &kgo.Record{Topic: topics[random.IntN(len(topics))], Value: harness.MakeValue(producer, number, 100+random.IntN(8<<10))}
		client.Produce(context.Background(), r, func(r *kgo.Record, err error) {
			if err != nil {
				l.Fail(fmt.Errorf("producer %d gave record %d for %s-%d up: %w", producer, m.Number, r.Topic, r.Partition, err))
			} else {
				l.Ack(r, m)
			}
			<-answered
		})
		time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
	}
	flushing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.Flush(flushing); err != nil {
		l.Fail(fmt.Errorf("producer %d: %w", producer, err))
	}
}

// produceAnywhere writes to topics that come and go; what becomes of it does not matter.
func produceAnywhere(ctx context.Context, t *testing.T, bootstrap string, topics []string, random *rand.Rand) {
	client := newClient(t, bootstrap, kgo.UnknownTopicRetries(2), kgo.RecordDeliveryTimeout(3*time.Second), kgo.MaxBufferedRecords(100))
	defer client.Close()
	for number := int64(0); ctx.Err() == nil; number++ {
		r := &kgo.Record{Topic: topics[random.IntN(len(topics))], Value: harness.MakeValue(1000, number, 1000)}
		client.TryProduce(ctx, r, nil)
		time.Sleep(2 * time.Millisecond)
	}
}

// consume is a group member that commits what it has read, until ctx ends.
func consume(ctx context.Context, t *testing.T, bootstrap string, l *ledger, group string, topics []string) {
	client := newClient(t, bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 500)
		fetches.EachRecord(func(r *kgo.Record) {
			if _, err := harness.ParseValue(r.Value); err != nil {
				l.Fail(fmt.Errorf("group %s read %s-%d offset %d: %w", group, r.Topic, r.Partition, r.Offset, err))
			}
		})
		if records := fetches.Records(); len(records) > 0 {
			committing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := client.CommitRecords(committing, records...)
			cancel()
			if err == nil {
				fetches.EachPartition(func(p kgo.FetchTopicPartition) {
					if n := len(p.Records); n > 0 {
						l.committed(groupPartition{group, harness.Partition{Topic: p.Topic, Number: p.Partition}}, p.Records[n-1].Offset+1)
					}
				})
			}
		}
		client.AllowRebalance()
	}
}

// watchCommits wants that a group's committed offsets never go back, and are never below what was acknowledged.
func watchCommits(ctx context.Context, t *testing.T, bootstrap string, l *ledger, groups []string) {
	client := newClient(t, bootstrap)
	defer client.Close()
	admin := kadm.NewClient(client)
	last := map[groupPartition]int64{}
	for ctx.Err() == nil {
		for _, group := range groups {
			acked := l.commitsNow()
			asking, cancel := context.WithTimeout(ctx, 5*time.Second)
			got, err := admin.FetchOffsets(asking, group)
			cancel()
			if err != nil || got.Error() != nil {
				continue
			}
			checkCommits(l, group, got, acked, last)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func checkCommits(l *ledger, group string, got kadm.OffsetResponses, acked, last map[groupPartition]int64) {
	now := map[groupPartition]int64{}
	got.Each(func(o kadm.OffsetResponse) {
		now[groupPartition{group, harness.Partition{Topic: o.Topic, Number: o.Partition}}] = o.At
	})
	for _, known := range []map[groupPartition]int64{acked, last} {
		for p, offset := range known {
			if at, ok := now[p]; p.group == group && (!ok || at < offset) {
				l.Fail(fmt.Errorf("group %s has committed %d (%v) for %s-%d, after %d was acknowledged or seen", group, at, ok, p.Topic, p.Number, offset))
			}
		}
	}
	for p, offset := range now {
		last[p] = offset
	}
}

// administer changes topics at random until ctx ends.
type administrator struct {
	client  *kadm.Client
	ledger  *ledger
	random  *rand.Rand
	grow    []string // get partitions and other properties
	trim    []string // lose records from the front
	passing []string // are deleted and made again

	mu   sync.Mutex
	done map[string]int // what was changed, by kind
}

func (a *administrator) run(ctx context.Context) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		kind, err := a.change(asking)
		cancel()
		if err == nil {
			a.mu.Lock()
			a.done[kind]++
			a.mu.Unlock()
		}
		time.Sleep(time.Duration(a.random.IntN(100)) * time.Millisecond)
	}
}

func (a *administrator) change(ctx context.Context) (kind string, err error) {
	switch n := a.random.IntN(10); {
	case n < 3:
		_, err = a.client.CreateTopic(ctx, 1+int32(a.random.IntN(4)), 1, nil, pick(a.random, a.passing))
		return "created", err
	case n < 6:
		topic := pick(a.random, a.passing)
		deleted, err := a.client.DeleteTopics(ctx, topic)
		if err == nil {
			err = deleted[topic].Err
		}
		return "deleted", err
	case n < 7:
		return "grown", a.addPartition(ctx, pick(a.random, a.grow))
	case n < 9:
		return "trimmed", a.deleteRecords(ctx, pick(a.random, a.trim))
	default:
		size := []string{"1048576", "2097152"}[a.random.IntN(2)]
		_, err := a.client.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: &size}}, pick(a.random, append(a.trim, a.grow...)))
		return "altered", err
	}
}

// maxPartitions bounds how far a topic grows.
const maxPartitions = 12

func (a *administrator) addPartition(ctx context.Context, topic string) error {
	details, err := a.client.ListTopics(ctx, topic)
	if err != nil || details.Error() != nil || len(details[topic].Partitions) >= maxPartitions {
		return errors.Join(err, details.Error(), errors.New("not now"))
	}
	answers, err := a.client.CreatePartitions(ctx, 1, topic)
	if err == nil {
		err = answers[topic].Err
	}
	return err
}

// deleteRecords asks for the deletion of half of a partition.
func (a *administrator) deleteRecords(ctx context.Context, topic string) error {
	starts, err := a.client.ListStartOffsets(ctx, topic)
	if err != nil || starts.Error() != nil {
		return errors.Join(err, starts.Error())
	}
	ends, err := a.client.ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		return errors.Join(err, ends.Error())
	}
	var asked kadm.Offsets
	ends.Each(func(e kadm.ListedOffset) {
		s, _ := starts.Lookup(e.Topic, e.Partition)
		if to := (s.Offset + e.Offset) / 2; asked == nil && to > s.Offset && a.random.IntN(2) == 0 {
			a.ledger.deleting(harness.Partition{Topic: topic, Number: e.Partition}, to)
			asked.AddOffset(topic, e.Partition, to, -1)
		}
	})
	answers, err := a.client.DeleteRecords(ctx, asked)
	if err == nil {
		err = answers.Error()
	}
	answers.Each(func(r kadm.DeleteRecordsResponse) {
		want, _ := asked.Lookup(r.Topic, r.Partition)
		if r.Err == nil && r.LowWatermark < want.At {
			a.ledger.Fail(fmt.Errorf("DeleteRecords of %s-%d to %d was answered with %d", r.Topic, r.Partition, want.At, r.LowWatermark))
		}
		if errors.Is(r.Err, kerr.UnknownServerError) {
			a.ledger.Fail(fmt.Errorf("DeleteRecords of %s-%d: %w", r.Topic, r.Partition, r.Err))
		}
	})
	return err
}

func pick(random *rand.Rand, from []string) string { return from[random.IntN(len(from))] }
