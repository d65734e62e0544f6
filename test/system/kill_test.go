package system

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producers are idempotent clients that write to one topic until they are stopped.
type producers struct {
	ledger  *ledger
	stop    context.CancelFunc
	running sync.WaitGroup
}

// startProducers starts one client for each producer of the ledger, each sending a record every pause.
func startProducers(t testing.TB, n *node, l *ledger, topic string, pause time.Duration) *producers {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &producers{ledger: l, stop: cancel}
	for producer := range l.sent {
		client := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2*time.Millisecond))
		p.running.Go(func() { l.produce(ctx, client, topic, producer, pause, 0) })
	}
	t.Cleanup(cancel)
	return p
}

// finish stops the producers, waits until each record has its answer and fails the test if one was refused.
func (p *producers) finish(t testing.TB) {
	t.Helper()
	p.stop()
	done := make(chan struct{})
	go func() {
		p.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("producers do not finish: %d acknowledged", p.ledger.ackedCount())
	}
	for i, err := range p.ledger.failures() {
		if i == 10 {
			break
		}
		t.Error(err)
	}
}

// awaitAcks waits for so many more acknowledgements.
func (l *ledger) awaitAcks(t testing.TB, more int64, limit time.Duration) {
	t.Helper()
	want := l.ackedCount() + more
	eventually(t, limit, "acknowledgements go on", func() bool { return l.ackedCount() >= want })
}

// TestKillNine kills the broker five times in a row while records are produced, consumed and committed. Clients carry on
// by themselves, the group does not rebalance, nothing that was acknowledged is gone, and the files are right.
func TestKillNine(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			const topic, partitions = "killed", 4
			n := startNode(t, nodeOptions{set: []string{"durability=" + durability, "group.initial.rebalance.delay.ms=300"}})
			n.createTopic(topic, partitions, map[string]string{"segment.bytes": "1048576"})
			l := newLedger(3, partitions, 700)
			p := startProducers(t, n, l, topic, time.Millisecond)
			g := startGroup(t, n, "survivors", topic, partitions, 2, 12*time.Second)
			g.awaitProgress(20 * time.Second)
			before := g.identity()
			for range 5 {
				l.awaitAcks(t, 1500, 30*time.Second)
				n.kill()
				n.start()
				l.awaitAcks(t, 1, 20*time.Second)
				g.awaitProgress(20 * time.Second)
			}
			p.finish(t)
			v := l.verify(t, n, topic)
			g.awaitEnd(l.ackedCount())
			g.check(before)
			t.Logf("%d acknowledged, %d found", l.ackedCount(), v.found)
			n.verifyStopped()
		})
	}
}
