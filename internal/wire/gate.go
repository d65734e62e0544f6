package wire

import (
	"sync"
	"time"
)

const (
	gateBurst = 20
	gateEvery = time.Second
)

// logGate lets gateBurst log lines pass, then one each gateEvery.
type logGate struct {
	mu         sync.Mutex
	tokens     float64
	last       time.Time
	suppressed int
}

// open says whether a line may be written now, and how many were not since the last one.
func (g *logGate) open(now time.Time) (ok bool, suppressed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last.IsZero() {
		g.tokens = gateBurst
	} else {
		g.tokens = min(gateBurst, g.tokens+float64(now.Sub(g.last))/float64(gateEvery))
	}
	g.last = now
	if g.tokens < 1 {
		g.suppressed++
		return false, 0
	}
	g.tokens--
	suppressed, g.suppressed = g.suppressed, 0
	return true, suppressed
}
