package chaos

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/test/history"
)

// Stories are small workloads, each aimed at one promise that chance seldom meets. A broker that keeps the promise has a
// legal history; TestSeededBugs has each of them find a broker that does not.

// story is one of them.
type story struct {
	name  string
	play  func(*stage)
	relax bool // runs with durability=relaxed
}

var stories = []story{
	{"open-transaction", openTransaction, false},
	{"aborted-transaction", abortedTransaction, false},
	{"stale-end", staleEnd, false},
	{"stale-end-of-the-same-outcome", staleAbort, false},
	{"old-generation", oldGeneration, false},
	{"repeated-batch-after-kill", repeatedBatch, false},
	{"offset-over-kill", offsetOverKill, false},
	{"open-over-kill", openOverKill, false},
	{"next-transaction-over-kill", nextOverKill, false},
	{"kill-before-decision", killBeforeDecision, false},
	{"kill-after-decision", killAfterDecision, false},
	{"quick-succession", quickSuccession, false},
	{"slow-producer", slowProducer, false},
	{"produce-beside-end", produceBesideEnd, false},
	{"offset-beside-end", offsetBesideEnd, false},
	{"other-outcome", otherOutcome, false},
	{"late-end-of-old-client", lateEnd, false},
	{"read-your-write", readYourWrite, false},
	{"write-over-kill", writeOverKill, false},
}

func openTransaction(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	s.look("early", s.a)
	s.must(c.end(s.ctx, txn, true))
}

func abortedTransaction(s *stage) {
	c := s.producer("a", transactionalID, false)
	for _, commit := range []bool{false, true, false} {
		txn := s.recorder.Unique()
		s.must(s.write(c, txn, s.a))
		s.must(c.end(s.ctx, txn, commit))
	}
}

// staleEnd: a producer that was replaced ends what it takes for its transaction.
func staleEnd(s *stage) {
	zombie := s.producer("zombie", transactionalID, false)
	first, second := s.recorder.Unique(), s.recorder.Unique()
	s.must(s.write(zombie, first, s.a))
	c := s.producer("new", transactionalID, false)
	s.must(s.write(c, second, s.a))
	_ = zombie.end(s.ctx, first, true) // refused
	_ = c.end(s.ctx, second, false)
}

// staleAbort: the replaced producer asks for the outcome that its successor's InitProducerId has already given.
func staleAbort(s *stage) {
	zombie := s.producer("zombie", transactionalID, false)
	first := s.recorder.Unique()
	s.must(s.write(zombie, first, s.a))
	c := s.producer("new", transactionalID, false)
	_ = zombie.end(s.ctx, first, false) // refused
	second := s.recorder.Unique()
	s.must(s.write(c, second, s.a))
	s.must(c.end(s.ctx, second, true))
}

// oldGeneration commits under a generation that has ended.
func oldGeneration(s *stage) {
	c := offsetClient{line: line{address: s.proxy.Bootstrap()}, process: s.recorder.Process("member")}
	defer c.close()
	member := ""
	join := func(metadata string) int32 {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.MemberID, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 3, "members", member, "consumer", 30_000, 30_000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte(metadata)}}
		answer, err := c.ask(r)
		s.must(err)
		joined := answer.(*kmsg.JoinGroupResponse)
		member = joined.MemberID
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.Generation, sync.MemberID = 2, "members", joined.Generation, member
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("all")}}
		_, err = c.ask(sync)
		s.must(err)
		return joined.Generation
	}
	first := join("one")
	second := join("two")
	for offset, generation := range []int32{second, first} {
		_, err := c.commit(history.Op{Group: "members", Topic: "t", Offset: int64(offset), Member: member, Generation: generation, Protocol: history.Classic})
		s.must(err)
	}
}

// repeatedBatch: the network delivers a batch of an idempotent producer once more after the broker was killed.
func repeatedBatch(s *stage) {
	c := s.producer("a", "", false)
	v, raw := s.value(0).Encode(0)
	b := batch{producerID: c.producerID, epoch: c.epoch, values: [][]byte{raw}}
	pending := c.process.Invoke(history.Op{Kind: history.Send, Topic: "t", Value: v, Acks: -1})
	answer, err := c.ask(produceRequest(11, "", "t", 0, b.encode()))
	s.must(err)
	got := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	pending.Done(history.ProduceOutcome(got.ErrorCode, 1), func(o *history.Op) { o.Offset, o.Code = got.BaseOffset, got.ErrorCode })
	s.restart()
	_, err = c.ask(produceRequest(11, "", "t", 0, b.encode()))
	if err != nil { // the connection died with the broker
		_, err = c.ask(produceRequest(11, "", "t", 0, b.encode()))
	}
	s.must(err)
}

// offsetOverKill: an offset that a transaction has stored before a kill is the group's after the commit.
func offsetOverKill(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	s.must(c.offset(s.ctx, txn, history.Op{Group: "g", Topic: "t", Offset: 7, Metadata: "seven"}))
	s.commits("g", "t")
	s.restart()
	s.must(c.end(s.ctx, txn, true))
}

// openOverKill: a kill ends no transaction.
func openOverKill(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	s.restart()
	c.line = line{address: c.address} // so that the EndTxn is sent once
	_ = c.end(s.ctx, txn, true)
}

// nextOverKill: the markers that a start may write are those of the transaction that was decided, not of the next one.
func nextOverKill(s *stage) {
	c := s.producer("a", transactionalID, true)
	first, second := s.recorder.Unique(), s.recorder.Unique()
	s.must(s.write(c, first, s.a))
	s.must(c.end(s.ctx, first, true))
	s.must(s.write(c, second, s.a))
	s.restart()
	s.look("after", s.a)
	_ = c.end(s.ctx, second, false)
}

// killBeforeDecision: Postgres never hears of the decision, so there may be no marker of it.
func killBeforeDecision(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	s.must(c.offset(s.ctx, txn, history.Op{Group: "g", Topic: "t", Offset: 7, Metadata: "seven"}))
	s.commits("g", "t")
	met := s.gate.hold(statements, transactionalID)
	wire := c.line.wire
	go func() { // one attempt, whose answer never comes
		pending := c.process.Invoke(history.Op{Kind: history.End, Txn: txn, Commit: true, Transactional: transactionalID, ProducerID: c.producerID, Epoch: c.epoch})
		r := kmsg.NewPtrEndTxnRequest()
		r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = 5, transactionalID, c.producerID, c.epoch, true
		_, err := wire.ask(r)
		pending.Done(history.Info, func(o *history.Op) { o.Note = "killed"; _ = err })
	}()
	await(s.t, met)
	s.look("meanwhile", s.a)
	s.restart()
	s.producer("new", transactionalID, false)
}

// killAfterDecision: the decision is durable and has no marker, because the broker was killed before it knew.
func killAfterDecision(s *stage) {
	c := s.producer("a", transactionalID, true)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	s.must(c.offset(s.ctx, txn, history.Op{Group: "g", Topic: "t", Offset: 7, Metadata: "seven"}))
	s.commits("g", "t")
	met := s.gate.hold(answers, transactionalID)
	once := *c
	pending := c.process.Invoke(history.Op{Kind: history.End, Txn: txn, Commit: true, Transactional: transactionalID, ProducerID: c.producerID, Epoch: c.epoch})
	go func() {
		r := kmsg.NewPtrEndTxnRequest()
		r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = 4, transactionalID, once.producerID, once.epoch, true
		_, _ = once.wire.ask(r)
	}()
	await(s.t, met)
	time.Sleep(200 * time.Millisecond) // Postgres has it; that it carries it out cannot be seen from here
	s.broker.Kill()
	pending.Done(history.Info, nil)
	s.gate.cut()
	s.gate.release()
	c.line = line{address: c.address}
	ended := s.ending(c, txn, false) // the client has changed its mind, and asks until there is a broker: refused
	s.broker.MustStart()
	<-ended
}

// quickSuccession: the next transaction of an old client begins when the answer to EndTxn is there.
func quickSuccession(s *stage) {
	c := s.producer("a", transactionalID, true)
	first, second := s.recorder.Unique(), s.recorder.Unique()
	s.must(s.write(c, first, s.a))
	s.must(c.end(s.ctx, first, true))
	s.must(s.write(c, second, s.a))
	for range 6 {
		s.look("reader", s.a)
	}
	_ = c.end(s.ctx, second, false)
}

// slowProducer comes back after its transaction has timed out.
func slowProducer(s *stage) {
	c := &txnClient{line: line{address: s.proxy.Bootstrap()}, recorder: s.recorder, name: "slow", id: transactionalID, timeout: time.Second}
	defer c.close()
	s.must(c.init(s.ctx))
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	// The broker has aborted it when the stable offset passes the record.
	l := offsetLister{line: line{address: s.proxy.Bootstrap()}, process: s.recorder.Process("lister")}
	defer l.close()
	for stable := int64(0); stable == 0; {
		var err error
		stable, err = l.list("t", 0, history.Stable)
		s.must(err)
		time.Sleep(50 * time.Millisecond)
		s.must(s.ctx.Err())
	}
	s.options.TransactionTimeout = time.Second
	if s.write(c, txn, s.b) == nil {
		_ = c.end(s.ctx, txn, true)
	}
}

// produceBesideEnd: a batch that comes while its transaction is being ended is in it or is refused.
func produceBesideEnd(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	beside := *c
	beside.line = line{address: c.address}
	beside.sequence = map[history.Place]int32{}
	defer beside.close()
	met := s.gate.hold(answers, transactionalID)
	ended := s.ending(c, txn, true)
	await(s.t, met)
	wrote := make(chan error, 1)
	go func() { wrote <- s.write(&beside, txn, s.b) }()
	time.Sleep(300 * time.Millisecond)
	s.gate.release()
	s.must(<-ended)
	<-wrote
}

// offsetBesideEnd: the same with an offset.
func offsetBesideEnd(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	s.commits("g", "t")
	beside := *c
	beside.line = line{address: c.address}
	defer beside.close()
	met := s.gate.hold(answers, transactionalID)
	ended := s.ending(c, txn, true)
	await(s.t, met)
	stored := make(chan error, 1)
	go func() {
		stored <- beside.offset(s.ctx, txn, history.Op{Group: "g", Topic: "t", Offset: 7, Metadata: "seven"})
	}()
	time.Sleep(300 * time.Millisecond)
	s.gate.release()
	s.must(<-ended)
	<-stored
}

// otherOutcome: an old client whose answer was lost asks for the other outcome.
func otherOutcome(s *stage) {
	c := s.producer("a", transactionalID, true)
	txn := s.recorder.Unique()
	s.must(s.write(c, txn, s.a))
	pending := c.process.Invoke(history.Op{Kind: history.End, Txn: txn, Commit: true, Transactional: transactionalID, ProducerID: c.producerID, Epoch: c.epoch})
	s.must(s.rawEnd(c, &c.line, true))
	pending.Done(history.Info, func(o *history.Op) { o.Note = "the answer is taken for lost" })
	_ = c.end(s.ctx, txn, false) // refused
}

// lateEnd: a copy of an old client's EndTxn arrives on its earlier connection when the next transaction is open.
func lateEnd(s *stage) {
	c := s.producer("a", transactionalID, true)
	first, second := s.recorder.Unique(), s.recorder.Unique()
	s.must(s.write(c, first, s.a))
	earlier := c.line
	c.line = line{address: c.address}
	s.must(c.end(s.ctx, first, true))
	s.must(s.write(c, second, s.a))
	_ = s.rawEnd(c, &earlier, true) // the connection is closed
	earlier.close()
	s.look("reader", s.a)
	_ = c.end(s.ctx, second, false)
}

// readYourWrite: an acknowledged record is below the latest offset.
func readYourWrite(s *stage) {
	c := s.producer("a", transactionalID, false)
	txn := s.recorder.Unique()
	for range 5 {
		s.must(s.write(c, txn, s.a))
		s.list(s.a, history.Latest)
	}
	_ = c.end(s.ctx, txn, true)
}

// writeOverKill: offsets go on where they were.
func writeOverKill(s *stage) {
	c := s.producer("a", transactionalID, false)
	for range 2 {
		txn := s.recorder.Unique()
		first, second := s.write(c, txn, s.a), s.write(c, txn, s.a)
		if first != nil || second != nil || c.end(s.ctx, txn, true) != nil {
			return // a broker that has lost the log's end; the history says the rest
		}
		s.list(s.a, history.Latest)
		s.restart()
		s.list(s.a, history.Latest)
	}
}

// TestStories wants every story's history legal.
func TestStories(t *testing.T) {
	t.Parallel()
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, story, "")
			story.play(s)
			s.report(s.finish())
		})
	}
}
