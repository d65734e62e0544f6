package broker

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// ownership is what the members of a group consume, as their callbacks say. The group gives a partition to one member at a
// time. A member that has lost its session may hear of it after its partitions were given away: that, and only that, excuses
// two that have a partition.
type ownership struct {
	t       *testing.T
	mu      sync.Mutex
	owner   map[string]string // partition → member
	doubted map[string]string // partition → member that had it when it was given to another
	losses  int               // how often a session was lost
	events  []string          // for the log of a test that fails
	changed chan struct{}     // closed and renewed at each change
}

func newOwnership(t *testing.T) *ownership {
	o := &ownership{t: t, owner: map[string]string{}, doubted: map[string]string{}, changed: make(chan struct{})}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for partition, member := range o.doubted {
			t.Errorf("%s was given away while %s had it", partition, member)
		}
		if t.Failed() {
			t.Logf("%d sessions were lost; what the members were told:\n%s", o.losses, strings.Join(o.events, "\n"))
		}
	})
	return o
}

// note keeps an event for the log.
func (o *ownership) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// set says that a member has partitions, or has given them up.
func (o *ownership) set(member string, partitions map[string][]int32, has bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for topic, list := range partitions {
		for _, p := range list {
			name := fmt.Sprintf("%s-%d", topic, p)
			switch other := o.owner[name]; {
			case has && other != "":
				o.doubted[name] = other
				o.owner[name] = member
			case has:
				o.owner[name] = member
			case other == member:
				delete(o.owner, name)
			}
		}
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// lost says that a member's session is over: the group has already given its partitions to others, or may.
func (o *ownership) lost(member string, partitions map[string][]int32) {
	o.mu.Lock()
	o.losses++
	maps.DeleteFunc(o.doubted, func(_, m string) bool { return m == member })
	o.mu.Unlock()
	o.set(member, partitions, false)
}

// lossless says whether no member has lost its session so far.
func (o *ownership) lossless() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.losses == 0
}

// await waits until the members have these numbers of partitions.
func (o *ownership) await(ctx context.Context, want map[string]int) {
	o.t.Helper()
	for {
		o.mu.Lock()
		have := map[string]int{}
		for _, m := range o.owner {
			have[m]++
		}
		changed := o.changed
		o.mu.Unlock()
		if maps.Equal(have, want) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			o.t.Fatalf("members have %v, want %v", have, want)
		}
	}
}

// newNextConsumer is a franz-go client under the consumer protocol (KIP-848). Before it gives up partitions it commits what
// it got of them, which their next owner then does not get: franz-go does so by itself only without a callback of ours.
func newNextConsumer(t *testing.T, ctx context.Context, addr, name string, o *ownership, got chan<- string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	assigned := func(_ context.Context, c *kgo.Client, p map[string][]int32) {
		_, epoch := c.GroupMetadata()
		o.note("%s is assigned %v in epoch %d", name, p, epoch)
		o.set(name, p, true)
	}
	revoked := func(_ context.Context, c *kgo.Client, p map[string][]int32) {
		err := c.CommitUncommittedOffsets(ctx)
		_, epoch := c.GroupMetadata()
		o.note("%s gives up %v in epoch %d, its commit: %v", name, p, epoch, err)
		o.set(name, p, false)
	}
	lost := func(_ context.Context, c *kgo.Client, p map[string][]int32) {
		_, epoch := c.GroupMetadata()
		o.note("%s has lost %v in epoch %d", name, p, epoch)
		o.lost(name, p)
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.ConsumerGroup("g"), kgo.ClientID(name), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
		kgo.AutoCommitInterval(100 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.OnPartitionsAssigned(assigned), kgo.OnPartitionsRevoked(revoked), kgo.OnPartitionsLost(lost)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	go func() {
		for {
			f := client.PollFetches(ctx)
			if f.IsClientClosed() || ctx.Err() != nil {
				return
			}
			f.EachRecord(func(r *kgo.Record) {
				o.note("%s gets %q, %s-%d@%d", name, r.Value, r.Topic, r.Partition, r.Offset)
				got <- string(r.Value)
			})
		}
	}()
	return client
}

func consumerSettings() []string {
	return []string{
		"group.consumer.min.heartbeat.interval.ms=50", "group.consumer.heartbeat.interval.ms=100",
		"group.consumer.min.session.timeout.ms=1000", "group.consumer.session.timeout.ms=3000",
	}
}

// franz-go's members share partitions that two never have at the same time, commit with their epochs, find new topics by
// their regular expression, and take over from each other. A record comes once, since members commit before they give up a
// partition, unless a member has lost its session and could not.
func TestLiveConsumerGroup(t *testing.T) {
	store, disk := metatest.NewMemory(), memDirectory(t)
	b := startLive(t, disk, store, consumerSettings()...)
	addr := b.Addr("PLAINTEXT")
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	create := func(name string, partitions int32) {
		for _, err := range b.createTopics(ctx, []topicSpec{{name: name, partitions: partitions, replication: -1}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	create("t1", 4)
	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	o := newOwnership(t)
	got := make(chan string, 1000)
	seen, produced := map[string]bool{}, 0
	expect := func(topic string, n int) {
		t.Helper()
		for range n {
			produced++
			value := fmt.Sprintf("%s %d", topic, produced)
			if err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for target := len(seen) + n; len(seen) < target; {
			select {
			case v := <-got:
				if seen[v] && o.lossless() {
					t.Errorf("%s came twice", v)
				}
				seen[v] = true
			case <-ctx.Done():
				t.Fatalf("%d of %d records came", len(seen), target)
			}
		}
	}
	regex := []kgo.Opt{kgo.ConsumeRegex(), kgo.ConsumeTopics("^t[0-9]$")}
	newNextConsumer(t, ctx, addr, "a", o, got, regex...)
	o.await(ctx, map[string]int{"a": 4})
	expect("t1", 20)
	second := newNextConsumer(t, ctx, addr, "b", o, got, regex...)
	o.await(ctx, map[string]int{"a": 2, "b": 2})
	expect("t1", 20)

	// A topic that comes later is found by the regular expression, on the broker's side.
	create("t2", 2)
	o.await(ctx, map[string]int{"a": 3, "b": 3})
	expect("t2", 10)
	d := describeOverTCP(t, ctx, producer, "g")
	if d.State != "Stable" || len(d.Members) != 2 || d.AssignorName != "uniform" || d.Members[0].SubscribedTopicRegex == nil {
		t.Errorf("described %+v", d)
	}

	if err := second.CommitUncommittedOffsets(ctx); err != nil {
		t.Errorf("commit: %v", err)
	}
	second.Close()
	o.await(ctx, map[string]int{"a": 6})
	expect("t1", 20)
}

func describeOverTCP(t *testing.T, ctx context.Context, client *kgo.Client, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	t.Helper()
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Groups = []string{group}
	resp, err := r.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Groups) != 1 || resp.Groups[0].ErrorCode != 0 {
		t.Fatalf("described %+v", resp)
	}
	return resp.Groups[0]
}
