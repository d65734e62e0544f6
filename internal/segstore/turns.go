package segstore

import (
	"sync"
	"sync/atomic"
)

// turns has a few goroutines do one thing for the logs that are marked, in the
// order of the marks. A log is worked on by one of them at a time; one that is
// marked meanwhile gets another turn at the end of the line. So a slow log
// takes one goroutine and holds up nobody else, and what comes while it is
// worked on is done at once afterwards. Marking allocates nothing.
type turns struct {
	do func(*Log)

	mu         sync.Mutex // guards the fields below
	ready      sync.Cond
	head, tail *turn
	stopped    bool
}

// turn is a log's place in the line of one turns.
type turn struct {
	log   *Log
	state atomic.Int32
	next  *turn // guarded by turns.mu
}

const (
	turnIdle    = iota
	turnQueued  // waits in the line
	turnRunning // is worked on
	turnAgain   // is worked on, and was marked since
)

func newTurns(do func(*Log)) *turns {
	q := &turns{do: do}
	q.ready.L = &q.mu
	return q
}

// mark asks for a turn that begins after this call, unless one is waiting.
func (q *turns) mark(t *turn) {
	for {
		switch t.state.Load() {
		case turnIdle:
			if t.state.CompareAndSwap(turnIdle, turnQueued) {
				q.push(t)
				return
			}
		case turnRunning:
			if t.state.CompareAndSwap(turnRunning, turnAgain) {
				return
			}
		default:
			return
		}
	}
}

func (q *turns) push(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tail == nil {
		q.head = t
	} else {
		q.tail.next = t
	}
	q.tail = t
	q.ready.Signal()
}

// pop waits for the next turn; nil once stop was called.
func (q *turns) pop() *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == nil && !q.stopped {
		q.ready.Wait()
	}
	if q.stopped {
		return nil
	}
	t := q.head
	if q.head = t.next; q.head == nil {
		q.tail = nil
	}
	t.next = nil
	return t
}

// work is one of the goroutines. It returns after stop; what waits then stays.
func (q *turns) work() {
	for t := q.pop(); t != nil; t = q.pop() {
		t.state.Store(turnRunning) // before the work: a mark during it counts again
		q.do(t.log)
		if !t.state.CompareAndSwap(turnRunning, turnIdle) {
			t.state.Store(turnQueued)
			q.push(t)
		}
	}
}

// waits says whether a log waits for its turn.
func (q *turns) waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head != nil
}

func (q *turns) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.ready.Broadcast()
}
