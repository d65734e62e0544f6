package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/compat/go/suite"
)

func create(ctx context.Context, bootstrap string, topics ...string) error {
	for _, topic := range topics {
		if err := (client{bootstrap}).CreateTopic(ctx, topic, suite.Partitions, nil); err != nil {
			return err
		}
	}
	return nil
}

// send writes n values v0, v1, … in turn to the partitions.
func send(ctx context.Context, bootstrap, topic string, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % suite.Partitions), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// committed is the sum of a group's offsets.
func committed(ctx context.Context, bootstrap, group string) (sum int64, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	offsets, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	offsets.Each(func(o kadm.OffsetResponse) { sum += max(o.At, 0) })
	return sum, offsets.Error()
}

// nextMember is a member of the consumer protocol (KIP-848) that polls and commits on its own until it is left.
type nextMember struct {
	cl   *kgo.Client
	done chan struct{}

	mu     sync.Mutex // guards the fields below
	has    map[string][]int32
	count  int
	lowest int64
	err    error
}

func joinNext(bootstrap, group string, opts ...kgo.Opt) (*nextMember, error) {
	m := &nextMember{done: make(chan struct{}), has: map[string][]int32{}, lowest: 1 << 60}
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.change(nil, lost) }
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ServerSideBalancer(), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { m.change(added, nil) }),
		kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose))...)
	if err != nil {
		return nil, err
	}
	m.cl = cl
	go m.poll()
	return m, nil
}

func (m *nextMember) change(added, lost map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, partitions := range added {
		m.has[topic] = append(m.has[topic], partitions...)
	}
	for topic, partitions := range lost {
		m.has[topic] = slices.DeleteFunc(m.has[topic], func(p int32) bool { return slices.Contains(partitions, p) })
		if len(m.has[topic]) == 0 {
			delete(m.has, topic)
		}
	}
}

func (m *nextMember) poll() {
	defer close(m.done)
	for {
		fetches := m.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		err := fetches.Err()
		if records := fetches.Records(); err == nil && len(records) > 0 {
			err = m.cl.CommitRecords(context.Background(), records...)
			m.mu.Lock()
			for _, r := range records {
				m.count, m.lowest = m.count+1, min(m.lowest, r.Offset)
			}
			m.mu.Unlock()
		}
		if err != nil {
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			return
		}
	}
}

// leave ends the member: it leaves its group, a static one keeps its place for its session's length.
func (m *nextMember) leave() {
	m.cl.Close()
	<-m.done
}

func (m *nextMember) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *nextMember) topics() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.has))
}

func (m *nextMember) partitions(topic string) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.has[topic]))
}

func (m *nextMember) read() (count int, lowest int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count, m.lowest
}

var all = []int32{0, 1, 2}

func split(a, b *nextMember, topic string) func() bool {
	return func() bool {
		one, two := a.partitions(topic), b.partitions(topic)
		return len(one) > 0 && len(two) > 0 && slices.Equal(slices.Sorted(slices.Values(append(one, two...))), all)
	}
}

func consumerProtocol(ctx context.Context, bootstrap string, name func(string) string) error {
	topic := name("next")
	if err := create(ctx, bootstrap, topic); err != nil {
		return err
	}
	first, err := joinNext(bootstrap, topic, kgo.ConsumeTopics(topic))
	if err != nil {
		return err
	}
	defer first.leave()
	hasAll := func() bool { return slices.Equal(first.partitions(topic), all) }
	if err := suite.Until(ctx, "the only member has all partitions", hasAll); err != nil {
		return errors.Join(err, first.failure())
	}
	second, err := joinNext(bootstrap, topic, kgo.ConsumeTopics(topic))
	if err != nil {
		return err
	}
	err = suite.Until(ctx, "two members share the partitions", split(first, second, topic))
	second.leave()
	if err != nil {
		return errors.Join(err, first.failure(), second.failure())
	}
	if err := suite.Until(ctx, "the member that stays has all partitions again", hasAll); err != nil {
		return errors.Join(err, first.failure())
	}
	if err := send(ctx, bootstrap, topic, 30); err != nil {
		return err
	}
	if err := suite.Until(ctx, "30 records are committed", func() bool {
		n, err := committed(ctx, bootstrap, topic)
		return err == nil && n == 30
	}); err != nil {
		return errors.Join(err, first.failure())
	}
	first.leave()
	return resumed(ctx, bootstrap, topic)
}

func resumed(ctx context.Context, bootstrap, topic string) error {
	if err := send(ctx, bootstrap, topic, 6); err != nil {
		return err
	}
	m, err := joinNext(bootstrap, topic, kgo.ConsumeTopics(topic))
	if err != nil {
		return err
	}
	defer m.leave()
	if err := suite.Until(ctx, "6 records are read", func() bool { n, _ := m.read(); return n >= 6 }); err != nil {
		return errors.Join(err, m.failure())
	}
	if _, lowest := m.read(); lowest < 10 {
		return fmt.Errorf("offset %d is read again", lowest)
	}
	return nil
}

func consumerRegex(ctx context.Context, bootstrap string, name func(string) string) error {
	want := []string{name("regex-a"), name("regex-b")}
	if err := create(ctx, bootstrap, append(want, name("other"))...); err != nil {
		return err
	}
	m, err := joinNext(bootstrap, name("regex"), kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+name("regex-")+"[a-c]$"))
	if err != nil {
		return err
	}
	defer m.leave()
	if err := suite.Until(ctx, "both topics are assigned", func() bool { return slices.Equal(m.topics(), want) }); err != nil {
		return errors.Join(fmt.Errorf("%w: has %v", err, m.topics()), m.failure())
	}
	added := name("regex-c")
	if err := create(ctx, bootstrap, added); err != nil {
		return err
	}
	if err := suite.Until(ctx, "the new topic is assigned", func() bool { return slices.Equal(m.partitions(added), all) }); err != nil {
		return errors.Join(err, m.failure())
	}
	return nil
}

// consumerStatic: nobody takes a static member's name while it is there. A restart is not shown: this version of franz-go
// leaves without its instance id, which Kafka refuses as an invalid request, so the name stays taken for a session's length.
func consumerStatic(ctx context.Context, bootstrap string, name func(string) string) error {
	topic := name("static")
	if err := create(ctx, bootstrap, topic); err != nil {
		return err
	}
	join := func(instance string) (*nextMember, error) {
		return joinNext(bootstrap, topic, kgo.ConsumeTopics(topic), kgo.InstanceID(instance))
	}
	two, err := join("two")
	if err != nil {
		return err
	}
	defer two.leave()
	one, err := join("one")
	if err != nil {
		return err
	}
	defer one.leave()
	if err := suite.Until(ctx, "two members share the partitions", split(one, two, topic)); err != nil {
		return errors.Join(err, one.failure(), two.failure())
	}
	thief, err := join("one")
	if err != nil {
		return err
	}
	err = suite.Until(ctx, "the thief is refused", func() bool { return errors.Is(thief.failure(), kerr.UnreleasedInstanceID) })
	thief.leave()
	if err != nil {
		return errors.Join(err, thief.failure())
	}
	return nil
}
