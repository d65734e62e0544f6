package segstore

import "container/heap"

// Waiter is one wait for an offset of a log. It is the caller's memory, so that a fetch of many partitions gets all of
// its waiters at once; it may not move until it has fired or Cancel returned, and serves one Watch.
type Waiter struct {
	log    *Log // nil: never registered
	offset int64
	wake   func()
	kind   Bound
	place  int     // in its heap, -1 fired or cancelled
	next   *Waiter // of those that are to be woken
}

// waiters is a heap of one kind, the lowest offset first.
type waiters []*Waiter

func (w waiters) Len() int           { return len(w) }
func (w waiters) Less(i, j int) bool { return w[i].offset < w[j].offset }
func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

// Push is for container/heap.
func (w *waiters) Push(x any) {
	x.(*Waiter).place = len(*w)
	*w = append(*w, x.(*Waiter))
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
	w := new(Waiter)
	l.WatchWith(w, kind, offset, wake)
	return w.Cancel
}

// WatchWith is Watch with the caller's waiter, which has not been used before.
func (l *Log) WatchWith(w *Waiter, kind Bound, offset int64, wake func()) {
	l.pos.Lock()
	if l.boundLocked(kind) >= offset || l.err != nil || l.closed {
		l.pos.Unlock()
		wake()
		return
	}
	*w = Waiter{log: l, offset: offset, wake: wake, kind: kind}
	heap.Push(&l.waiting[kind], w)
	l.pos.Unlock()
}

// Cancel ends the wait, if it has not ended. wake may still be running after
// it, but will not begin.
func (w *Waiter) Cancel() {
	if w.log == nil {
		return
	}
	w.log.pos.Lock()
	defer w.log.pos.Unlock()
	if w.place >= 0 {
		heap.Remove(&w.log.waiting[w.kind], w.place)
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

// pending is what others have to be told once the caller holds no lock.
type pending struct {
	first, last *Waiter // to be woken in this order, each linked to its next
	failed      error   // the log failed for good
	moved       bool    // End or Durable moved
}

func (p *pending) add(w *Waiter) {
	if p.last == nil {
		p.first = w
	} else {
		p.last.next = w
	}
	p.last = w
}

// noteLocked takes the waiters whose offset is reached (all of them once the
// log failed or closed) off the heaps, for tell. The caller holds pos.
func (l *Log) noteLocked() {
	over := l.err != nil || l.closed
	for kind := range l.waiting {
		h := &l.waiting[kind]
		at := l.boundLocked(Bound(kind))
		for len(*h) > 0 && (over || (*h)[0].offset <= at) {
			l.pending.add(heap.Pop(h).(*Waiter))
		}
	}
}

// tell wakes waiters, calls OnProgress and reports a failure, whoever noted
// them. Every method that may have noted something ends with it, without locks.
func (l *Log) tell() {
	l.pos.Lock()
	p, progress := l.pending, l.progress
	l.pending = pending{}
	l.pos.Unlock()
	if p.failed != nil {
		l.store.log.Error("log failed", "topic", l.topic, "partition", l.partition, "err", p.failed)
		if o := l.store.observer; o != nil {
			o.Failed(l.topic, l.partition, p.failed)
		}
	}
	for w := p.first; w != nil; {
		next := w.next // the waiter is its caller's again once it has been woken
		w.wake()
		w = next
	}
	if p.moved && progress != nil {
		progress()
	}
}
