package broker

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// deliveries are what a group's members got of the records 0, 1, 2, …
type deliveries struct {
	t         *testing.T
	mu        sync.Mutex
	seen      map[int]int     // how often
	committed map[string]bool // the commit of this record was acknowledged
	pass      func(n int)     // is given each record before its commit; nil: nobody
}

// distinct is how many records came.
func (d *deliveries) distinct() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen)
}

// poll lets a member consume, committing what it got before it asks for more. A record whose commit was acknowledged must
// not come again, whatever happens to the group.
func (d *deliveries) poll(ctx context.Context, client *kgo.Client, name string) {
	for {
		f := client.PollFetches(ctx)
		if f.IsClientClosed() || ctx.Err() != nil {
			client.AllowRebalance() // or its Close would wait for ever
			return
		}
		var got []int
		var places []string
		var records []*kgo.Record
		f.EachRecord(func(r *kgo.Record) {
			records = append(records, r)
			n, err := strconv.Atoi(string(r.Value))
			if err != nil {
				d.t.Errorf("record %q", r.Value)
			}
			got, places = append(got, n), append(places, fmt.Sprintf("%s-%d@%d", r.Topic, r.Partition, r.Offset))
		})
		d.mu.Lock()
		for i, n := range got {
			if d.seen[n]++; d.committed[places[i]] {
				d.t.Errorf("%s gets %s, which was committed", name, places[i])
			}
		}
		d.mu.Unlock()
		if d.pass != nil {
			for _, n := range got {
				d.pass(n)
			}
		}
		// Refused during a rebalance: the next owner gets them again. CommitUncommittedOffsets would commit nothing once the
		// client has left the group, and call that a success.
		err := client.CommitRecords(ctx, records...)
		d.mu.Lock()
		for _, place := range places {
			d.committed[place] = d.committed[place] || err == nil
		}
		d.mu.Unlock()
		client.AllowRebalance()
	}
}

// awaitAll waits until each of these members, and nobody else, has partitions, n in all.
func (o *ownership) awaitAll(ctx context.Context, n int, members ...string) {
	o.t.Helper()
	for {
		o.mu.Lock()
		have := map[string]int{}
		for _, m := range o.owner {
			have[m]++
		}
		total, changed := len(o.owner), o.changed
		o.mu.Unlock()
		ok := total == n && len(have) == len(members)
		for _, m := range members {
			ok = ok && have[m] > 0
		}
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			o.t.Fatalf("members have %v, want %d partitions in all with each of %v", have, n, members)
		}
	}
}

// TestLiveMigration rolls a group of franz-go's members from the classic protocol to the consumer protocol and back, one
// by one while records flow. No record is lost, none comes again after its commit, and no partition has two owners.
func TestLiveMigration(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"cooperative": kgo.CooperativeStickyBalancer(), "eager": kgo.RangeBalancer()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rollLive(t, balancer)
		})
	}
}

func rollLive(t *testing.T, balancer kgo.GroupBalancer) {
	const partitions = 6
	b := startLive(t, memDirectory(t), metatest.NewMemory(), consumerSettings()...)
	addr := b.Addr("PLAINTEXT")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for _, err := range b.createTopics(ctx, []topicSpec{{name: "t", partitions: partitions, replication: -1}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	o, d := newOwnership(t), &deliveries{t: t, seen: map[int]int{}, committed: map[string]bool{}}
	start := func(member string, opts ...kgo.Opt) *kgo.Client {
		lost := func(_ context.Context, _ *kgo.Client, p map[string][]int32) { o.set(member, p, false) }
		client, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ClientID(member), kgo.DisableAutoCommit(),
			kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { o.set(member, p, true) }),
			kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseAllowingRebalance)
		go d.poll(ctx, client, member)
		return client
	}
	classic := []kgo.Opt{kgo.Balancers(balancer), kgo.HeartbeatInterval(200 * time.Millisecond), kgo.SessionTimeout(20 * time.Second)}
	next := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}

	stop, produced := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { produced <- n }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(strconv.Itoa(n))}).FirstErr(); err != nil {
				t.Errorf("produce: %v", err)
				return
			}
			n++
		}
	}()
	names := []string{"classic-0", "classic-1", "classic-2"}
	var running []*kgo.Client
	for _, n := range names {
		running = append(running, start(n, classic...))
	}
	o.awaitAll(ctx, partitions, names...)
	roll := func(kind string, opts []kgo.Opt) {
		for i := range names {
			joining := fmt.Sprintf("%s-%d", kind, i)
			client := start(joining, opts...)
			o.awaitAll(ctx, partitions, append([]string{joining}, names...)...)
			wantKind(t, ctx, producer, "consumer")
			running[i].CloseAllowingRebalance()
			names[i], running[i] = joining, client
			o.awaitAll(ctx, partitions, names...)
		}
	}
	roll("consumer", next)
	wantMemberTypes(t, ctx, producer, consumerMemberType, 3)
	roll("back", classic)
	wantKind(t, ctx, producer, "classic")
	close(stop)
	total := <-produced
	for {
		d.mu.Lock()
		missing, again := total-len(d.seen), 0
		for _, n := range d.seen {
			again += n - 1
		}
		d.mu.Unlock()
		if missing == 0 {
			t.Logf("%d records, %d came again before they were committed", total, again)
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d records never came", missing, total)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, c := range running {
		c.CloseAllowingRebalance()
	}
}

func wantKind(t *testing.T, ctx context.Context, client *kgo.Client, kind string) {
	t.Helper()
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Groups) != 1 || resp.Groups[0].GroupType != kind || resp.Groups[0].ProtocolType != "consumer" {
		t.Errorf("groups %+v, want one of type %s", resp.Groups, kind)
	}
}

func wantMemberTypes(t *testing.T, ctx context.Context, client *kgo.Client, kind int8, n int) {
	t.Helper()
	g := describeOverTCP(t, ctx, client, "g")
	for _, m := range g.Members {
		if m.MemberType != kind {
			t.Errorf("member %+v", m)
		}
	}
	if len(g.Members) != n {
		t.Errorf("%d members, want %d", len(g.Members), n)
	}
}
