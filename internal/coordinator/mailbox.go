package coordinator

import (
	"sync"
	"time"
)

// mailbox holds what a shard has yet to do, in order. It is bounded for clients and never full for the committer.
type mailbox struct {
	mu     sync.Mutex
	items  []func(now time.Time)
	limit  int
	closed bool
	signal chan struct{} // capacity 1: something is there
}

func newMailbox(limit int) *mailbox {
	return &mailbox{limit: limit, signal: make(chan struct{}, 1)}
}

// offer adds work of a client unless the box is full or closed.
func (b *mailbox) offer(f func(now time.Time)) error {
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return ErrNotCoordinator
	case len(b.items) >= b.limit:
		b.mu.Unlock()
		return ErrNotAvailable
	}
	b.items = append(b.items, f)
	b.mu.Unlock()
	b.wake()
	return nil
}

// put adds work of our own, beyond the limit; false when the box is closed.
func (b *mailbox) put(f func(now time.Time)) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.items = append(b.items, f)
	b.mu.Unlock()
	b.wake()
	return true
}

// take empties the box.
func (b *mailbox) take() []func(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

// close refuses everything from now on and returns what was left.
func (b *mailbox) close() []func(now time.Time) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.take()
}

func (b *mailbox) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}
