package segstore

import (
	"slices"
	"testing"
	"time"
)

// gatherWorld runs flushes of a log on a clock of its own: each takes syncTime, and what comes is in arrivals.
type gatherWorld struct {
	g        gather
	now      time.Duration
	arrivals []time.Duration // to come, sorted
	waiting  int             // batches that a flush has to make durable
	again    time.Duration   // after its answer each client sends another request; 0: it does not

	flushes, served, waits, vain int
	waited                       time.Duration
}

const syncTime = 350 * time.Microsecond

// until lets time pass to at, or to the batch that a waiting flush waits for.
func (w *gatherWorld) until(at time.Duration) (full bool) {
	for len(w.arrivals) > 0 && w.arrivals[0] <= at {
		w.now, w.arrivals = w.arrivals[0], w.arrivals[1:]
		w.waiting++
		if w.g.appended() {
			return true
		}
	}
	w.now = at
	return false
}

func (w *gatherWorld) flush() {
	if w.waiting == 0 { // the log is marked by the next append
		w.until(w.arrivals[0])
	}
	if d := w.g.wait(); d > 0 {
		w.waits++
		began := w.now
		if !w.until(w.now + d) {
			w.vain++
		}
		w.waited += w.now - began
	}
	from, served := w.g.begin(), w.waiting
	w.waiting = 0
	w.until(w.now + syncTime)
	w.g.end(from, syncTime)
	w.flushes++
	w.served += served
	for range served {
		if w.again > 0 {
			w.arrivals = append(w.arrivals, w.now+w.again)
		}
	}
	slices.Sort(w.arrivals)
}

// TestGatherPipelined: with n requests in flight each flush serves all of them, instead of about half.
func TestGatherPipelined(t *testing.T) {
	for _, n := range []int{2, 3, 5, 16} {
		w := &gatherWorld{again: 120 * time.Microsecond}
		for i := range n { // they begin one after the other
			w.arrivals = append(w.arrivals, time.Duration(i)*50*time.Microsecond)
		}
		for range 20 {
			w.flush()
		}
		w.flushes, w.served, w.vain = 0, 0, 0
		for range 100 {
			w.flush()
		}
		if w.served != 100*n || w.vain > 0 {
			t.Errorf("%d in flight: 100 flushes served %d, %d waits in vain", n, w.served, w.vain)
		}
	}
}

// TestGatherOneByOne: a client that waits for each answer is never made to wait for others.
func TestGatherOneByOne(t *testing.T) {
	w := &gatherWorld{again: 100 * time.Microsecond, arrivals: []time.Duration{0}}
	for range 100 {
		w.flush()
	}
	if w.waits > 0 || w.served != 100 {
		t.Errorf("%d waits, %d served", w.waits, w.served)
	}
}

// TestGatherOpenLoop: where requests come at their own pace waits are in vain, and soon cost nearly nothing.
func TestGatherOpenLoop(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond} {
		w := &gatherWorld{}
		for at := time.Duration(0); at < 4*time.Second; at += every {
			w.arrivals = append(w.arrivals, at)
		}
		for w.now < 3*time.Second {
			w.flush()
		}
		if w.waited > w.now/50 {
			t.Errorf("one every %v: %d of %d flushes waited, %v in all", every, w.waits, w.flushes, w.waited)
		}
	}
}

// TestGatherStopped: clients that have gone are waited for in at most two flushes.
func TestGatherStopped(t *testing.T) {
	w := &gatherWorld{again: 120 * time.Microsecond}
	for range 8 {
		w.arrivals = append(w.arrivals, 0)
	}
	for range 20 {
		w.flush()
	}
	w.again, w.arrivals, w.waiting = 0, nil, 0
	w.waits = 0
	for i := range 10 {
		w.arrivals = append(w.arrivals, w.now+time.Duration(i+1)*10*time.Millisecond)
	}
	for range 10 {
		w.flush()
	}
	if w.waits > 2 {
		t.Errorf("%d waits for clients that have gone", w.waits)
	}
}

// TestGatherWaits: a strict log's flush waits for what is expected and no longer, and a token of a wait that ended does
// not end the next.
func TestGatherWaits(t *testing.T) {
	l := newTestLog(t, Strict, LogConfig{})
	idle := newTurns(nil)
	expect := func(n int, took time.Duration) {
		l.pos.Lock()
		defer l.pos.Unlock()
		l.gather = gather{appends: 1, last: uint64(n), before: uint64(n), took: took}
	}
	expect(3, time.Hour) // at most gatherAtMost then
	began := time.Now()
	l.awaitMore(idle)
	if d := time.Since(began); d < gatherAtMost {
		t.Errorf("waited %v in vain, want %v", d, gatherAtMost)
	}
	for range 2 { // full, with nobody waiting: the token stays
		l.pos.Lock()
		if l.gather.appended() {
			l.gathered <- struct{}{}
		}
		l.pos.Unlock()
	}
	expect(3, time.Hour)
	began = time.Now()
	l.awaitMore(idle)
	if d := time.Since(began); d < gatherAtMost {
		t.Errorf("an old token ended a wait after %v", d)
	}
	busy := newTurns(nil)
	busy.head = &turn{}
	expect(3, time.Hour)
	l.awaitMore(busy)
	if l.gather.full != 0 {
		t.Error("a flush waited while other logs did")
	}
}
