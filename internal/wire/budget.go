package wire

import (
	"context"
	"sync"
)

// budget bounds the memory that received frames hold over all connections (queued.max.request.bytes).
//
// A frame takes its share in steps, as its bytes arrive. So that two half-received frames cannot wait for each
// other for ever, one frame at a time may overdraw: the first in line that already holds something. The bound is
// therefore max plus one frame.
type budget struct {
	max int64

	mu        sync.Mutex
	used      int64
	overdrawn *lease
	waiting   []*budgetWaiter
}

// lease is one frame's share.
type lease struct {
	budget *budget
	held   int64
}

type budgetWaiter struct {
	lease *lease
	n     int64
	ready chan struct{}
}

// take adds n bytes to the lease. If they are not free it calls beforeWait, when there is one, and waits until they
// are or ctx ends.
func (b *budget) take(ctx context.Context, l *lease, n int64, beforeWait func()) error {
	l.budget = b
	b.mu.Lock()
	if len(b.waiting) == 0 && b.grantLocked(l, n) {
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{lease: l, n: n, ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.wakeLocked()
	b.mu.Unlock()
	if beforeWait != nil {
		beforeWait()
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, x := range b.waiting {
		if x == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.wakeLocked()
			return ctx.Err()
		}
	}
	return nil // granted in the same moment
}

// grantLocked gives n bytes if they are free, if nothing is in use, or by the one overdraft.
func (b *budget) grantLocked(l *lease, n int64) bool {
	switch {
	case b.used+n <= b.max, b.used == 0, b.overdrawn == l:
	case b.overdrawn == nil && l.held > 0:
		b.overdrawn = l
	default:
		return false
	}
	b.used += n
	l.held += n
	return true
}

// wakeLocked serves the line. Those that hold something may pass those that do not: they are what the others
// wait for.
func (b *budget) wakeLocked() {
	if b.used <= b.max {
		b.overdrawn = nil
	}
	for again := true; again; {
		again = false
		for i, w := range b.waiting {
			if (i == 0 || w.lease.held > 0) && b.grantLocked(w.lease, w.n) {
				b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
				close(w.ready)
				again = true
				break
			}
		}
	}
}

// give returns all that the lease holds.
func (l *lease) give() { l.shrink(l.held) }

// shrink returns n bytes.
func (l *lease) shrink(n int64) {
	b := l.budget
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	l.held -= n
	if b.overdrawn == l && l.held == 0 {
		b.overdrawn = nil
	}
	b.wakeLocked()
}

// pressed says whether somebody waits for memory.
func (b *budget) pressed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
