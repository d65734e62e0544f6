package coordinator

import (
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// pipe is one shard's way to Postgres.
type pipe struct {
	shard   int16
	term    int32
	seq     int64 // known to be in Postgres
	version int64 // highest that a row of the shard has
	queue   []*op
	busy    bool // has a transaction under way

	settled int64     // the highest seq that no crash of Postgres can take back
	missing unsettled // what was answered above that
	recheck bool      // a renewal has seen a lower seq than the known one
	full    bool      // everything must be compared and put back: the database went back
}

// broken says that commits of the shard wait until Postgres has again what it had.
func (p *pipe) broken() bool { return p.recheck || p.full }

func (p *pipe) settle(seq int64) {
	if seq > p.settled {
		p.settled = seq
		p.missing.settle(seq)
	}
}

// ready says whether the shard has something for a transaction of this class, and nothing under way. Whatever waits
// with a durable decision goes with it.
func (p *pipe) ready(class durability, allDurable bool) bool {
	if p == nil || p.busy || p.broken() || len(p.queue) == 0 {
		return false
	}
	isDurable := allDurable || slices.ContainsFunc(p.queue, func(o *op) bool { return o.durable })
	return isDurable == (class == durable)
}

// sending is one shard's part of a transaction under way.
type sending struct {
	pipe    *pipe
	ops     []*op
	change  meta.ShardChange
	version int64
}

func (p *pipe) dropLate(now time.Time) []*op {
	var late []*op
	kept := p.queue[:0]
	for _, o := range p.queue {
		if now.After(o.deadline) {
			late = append(late, o)
		} else {
			kept = append(kept, o)
		}
	}
	clear(p.queue[len(kept):])
	p.queue = kept
	return late
}

// taking gathers one transaction from the queues of several shards.
type taking struct {
	pipes  *[meta.Shards]*pipe
	budget int // rows that still fit
	parts  []*sending
	by     map[int16]*sending
	full   bool // has a decision that shares with nobody
}

// take moves the front of a shard's queue into the transaction, up to a decision that cannot be part of it now.
func (t *taking) take(p *pipe) {
	for len(p.queue) > 0 && t.budget > 0 && !t.full {
		o := p.queue[0]
		if o.solo && len(t.parts) > 0 || !t.canSpan(o) {
			return
		}
		p.queue[0] = nil
		p.queue = p.queue[1:]
		t.put(p, o)
		for i := range o.also {
			a := &o.also[i]
			t.put(t.pipes[a.shard], &op{shard: a.shard, change: a.change, solo: o.solo, shadow: true, done: func(error) { a.stored() }})
		}
		t.full = o.solo
	}
	if len(p.queue) == 0 {
		p.queue = nil
	}
}

// canSpan says whether all other shards of a decision are free, or in the transaction already.
func (t *taking) canSpan(o *op) bool {
	for i := range o.also {
		if p := t.pipes[o.also[i].shard]; p == nil || p.broken() || p.busy && t.by[p.shard] == nil {
			return false
		}
	}
	return true
}

func (t *taking) put(p *pipe, o *op) {
	s := t.by[p.shard]
	if s == nil {
		s = &sending{pipe: p}
		p.busy = true
		t.by[p.shard] = s
		t.parts = append(t.parts, s)
	}
	t.budget -= o.change.rows()
	s.ops = append(s.ops, o)
}

// touch commits nothing but the seq of a shard.
func (t *taking) touch(p *pipe) {
	p.busy = true
	t.by[p.shard] = &sending{pipe: p}
	t.parts = append(t.parts, t.by[p.shard])
}

// seal makes the rows of a shard's part.
func (s *sending) seal() {
	p := s.pipe
	set := newRowSet()
	for _, o := range s.ops {
		set.add(&o.change)
	}
	s.version = max(p.seq, p.version) + 1
	s.change = meta.ShardChange{Shard: p.shard, Term: p.term, Seq: p.seq}
	set.fill(&s.change, s.version)
}
