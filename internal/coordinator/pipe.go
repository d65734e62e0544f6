package coordinator

import (
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

// take turns the front of the queue into the shard's part of a transaction.
func (p *pipe) take(budget *int) *sending {
	n := 0
	for n < len(p.queue) && *budget > 0 && (n == 0 || !p.queue[n].solo) {
		*budget -= p.queue[n].change.rows()
		n++
		if p.queue[n-1].solo {
			break
		}
	}
	if n == 0 {
		return nil
	}
	s := &sending{pipe: p, ops: append([]*op(nil), p.queue[:n]...)}
	p.queue = append([]*op(nil), p.queue[n:]...)
	p.busy = true
	set := newRowSet()
	for _, o := range s.ops {
		set.add(&o.change)
	}
	s.version = max(p.seq, p.version) + 1
	s.change = meta.ShardChange{Shard: p.shard, Term: p.term, Seq: p.seq}
	set.fill(&s.change, s.version)
	return s
}
