package segstore

import "container/heap"

// waiter is one Watch that has not fired.
type waiter struct {
	offset int64
	wake   func()
	kind   Bound
	place  int // in its heap, -1 fired or cancelled
}

// waiters is a heap of one kind, the lowest offset first.
type waiters []*waiter

func (w waiters) Len() int           { return len(w) }
func (w waiters) Less(i, j int) bool { return w[i].offset < w[j].offset }
func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

// Push is for container/heap.
func (w *waiters) Push(x any) {
	x.(*waiter).place = len(*w)
	*w = append(*w, x.(*waiter))
}

// Pop is for container/heap.
func (w *waiters) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	x.place = -1
	return x
}

// Watch calls wake once, from any goroutine, when the offset named by kind is
// >= offset, or the log failed, closed or was deleted; at once, before Watch
// returns, if that holds already. cancel is idempotent; after it wake may still
// be running, but will not begin.
func (l *Log) Watch(kind Bound, offset int64, wake func()) (cancel func()) {
	l.pos.Lock()
	if l.boundLocked(kind) >= offset || l.err != nil || l.closed {
		l.pos.Unlock()
		wake()
		return func() {}
	}
	w := &waiter{offset: offset, wake: wake, kind: kind}
	heap.Push(&l.waiting[kind], w)
	l.pos.Unlock()
	return func() {
		l.pos.Lock()
		defer l.pos.Unlock()
		if w.place >= 0 {
			heap.Remove(&l.waiting[kind], w.place)
		}
	}
}

func (l *Log) boundLocked(kind Bound) int64 {
	switch kind {
	case BoundStable:
		return l.stable
	case BoundHigh:
		return l.high
	case BoundEnd:
		return l.end
	default:
		return l.durable
	}
}

// dueLocked takes the waiters whose offset is reached (all of them once the
// log failed or closed) off the heaps; the caller wakes them without locks.
func (l *Log) dueLocked() (due []*waiter) {
	over := l.err != nil || l.closed
	for kind := range l.waiting {
		h := &l.waiting[kind]
		at := l.boundLocked(Bound(kind))
		for len(*h) > 0 && (over || (*h)[0].offset <= at) {
			due = append(due, heap.Pop(h).(*waiter))
		}
	}
	return due
}

func wakeAll(due []*waiter) {
	for _, w := range due {
		w.wake()
	}
}
