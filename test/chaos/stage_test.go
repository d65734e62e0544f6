package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
	"github.com/pgbroker/pgbroker/test/history"
)

// transactionalID is that of all stories. In what the broker sends to Postgres it is in the parameters of statements only, so
// a gate that holds it back meets statements that are carried out, not those that are only described.
const transactionalID = "id-of-the-story"

// stage is a broker with one topic, two partitions, and a way to hold it back from Postgres.
type stage struct {
	*run
	ctx  context.Context
	gate *gate
	a, b history.Place // the partitions
}

// newStage starts a broker; binary "" is the one under test.
func newStage(t *testing.T, s story, binary string, env ...string) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	t.Cleanup(cancel)
	g, url := newGate(t, pgtest.URL(t))
	durability := "strict"
	if s.relax {
		durability = "relaxed"
	}
	r := &run{t: t, durability: durability, recorder: history.NewRecorder(), topics: map[string]int32{}, groups: map[history.Place][]string{}, faults: map[string]int{}}
	r.options = history.Options{TransactionTimeout: transactionTimeout, Slack: 5 * time.Second, Rising: map[string]bool{"g": true}}
	r.settleIn = 10 * time.Second
	port := harness.FreePort(t)
	r.proxy = harness.NewProxy(t, port)
	r.broker = harness.NewBroker(t, harness.BrokerOptions{Postgres: url, Port: port, Advertised: r.proxy.Port(), Binary: binary, Env: env,
		Set: []string{"durability=" + durability, "auto.create.topics.enable=false", "group.initial.rebalance.delay.ms=0"}})
	r.broker.MustStart()
	r.createTopic("t", 2)
	places := r.places("t")
	return &stage{run: r, ctx: ctx, gate: g, a: places[0], b: places[1]}
}

// producer makes a transactional client that has its producer id.
func (s *stage) producer(name, id string, old bool) *txnClient {
	s.t.Helper()
	c := &txnClient{line: line{address: s.proxy.Bootstrap()}, recorder: s.recorder, name: name, id: id, old: old, timeout: transactionTimeout}
	s.t.Cleanup(c.close)
	s.must(c.init(s.ctx))
	return c
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// write sends one record of a transaction, after announcing its partition where the protocol wants that.
func (s *stage) write(c *txnClient, txn int64, p history.Place) error {
	if c.old {
		if err := c.addPartitions(s.ctx, txn, p); err != nil {
			return err
		}
	}
	return c.send(s.ctx, txn, p, s.value(txn))
}

func (s *stage) value(txn int64) history.Value {
	return history.Value{Producer: 1, Number: s.recorder.Unique(), Txn: txn}
}

// look reads a partition from its start under read_committed, as far as it goes now.
func (s *stage) look(name string, p history.Place) {
	s.t.Helper()
	r := partitionReader{line: line{address: s.proxy.Bootstrap()}, process: s.recorder.Process(name), topic: p.Topic, partition: p.Partition, committed: true}
	defer r.close()
	_, err := r.poll(100, false)
	s.must(err)
}

// list asks for an offset.
func (s *stage) list(p history.Place, which string) {
	s.t.Helper()
	l := offsetLister{line: line{address: s.proxy.Bootstrap()}, process: s.recorder.Process("lister")}
	defer l.close()
	for { // a coordinator or leader that is not there yet is asked again
		if _, err := l.list(p.Topic, p.Partition, which); err == nil || s.ctx.Err() != nil {
			s.must(err)
			return
		}
	}
}

// restart kills the broker and starts it.
func (s *stage) restart() {
	s.t.Helper()
	s.broker.Kill()
	s.gate.cut()
	s.gate.release()
	s.broker.MustStart()
	s.faults["kill-broker"]++
}

// end of a transaction that is asked for while the story goes on.
func (s *stage) ending(c *txnClient, txn int64, commit bool) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- c.end(s.ctx, txn, commit) }()
	return ended
}

// rawEnd sends EndTxn v4 on a connection and records nothing.
func (s *stage) rawEnd(c *txnClient, on *line, commit bool) error {
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = 4, c.id, c.producerID, c.epoch, commit
	_, err := on.ask(r)
	return err
}
