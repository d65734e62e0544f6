package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

const (
	markerRetry  = 500 * time.Millisecond // after a log refused a marker
	reloadRetry  = 500 * time.Millisecond // after a row could not be read again
	reapEvery    = time.Second            // how often timeouts are looked at
	newIDTimeout = 10 * time.Second       // of a new producer id
)

// txnEntry is all that a shard has of one transactional id. Operations (EndTxn, InitProducerId, TxnOffsetCommit, the
// reaper, the fence after a power cut) run one at a time; what comes meanwhile waits and is judged afresh.
type txnEntry struct {
	txn
	id     string
	gate   *txnGate
	busy   bool
	ending meta.Outcome // what the operation under way has decided, none before
	queue  []*txnCall
	now    *txnCall // whose turn it is
}

// txnCall is one request, or the broker's own wish, until it is answered.
type txnCall struct {
	run      func(now time.Time, x *txnEntry) // on the shard's goroutine, when no operation is under way
	fail     func(error)
	arrived  time.Time // zero: the broker's own wish
	begun    bool
	answered bool
	timer    *time.Timer
}

// answer calls f unless the call has been answered.
func (c *txnCall) answer(f func()) {
	if c.answered {
		return
	}
	c.answered = true
	if c.timer != nil {
		c.timer.Stop()
	}
	f()
}

func (c *txnCall) refuse(err error) { c.answer(func() { c.fail(err) }) }

// handleTxn runs a call when its turn comes.
func (s *shard) handleTxn(now time.Time, id string, c *txnCall) {
	if !s.ours {
		c.refuse(ErrNotCoordinator)
		return
	}
	x := s.txns[id]
	if x == nil {
		x = &txnEntry{txn: newTxn(id), id: id, gate: &txnGate{}}
		s.txns[id] = x
	}
	if x.busy && len(x.queue) >= s.queueMax {
		c.refuse(ErrConcurrentTxn)
		return
	}
	c.arrived = time.Now()
	c.timer = time.AfterFunc(s.timeout, func() {
		s.box.put(func(time.Time) {
			if c.begun {
				c.refuse(ErrLoading)
			} else {
				c.refuse(ErrConcurrentTxn)
			}
		})
	})
	x.queue = append(x.queue, c)
	s.nextTxn(now, x)
}

// nextTxn runs what waits, until one of it is an operation that takes time.
func (s *shard) nextTxn(now time.Time, x *txnEntry) {
	for !x.busy && len(x.queue) > 0 {
		c := x.queue[0]
		x.queue[0] = nil
		x.queue = x.queue[1:]
		if !c.answered {
			c.begun = true
			x.now = c
			c.run(now, x)
		}
	}
	if !x.busy && !x.exists() {
		delete(s.txns, x.id) // nothing came of it
	}
}

// beginTxn makes the call an operation: f runs when no append of the id is under way and none can begin. finishTxn ends it.
func (s *shard) beginTxn(x *txnEntry, f func(now time.Time)) {
	x.busy = true
	x.gate.lock(func() { s.later(x, f) })
}

// later runs f on the shard's goroutine, unless the shard was lost meanwhile.
func (s *shard) later(x *txnEntry, f func(now time.Time)) {
	s.box.put(func(now time.Time) {
		if s.txns[x.id] == x {
			f(now)
		}
	})
}

func (s *shard) finishTxn(now time.Time, x *txnEntry) {
	x.busy, x.ending = false, meta.OutcomeNone
	x.gate.unlock()
	s.nextTxn(now, x)
}

// deciding is one decision on its way.
type deciding struct {
	x       *txnEntry
	call    *txnCall
	by      decider
	commit  bool
	timeout time.Duration // of the id from now on, 0 as it is
	list    []meta.TransactionPartition
	newID   int64
	done    func() // answers the call; the row and its markers are written
	watch   stopwatch
}

// open says whether the decision is about anything.
func (d *deciding) open() bool { return len(d.list)+len(d.x.pending) > 0 }

// decideTxn takes a decision: flush what it is about and what the previous one was about, one durable commit, apply,
// markers, answer. d.list was taken with the gate held.
func (s *shard) decideTxn(now time.Time, d *deciding) {
	if d.open() {
		d.watch.start(&s.meter.txn)
	}
	if d.x.needsProducerID(d.by) && d.newID < 0 {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), newIDTimeout)
			defer cancel()
			id, err := s.newProducerID(ctx)
			s.later(d.x, func(now time.Time) {
				if err != nil {
					s.log.Warn("no producer id for a transactional id", "transactional_id", d.x.id, "err", err)
					s.dropTxn(now, d, ErrLoading)
					return
				}
				d.newID = id
				s.decideTxn(now, d)
			})
		}()
		return
	}
	flush := both(d.list, d.x.row.Partitions)
	if seededbug.On(seededbug.ForgetPreviousMarkers) {
		flush = d.list
	}
	if len(flush) == 0 || seededbug.On(seededbug.DecideBeforeFlush) || seededbug.On(seededbug.AbortWithoutFlush) && !d.commit {
		s.storeDecision(now, d)
		return
	}
	s.logs.Flush(flush, func(err error) {
		s.later(d.x, func(now time.Time) {
			if err != nil {
				s.log.Warn("a transaction cannot be decided: a log is not durable", "transactional_id", d.x.id, "err", err)
				s.dropTxn(now, d, ErrLoading)
				return
			}
			s.storeDecision(now, d)
		})
	})
}

// dropTxn ends an operation that changed nothing.
func (s *shard) dropTxn(now time.Time, d *deciding, err error) {
	d.failed()
	d.call.refuse(err)
	s.finishTxn(now, d.x)
}

func (s *shard) storeDecision(now time.Time, d *deciding) {
	d.watch.ended(phaseFlush)
	x := d.x
	row := x.decision(d.by, d.commit, d.list, d.open(), d.newID, s.term)
	row.UsedAt = meta.StoredTime(now)
	if d.timeout > 0 {
		row.Timeout = d.timeout
	}
	if d.open() || d.by == byEnd || d.by == byEndBump {
		x.ending = outcomeOf(d.commit)
	}
	if seededbug.On(seededbug.MarkersBeforeDecision) && len(row.Partitions) > 0 {
		s.logs.End((&txn{row: row}).markers(s.term), func(error) {})
	}
	o := &op{shard: s.id, deadline: now.Add(s.timeout), change: change{transactions: []meta.TransactionRow{row}}}
	if len(x.pending) > 0 {
		o.change.endedPending = []string{x.id}
		if d.commit {
			s.moveOffsets(now, x, o)
		}
	}
	o.done = func(err error) { s.later(x, func(now time.Time) { s.decided(now, d, &o.change.transactions[0], err) }) }
	if !s.committer.submit(o) {
		s.dropTxn(now, d, ErrNotCoordinator)
	}
}

// decided applies a decision that is stored, or drops one that surely is not.
func (s *shard) decided(now time.Time, d *deciding, row *meta.TransactionRow, err error) {
	x := d.x
	switch {
	case errors.Is(err, meta.ErrRowMoved):
		d.call.refuse(ErrLoading)
		s.reloadTxn(x)
		return
	case errors.Is(err, ErrNotCoordinator):
		s.dropTxn(now, d, err)
		return
	case err != nil:
		s.dropTxn(now, d, ErrLoading)
		return
	}
	groups := map[string]bool{}
	for k := range x.pending {
		groups[k.group] = true
	}
	for g := range groups {
		s.peers[meta.ShardOf(g)].box.put(func(now time.Time) { s.peers[meta.ShardOf(g)].releaseOffsets(now, g, x.id) })
	}
	x.gate.mu.Lock()
	x.row = *row
	x.known = true
	x.forget()
	x.gate.mu.Unlock()
	x.gate.show(&x.txn, true)
	s.gates.Store(x.id, x.gate)
	d.watch.ended(phasePostgres)
	s.mark(now, d)
}

// mark writes the markers until every log has taken its own. Only then is the id free: the next decision's list must
// not meet what this one has left open.
func (s *shard) mark(now time.Time, d *deciding) {
	if len(d.x.row.Partitions) == 0 {
		d.finish()
		d.call.answer(d.done)
		s.finishTxn(now, d.x)
		return
	}
	if seededbug.On(seededbug.AnswerBeforeMarkers) {
		late := d.x.markers(s.term)
		time.AfterFunc(seededbug.Late, func() { s.logs.End(late, func(error) {}) })
		d.call.answer(d.done)
		s.finishTxn(now, d.x)
		return
	}
	s.logs.End(d.x.markers(s.term), func(err error) {
		s.later(d.x, func(now time.Time) {
			if err == nil {
				d.finish()
				d.call.answer(d.done)
				s.finishTxn(now, d.x)
				return
			}
			s.log.Error("a marker could not be written; it is tried again", "transactional_id", d.x.id, "err", err)
			d.call.refuse(ErrLoading)
			time.AfterFunc(markerRetry, func() { s.later(d.x, func(now time.Time) { s.mark(now, d) }) })
		})
	})
}

// reloadTxn reads a row again that somebody else has written.
func (s *shard) reloadTxn(x *txnEntry) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeCallMax)
		defer cancel()
		rows, err := s.committer.store.LoadShards(ctx, s.committer.owner, []meta.Shard{{Shard: s.id, Term: s.term}})
		s.later(x, func(now time.Time) {
			if err != nil {
				time.AfterFunc(reloadRetry, func() { s.reloadTxn(x) })
				return
			}
			s.log.Warn("the row of a transactional id was written by somebody else and is read again", "transactional_id", x.id)
			fresh := newTxn(x.id)
			fresh.newest = x.newest
			for _, row := range rows[s.id].Transactions {
				if row.ID == x.id {
					fresh.row = row
				}
			}
			for _, p := range rows[s.id].Pending {
				if p.ID == x.id {
					fresh.pending[groupPartition{p.Group, TopicPartition{p.TopicID, p.Partition}}] = p
				}
			}
			fresh.since = now
			x.txn = fresh
			x.gate.show(&x.txn, false)
			s.finishOthers(now, x)
		})
	}()
}

// finishOthers ends an operation that has met a decision which somebody else took (decided_by): it counts like one of
// ours, so its markers are written where they are missing before anything else happens to the id.
func (s *shard) finishOthers(now time.Time, x *txnEntry) {
	if x.row.Outcome == meta.OutcomeNone || len(x.row.Partitions) == 0 {
		s.finishTxn(now, x)
		return
	}
	s.logs.End(x.markers(s.term), func(err error) {
		s.later(x, func(now time.Time) {
			if err == nil {
				s.finishTxn(now, x)
				return
			}
			s.log.Error("a marker could not be written; it is tried again", "transactional_id", x.id, "err", err)
			time.AfterFunc(markerRetry, func() { s.later(x, func(now time.Time) { s.finishOthers(now, x) }) })
		})
	})
}

// loadTxns takes over the rows of transactions. Nothing is known of what was added, and timeouts begin now.
func (s *shard) loadTxns(now time.Time, rows meta.ShardRows) {
	for _, row := range rows.Transactions {
		x := &txnEntry{txn: newTxn(row.ID), id: row.ID, gate: &txnGate{}}
		x.row = row
		s.txns[row.ID] = x
	}
	for _, p := range rows.Pending {
		if x := s.txns[p.ID]; x != nil && !seededbug.On(seededbug.LosePendingOffsets) {
			x.pending[groupPartition{p.Group, TopicPartition{p.TopicID, p.Partition}}] = p
		}
	}
	for _, x := range s.txns {
		x.since = now
		x.gate.show(&x.txn, false)
		s.gates.Store(x.id, x.gate)
	}
}

// loseTxns forgets all transactional ids.
func (s *shard) loseTxns() {
	for id, x := range s.txns {
		s.gates.Delete(id)
		x.gate.lose()
		if x.busy {
			x.now.refuse(ErrNotCoordinator)
		}
		for _, c := range x.queue {
			c.refuse(ErrNotCoordinator)
		}
	}
	s.txns = map[string]*txnEntry{}
}
