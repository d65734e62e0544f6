package system

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// liveGroups are many small groups of both protocols, two members each, that each have one of a topic's two partitions.
type liveGroups struct {
	members []*kgo.Client
	owned   atomic.Int64 // partitions that the members were given and not told to give back
	changes atomic.Int64 // assignments, revocations and losses
}

func startLiveGroups(t *testing.T, n *node, topic string, groups int) *liveGroups {
	t.Helper()
	g := &liveGroups{}
	change := func(sign int64) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			for _, partitions := range topics {
				g.owned.Add(sign * int64(len(partitions)))
				g.changes.Add(int64(len(partitions)))
			}
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	t.Cleanup(func() { stop(); polling.Wait() })
	for i := range groups {
		opts := []kgo.Opt{patient, kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.MetadataMinAge(100 * time.Millisecond),
			kgo.OnPartitionsAssigned(change(1)), kgo.OnPartitionsRevoked(change(-1)), kgo.OnPartitionsLost(change(-1))}
		if i%2 == 0 {
			opts = append(opts, kgo.ConsumerGroup(fmt.Sprint("classic-", i)), kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(20*time.Second), kgo.HeartbeatInterval(time.Second))
		} else {
			opts = append(opts, kgo.ConsumerGroup(fmt.Sprint("next-", i)), kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
		}
		for range 2 {
			c := n.client(opts...)
			g.members = append(g.members, c)
			polling.Go(func() {
				for !c.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
				}
			})
		}
	}
	return g
}

// identities are the generations, or member epochs, and the ids of all members.
func (g *liveGroups) identities() []string {
	var out []string
	for _, c := range g.members {
		id, generation := c.GroupMetadata()
		out = append(out, fmt.Sprint(id, " ", generation))
	}
	return out
}

// TestRestartWithAHundredGroups: neither a clean restart nor a kill -9 of the broker causes a rebalance in any of 100 live
// groups. Each member keeps its id, its generation or epoch and its partition, and its next commit lands.
func TestRestartWithAHundredGroups(t *testing.T) {
	t.Parallel()
	const groups = 100
	n := startNode(t, nodeOptions{set: []string{"group.initial.rebalance.delay.ms=3000", "group.consumer.min.heartbeat.interval.ms=1000", "group.consumer.heartbeat.interval.ms=1000", "group.consumer.session.timeout.ms=45000"}})
	n.createTopic("t", 2, nil)
	g := startLiveGroups(t, n, "t", groups)
	var settled time.Time
	last := int64(-1)
	defer func() {
		if t.Failed() {
			t.Logf("%d partitions owned, %d changes", g.owned.Load(), g.changes.Load())
		}
	}()
	eventually(t, 60*time.Second, "each member has a partition, and nothing has changed for 3 s", func() bool {
		if now := g.changes.Load(); now != last || g.owned.Load() != 2*groups {
			last, settled = now, time.Now()
		}
		return time.Since(settled) > 3*time.Second
	})
	before, changes := g.identities(), g.changes.Load()
	for _, how := range []string{"clean stop", "kill -9"} {
		began := time.Now()
		if how == "kill -9" {
			n.kill()
		} else if _, err := n.stop(); err != nil {
			t.Fatal(err)
		}
		n.start()
		ready := time.Since(began)
		var landed atomic.Int64
		var committing sync.WaitGroup
		for _, c := range g.members {
			committing.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				if err := c.CommitRecords(ctx, &kgo.Record{Topic: "t", Partition: 0, Offset: 1, LeaderEpoch: -1}); err != nil {
					t.Errorf("%s: commit: %v", how, err)
					return
				}
				landed.Add(1)
			})
		}
		committing.Wait()
		time.Sleep(3 * time.Second) // heartbeats of every member, which would say that there is a rebalance
		if now := g.changes.Load(); now != changes {
			t.Errorf("%s: %d partitions changed hands", how, now-changes)
		}
		for i, now := range g.identities() {
			if now != before[i] {
				t.Errorf("%s: member %d is %s and was %s", how, i, now, before[i])
			}
		}
		t.Logf("%s: ready after %s, %d members of %d groups committed, %d partitions changed hands", how, ready.Round(time.Millisecond), landed.Load(), groups, g.changes.Load()-changes)
	}
}
