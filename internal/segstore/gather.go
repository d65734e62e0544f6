package segstore

import "time"

const (
	// gatherAtMost bounds how long a flush waits for appends that it expects.
	gatherAtMost = 500 * time.Microsecond
	// gatherDoubt is how often the time without waits doubles when they are in vain: to 64 flushes.
	gatherDoubt = 6
)

// gather decides how long a log's next flush waits for more appends. Clients with several requests in flight answer each
// flush with as many new ones. Without a wait the next flush begins with the few that came meanwhile and the others wait
// for the one after it, so that each request waits for two flushes and each flush serves half of them; a short wait lets
// one flush serve all. A client that sends one request at a time, and one that has stopped, are not waited for. Where
// requests come at their own pace some more come while that flush runs as well: then the wait was in vain, as when its time
// was over, and is soon seldom tried.
//
// A round is a flush, with the appends that it made durable and those that came while it ran: as many as were in flight.
// It is a pure state machine; the log's pos guards it.
type gather struct {
	appends uint64        // batches ever appended
	covered uint64        // of them when the last flush began
	last    uint64        // in flight in the last round
	before  uint64        // and in the one before
	took    time.Duration // of the last flush
	full    uint64        // appends at which a waiting flush begins; 0 while none waits
	filled  bool          // the flush that runs has waited, and what was expected came
	misses  int           // waits in vain, less those that were not
	skip    int           // flushes until the next wait
}

// wait says how long a flush that could begin now waits, zero mostly. What it expects are the appends in flight in both
// of the last two rounds: one that was longer by chance costs nothing.
func (g *gather) wait() time.Duration {
	waiting, expected := g.appends-g.covered, min(g.last, g.before)
	if waiting == 0 || waiting >= expected {
		return 0
	}
	if g.skip > 0 {
		g.skip--
		return 0
	}
	g.full = g.covered + expected
	return min(g.took/2, gatherAtMost)
}

// appended counts a batch and says whether a flush waits for no more.
func (g *gather) appended() (full bool) {
	g.appends++
	full = g.full > 0 && g.appends >= g.full
	if full {
		g.full, g.filled = 0, true
	}
	return full
}

// begin is called when a flush begins, and returns what end wants.
func (g *gather) begin() (from uint64) {
	if g.full > 0 { // what was waited for has not come
		g.full = 0
		g.vain()
	}
	from = g.covered
	g.covered = g.appends
	return from
}

// end is called when the flush that began with from is over.
func (g *gather) end(from uint64, took time.Duration) {
	served, more := g.covered-from, g.appends-g.covered
	if g.filled && more > served/4 {
		g.vain()
	} else if g.filled {
		g.misses = max(g.misses-1, 0)
	}
	g.last, g.before, g.took, g.filled = served+more, g.last, took, false
}

func (g *gather) vain() {
	g.misses = min(g.misses+1, gatherDoubt)
	g.skip = 1 << g.misses
}

// awaitMore lets a flush wait for the appends that are expected, unless other logs want the same goroutine.
func (l *Log) awaitMore(line *turns) {
	if line.waits() {
		return
	}
	l.pos.Lock()
	wait := l.gather.wait()
	if wait > 0 {
		if l.gathered == nil {
			l.gathered, l.gatherTimer = make(chan struct{}, 1), time.NewTimer(wait)
		}
		select {
		case <-l.gathered: // came when an earlier wait had ended
		default:
		}
		l.gatherTimer.Reset(wait)
	}
	l.pos.Unlock()
	if wait == 0 {
		return
	}
	select {
	case <-l.gathered:
		l.gatherTimer.Stop()
	case <-l.gatherTimer.C:
	}
}
