package coordinator

import (
	"errors"
	"testing"
	"time"
)

// TestOffsetsUnderWayAreInTheDecision: an EndTxn that comes while offsets of the transaction are being stored waits for
// them: what was answered as added is committed with it.
func TestOffsetsUnderWayAreInTheDecision(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		if err := p.write(partAt(1), "x"); err != nil {
			t.Fatal(err)
		}
		s.store.delay = 20 * time.Millisecond
		added := make(chan error, 1)
		go func() { added <- p.offsets("x", "g") }()
		for !errors.Is(s.stableOffset("g").Err, ErrUnstableOffset) {
			time.Sleep(time.Millisecond) // of the bubble: until the group has allowed them
		}
		time.Sleep(time.Millisecond)
		ended := <-endOf(s, p, true)
		if err := <-added; err != nil || ended.Err != nil {
			t.Fatalf("offsets: %v, end: %v", err, ended.Err)
		}
		if o := s.stableOffset("g"); o.Err != nil || o.Offset != 1 {
			t.Fatalf("the offset of a committed transaction is %d, %v", o.Offset, o.Err)
		}
	})
}

// TestRegistrationAloneDoesNotTimeOut: partitions were added and nothing was written. When the timeout looks, nothing is
// open, so nothing is aborted and the producer keeps its epoch.
func TestRegistrationAloneDoesNotTimeOut(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		add := AddToTxnRequest{TxnID: p.who, Partitions: []TopicPartition{partAt(1)}, Fenced: true, OldClient: true}
		if err := await(func(done func(error)) { s.groups.AddToTxn(add, done) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // its timeout is 2 s
		p.bump = false
		if err := p.write(partAt(1), "x"); err != nil {
			t.Fatalf("a write after a registration that is older than the timeout: %v", err)
		}
		if err := p.end("x", true); err != nil {
			t.Fatal(err)
		}
		if how := logs.outcomes()["x"][partAt(1)]; how != "c" {
			t.Fatalf("%q", how)
		}
	})
}

// TestADecisionThatWasNotStoredNeverHappened: the broker dies while Postgres is away and an EndTxn waits for it. What the
// next incarnation finds is a transaction that nobody has decided, so its records and offsets are dropped, all of them.
func TestADecisionThatWasNotStoredNeverHappened(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		for n := range 2 {
			if err := p.write(partAt(n), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.offsets("x", "g"); err != nil {
			t.Fatal(err)
		}
		s.mem.SetUnavailable(true)
		ended := endOf(s, p, true)
		time.Sleep(time.Second)
		s.kill()
		if r := <-ended; r.Err == nil {
			t.Fatal("committed without Postgres")
		}
		s.mem.SetUnavailable(false)
		s.start(p.w.options())
		p.w.recover(false)
		if err := p.init(time.Minute); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			if how := logs.outcomes()["x"][partAt(n)]; how != "a" {
				t.Errorf("partition %d of the transaction that was not decided: %q, want \"a\"", n, how)
			}
		}
		if o := s.stableOffset("g"); o.Err != nil || o.Offset != -1 {
			t.Errorf("its offset: %d, %v", o.Offset, o.Err)
		}
	})
}
