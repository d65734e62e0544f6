package coordinator

import (
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// checkTxnID refuses what cannot be a transactional id: Kafka the empty one, Postgres one that no index holds.
func checkTxnID(id string) error {
	if id == "" || meta.CheckKey(id) != nil {
		return ErrInvalidRequest
	}
	return nil
}

// submitTxn hands a call to the shard of its transactional id.
func (g *Groups) submitTxn(id string, c *txnCall) {
	switch {
	case g.closing.Load():
		c.refuse(ErrNotCoordinator)
		return
	case checkTxnID(id) != nil:
		c.refuse(checkTxnID(id))
		return
	}
	s := g.shards[meta.ShardOf(id)]
	if err := s.box.offer(func(now time.Time) { s.handleTxn(now, id, c) }); err != nil {
		c.refuse(err)
	}
}

// InitProducer begins an incarnation of a producer: what an earlier one left open is aborted, with its markers, before
// done is called.
func (g *Groups) InitProducer(r InitTxnRequest, done func(InitTxnReply)) {
	c := &txnCall{fail: func(err error) { done(InitTxnReply{Err: err, ProducerID: -1, Epoch: -1}) }}
	s := g.shards[meta.ShardOf(r.ID)]
	c.run = func(_ time.Time, x *txnEntry) {
		s.beginTxn(x, func(now time.Time) {
			d := &deciding{x: x, call: c, timeout: r.Timeout, newID: -1}
			d.done = func() { done(InitTxnReply{ProducerID: x.row.ProducerID, Epoch: x.row.Epoch}) }
			if x.exists() {
				d.list = s.logs.Open(x.row.ProducerID)
			}
			var v verdict
			v, d.by = x.judgeInit(&r, d.open())
			x.newest[roleTxn] = max(x.newest[roleTxn], r.Connection)
			switch {
			case v.decide:
				s.decideTxn(now, d)
			case v.err != nil:
				s.dropTxn(now, d, v.err)
			default:
				c.answer(d.done)
				s.finishTxn(now, x)
			}
		})
	}
	g.submitTxn(r.ID, c)
}

// AddToTxn registers partitions or a group. It costs no Postgres work: after a restart the logs say what was added.
func (g *Groups) AddToTxn(r AddToTxnRequest, done func(error)) {
	c := &txnCall{fail: done}
	c.run = func(now time.Time, x *txnEntry) {
		x.gate.mu.Lock()
		err := x.judgeAdd(now, &r)
		x.gate.mu.Unlock()
		c.answer(func() { done(err) })
	}
	g.submitTxn(r.ID, c)
}

// EndTxn commits or aborts. The decision is durable and the markers are in the logs before done is called; readers see
// the transaction when the high watermark passes them.
func (g *Groups) EndTxn(r EndTxnRequest, done func(EndTxnReply)) {
	c := &txnCall{fail: func(err error) { done(EndTxnReply{Err: err, ProducerID: -1, Epoch: -1}) }}
	s := g.shards[meta.ShardOf(r.ID)]
	by := byEnd
	if r.Version >= 5 {
		by = byEndBump
	}
	c.run = func(_ time.Time, x *txnEntry) {
		s.beginTxn(x, func(now time.Time) {
			d := &deciding{x: x, call: c, by: by, commit: r.Commit, newID: -1}
			d.done = func() { done(EndTxnReply{ProducerID: x.row.ProducerID, Epoch: x.row.Epoch}) }
			if x.exists() {
				d.list = s.logs.Open(x.row.ProducerID)
			}
			switch v := x.judgeEnd(&r, d.open() || s.openWasDeleted(x)); {
			case v.decide:
				s.decideTxn(now, d)
			case v.err != nil:
				s.dropTxn(now, d, v.err)
			default:
				c.answer(d.done)
				s.finishTxn(now, x)
			}
		})
	}
	g.submitTxn(r.ID, c)
}

// CommitTxnOffsets adds offsets to a transaction. The group is asked first, then they are stored, durably, beside the
// transaction. Readers who want stable offsets are told to wait from the moment the group allows them.
func (g *Groups) CommitTxnOffsets(r TxnCommitRequest, done func(CommitReply)) {
	fail := func(err error) { done(CommitReply{Err: err}) }
	if err := checkTxnID(r.ID); err != nil {
		fail(err)
		return
	}
	c := &call{group: r.Group, immediate: true, answer: func(body any, err error) {
		if err != nil {
			fail(err)
			return
		}
		g.storeTxnOffsets(r, body.(CommitReply), done)
	}}
	if r.Group == "" {
		c.finish(nil, ErrInvalidGroupID)
		return
	}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.holdOffsets(now, e, c, &r) })
}

// storeTxnOffsets is the second half, at the shard of the transactional id.
func (g *Groups) storeTxnOffsets(r TxnCommitRequest, reply CommitReply, done func(CommitReply)) {
	home := g.shards[meta.ShardOf(r.Group)]
	var parts []TopicPartition
	for i, o := range r.Offsets {
		if reply.Offsets[i] == nil {
			parts = append(parts, TopicPartition{o.TopicID, o.Partition})
		}
	}
	settle := func(stored bool) {
		home.box.put(func(now time.Time) { home.settleOffsets(now, r.Group, r.ID, parts, stored) })
	}
	// The group's hold ends with the operation, not with the answer: what was given up may still be stored.
	c := &txnCall{}
	c.fail = func(err error) {
		if !c.begun {
			settle(false)
		}
		done(CommitReply{Err: err})
	}
	s := g.shards[meta.ShardOf(r.ID)]
	c.run = func(_ time.Time, x *txnEntry) {
		store := func(now time.Time) { s.storePending(now, x, c, &r, reply, settle, func() { done(reply) }) }
		if seededbug.On(seededbug.OffsetsBesideEnd) {
			s.later(x, store)
			return
		}
		s.beginTxn(x, store)
	}
	g.submitTxn(r.ID, c)
}

// DescribeTxns shows transactional ids, in the order asked for; all of them for nil, in no order.
func (g *Groups) DescribeTxns(ids []string, done func([]TxnDescription)) {
	if ids == nil {
		all := &gathering[[]TxnDescription]{left: len(g.shards), parts: make([][]TxnDescription, len(g.shards)), done: func(parts [][]TxnDescription, _ error) {
			var out []TxnDescription
			for _, p := range parts {
				out = append(out, p...)
			}
			done(out)
		}}
		for i, s := range g.shards {
			err := s.box.offer(func(time.Time) {
				var part []TxnDescription
				for _, x := range s.txns {
					if x.exists() {
						part = append(part, s.describeTxn(x))
					}
				}
				all.put(i, part, nil)
			})
			if err != nil {
				all.put(i, nil, nil)
			}
		}
		return
	}
	all := &gathering[TxnDescription]{left: len(ids), parts: make([]TxnDescription, len(ids)), done: func(parts []TxnDescription, _ error) { done(parts) }}
	if len(ids) == 0 {
		done(nil)
		return
	}
	for i, id := range ids {
		s := g.shards[meta.ShardOf(id)]
		err := s.box.offer(func(time.Time) {
			d := TxnDescription{ID: id, Err: ErrTxnNotFound, ProducerID: -1, Epoch: -1}
			switch x := s.txns[id]; {
			case id == "":
				d.Err = ErrInvalidRequest
			case !s.ours:
				d.Err = ErrNotCoordinator
			case x != nil && x.exists():
				d = s.describeTxn(x)
			}
			all.put(i, d, nil)
		})
		if err != nil {
			all.put(i, TxnDescription{ID: id, Err: err, ProducerID: -1, Epoch: -1}, nil)
		}
	}
}

// describeTxn looks into the logs for what is open.
func (s *shard) describeTxn(x *txnEntry) TxnDescription {
	d := TxnDescription{ID: x.id, ProducerID: x.row.ProducerID, Epoch: x.row.Epoch, Timeout: x.row.Timeout}
	for _, p := range s.logs.Open(x.row.ProducerID) {
		d.Partitions = append(d.Partitions, TopicPartition{p.TopicID, p.Partition})
	}
	for p := range x.added {
		if !slices.Contains(d.Partitions, p) {
			d.Partitions = append(d.Partitions, p)
		}
	}
	d.State = x.state(len(d.Partitions) > 0 || s.openWasDeleted(x))
	if d.State == "Ongoing" {
		d.Since = x.began()
	}
	return d
}

// openWasDeleted says whether the id has a transaction open of which nothing is left, because its topics were deleted.
// It was a transaction all the same, and its client may end it.
func (s *shard) openWasDeleted(x *txnEntry) bool {
	return x.exists() && !x.gate.firstWrite().IsZero() && s.logs.Gone(x.row.ProducerID)
}

// began is when what is open was first heard of, zero nothing is.
func (x *txnEntry) began() time.Time {
	wrote := x.gate.firstWrite()
	if x.since.IsZero() || !wrote.IsZero() && wrote.Before(x.since) {
		return wrote
	}
	return x.since
}
