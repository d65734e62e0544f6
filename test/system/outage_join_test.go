package system

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// TestJoinWhilePostgresIsAway lets a group rebalance while its coordinator can store nothing: it comes together when
// Postgres is back, with the members it had.
func TestJoinWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	for _, o := range []outage{
		{name: "immediate-stop", begin: (*embedpg.Server).Immediate, end: restart},
		{name: "SIGSTOP", begin: (*embedpg.Server).Pause, end: (*embedpg.Server).Resume},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			const topic, partitions, session = "steady", 4, 6 * time.Second
			pg := pgtest.Server(t)
			n := startNode(t, nodeOptions{url: pg.URL("postgres"), set: []string{"group.initial.rebalance.delay.ms=300"}})
			n.createTopic(topic, partitions, nil)
			l := newLedger(1, partitions, 300)
			p := startProducers(t, n, l, topic, 2*time.Millisecond)
			g := startGroup(t, n, "growing", topic, partitions, 1, session)
			g.awaitProgress(20 * time.Second)
			before := g.identity()
			if err := o.begin(pg); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			lost := make(chan map[string][]int32, 16)
			late := n.client(kgo.ConsumerGroup("growing"), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.RangeBalancer()),
				kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/6), kgo.RebalanceTimeout(2*session), kgo.DisableAutoCommit(),
				kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { lost <- p }))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				for ctx.Err() == nil {
					late.PollFetches(ctx)
				}
			}()
			// Longer than a session, and long enough for the join to have led to a sync that cannot be stored.
			time.Sleep(time.Until(began.Add(session + 3*time.Second)))
			if err := o.end(pg); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			eventually(t, 20*time.Second, "both members are in one generation", func() bool {
				desc, err := describeGroup(context.Background(), n, "growing")
				if err != nil || desc.State != "Stable" || len(desc.Members) != 2 {
					return false
				}
				_, generation := late.GroupMetadata()
				for _, at := range g.identity() {
					if at != generation {
						return false
					}
				}
				return true
			})
			together := time.Since(back)
			for id := range before {
				if _, ok := g.identity()[id]; !ok {
					t.Errorf("member %s had to join anew: %v", id, g.identity())
				}
			}
			if len(lost) > 0 {
				t.Errorf("the new member lost partitions: %v", <-lost)
			}
			p.finish(t)
			l.verify(t, n, topic)
			t.Logf("together %s after Postgres came back", together)
		})
	}
}

// TestRestartWhilePostgresIsAway: a broker that comes back before its Postgres serves nobody, waits, and then has all.
func TestRestartWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	const topic, partitions = "kept", 3
	pg := pgtest.Server(t)
	n := startNode(t, nodeOptions{url: pg.URL("postgres")})
	n.createTopic(topic, partitions, nil)
	l := newLedger(2, partitions, 300)
	p := startProducers(t, n, l, topic, time.Millisecond)
	l.awaitAcks(t, 300, 20*time.Second)
	if err := pg.Immediate(); err != nil {
		t.Fatal(err)
	}
	n.kill()
	back := make(chan error, 1)
	go func() {
		defer close(back)
		for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if conn, err := net.DialTimeout("tcp", n.bootstrap, time.Second); err == nil {
				t.Errorf("connected to a broker that has no Postgres")
				_ = conn.Close()
				break
			}
		}
		back <- restart(pg)
	}()
	n.start()
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, 300, 20*time.Second)
	p.finish(t)
	l.verify(t, n, topic)
}
