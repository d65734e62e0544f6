package coordinator

import (
	"container/heap"
	"time"
)

// wakeHeap orders the groups of a shard by when they want to be told the time.
type wakeHeap []*entry

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].wake.Before(h[j].wake) }
func (h wakeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *wakeHeap) Push(x any)        { e := x.(*entry); e.index = len(*h); *h = append(*h, e) }
func (h *wakeHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}

// touch notes a group's next deadline. Heartbeats need no touch: they only move deadlines away, and a group that is
// woken too early is asked again.
func (s *shard) touch(e *entry, now time.Time) {
	var next time.Time
	if e.g != nil && !e.busy && s.ours {
		next = e.g.deadline()
	}
	switch {
	case next.IsZero() && e.index >= 0:
		heap.Remove(&s.wakes, e.index)
	case next.IsZero():
	case e.index >= 0:
		e.wake = next
		heap.Fix(&s.wakes, e.index)
	default:
		e.wake = next
		heap.Push(&s.wakes, e)
	}
}

// fire does what is due and returns after how long to look again.
func (s *shard) fire(now time.Time) time.Duration {
	s.giveUp(now)
	next := now.Add(time.Hour)
	if len(s.waiting) > 0 {
		next = earliest(next, s.waiting[0].deadline)
	}
	if !s.ours || s.closed {
		return max(next.Sub(now), 0)
	}
	frozen, epoch := s.health.judge(now)
	if epoch != s.epoch {
		s.epoch = epoch
		s.restartTimers(now)
	}
	if frozen {
		if len(s.wakes) > 0 && !s.wakes[0].wake.After(now) {
			next = earliest(next, now.Add(tickEvery))
		} else if len(s.wakes) > 0 {
			next = earliest(next, s.wakes[0].wake)
		}
		return max(next.Sub(now), 0)
	}
	for len(s.wakes) > 0 && !s.wakes[0].wake.After(now) {
		s.tick(now, s.wakes[0])
	}
	if s.reaping && len(s.txns) > 0 {
		if !s.nextReap.After(now) {
			s.nextReap = now.Add(reapEvery)
			s.reapTxns(now)
		}
		next = earliest(next, s.nextReap)
	}
	if !s.nextSweep.After(now) {
		s.nextSweep = now.Add(s.sweep)
		s.sweepOffsets(now)
	}
	if len(s.wakes) > 0 {
		next = earliest(next, s.wakes[0].wake)
	}
	return max(earliest(next, s.nextSweep).Sub(now), 0)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// giveUp answers requests that have waited for Postgres long enough. What they asked for may still be stored, if its
// transaction is under way; it is never begun after this.
func (s *shard) giveUp(now time.Time) {
	for len(s.waiting) > 0 {
		c := s.waiting[0]
		if c.onStore && !c.answered {
			if c.deadline.After(now) {
				return
			}
			s.answer(c, nil, ErrNotAvailable)
		}
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
	}
}

// restartTimers gives every member of every group its full time again.
func (s *shard) restartTimers(now time.Time) {
	for _, e := range s.entries {
		if e.g != nil {
			e.g.restartTimers(now)
		}
		if e.next != nil {
			e.next.restartTimers(now)
		}
		s.touch(e, now)
	}
}

// tick lets a group end what has run out of time.
func (s *shard) tick(now time.Time, e *entry) {
	if at := e.g.deadline(); at.IsZero() || at.After(now) {
		s.touch(e, now) // heartbeats have moved it
		return
	}
	next := e.g.clone()
	var out outcome
	next.tick(now, &out)
	s.settle(now, e, next, &out, nil) // which sets the time to look again, later if nothing can be stored
	s.tidy(e)
}

// sweepOffsets removes expired offsets and groups that have nothing left. A group with commits on their way is left
// for the next time, since they may be for the same partitions.
func (s *shard) sweepOffsets(now time.Time) {
	for _, e := range s.entries {
		if e.g == nil || e.busy || e.onWay > 0 || e.held.any() {
			continue
		}
		c := expired(now, e.g, e.offsets)
		if c.isEmpty() {
			continue
		}
		o := &op{entry: e, change: c}
		if len(c.deletedGroups) > 0 {
			e.busy, e.next = true, e.g
			o.next = e.g
			s.report(e.id, []note{{text: "group expired", generation: e.g.generation, matters: true}})
		}
		s.touch(e, now)
		s.submit(now, o)
	}
}
