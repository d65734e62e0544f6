package segstore

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSlowLogHoldsUpNobody: while one log is worked on others get their turns,
// more of them than there are other goroutines, and the slow one, however often
// it is marked, exactly one more.
func TestSlowLogHoldsUpNobody(t *testing.T) {
	slow := &Log{}
	slow.flushTurn.log = slow
	held, began := make(chan struct{}), make(chan struct{}, 10)
	var slowTurns, others atomic.Int32
	q := newTurns(func(l *Log) {
		if l == slow {
			slowTurns.Add(1)
			began <- struct{}{}
			<-held
			return
		}
		others.Add(1)
	})
	var working sync.WaitGroup
	for range 2 {
		working.Go(q.work)
	}
	q.mark(&slow.flushTurn)
	<-began
	logs := make([]Log, 50)
	for i := range logs {
		logs[i].flushTurn.log = &logs[i]
		q.mark(&slow.flushTurn)
		q.mark(&logs[i].flushTurn)
	}
	waitFor(t, "the other logs", func() bool { return others.Load() == int32(len(logs)) })
	if n := slowTurns.Load(); n != 1 {
		t.Errorf("the slow log got %d turns", n)
	}
	close(held)
	waitFor(t, "the slow log's second turn", func() bool { return slowTurns.Load() == 2 && slow.flushTurn.state.Load() == turnIdle })
	q.stop()
	working.Wait()
	if n := slowTurns.Load(); n != 2 {
		t.Errorf("the slow log got %d turns in all", n)
	}
}

// TestMarksAreNotLost: each mark is followed by a turn that began after it.
func TestMarksAreNotLost(t *testing.T) {
	var logs [5]Log
	var wanted, done [5]atomic.Int64
	q := newTurns(func(l *Log) {
		for i := range logs {
			if l == &logs[i] {
				done[i].Store(wanted[i].Load())
			}
		}
	})
	var working, marking sync.WaitGroup
	for range 3 {
		working.Go(q.work)
	}
	for i := range logs {
		logs[i].flushTurn.log = &logs[i]
		for range 2 {
			marking.Go(func() {
				for range 5000 {
					wanted[i].Add(1)
					q.mark(&logs[i].flushTurn)
				}
			})
		}
	}
	marking.Wait()
	end := time.Now().Add(10 * time.Second)
	for i := range logs {
		for done[i].Load() != 10000 {
			if time.Now().After(end) {
				t.Fatalf("log %d: %d of 10000 marks were seen", i, done[i].Load())
			}
			time.Sleep(time.Millisecond)
		}
	}
	q.stop()
	working.Wait()
}
