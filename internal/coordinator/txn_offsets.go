package coordinator

import (
	"errors"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// held is what open transactions have of one group's offsets. Whoever reads stable offsets waits for them.
type held struct {
	asked  map[TopicPartition]int             // being stored
	stored map[string]map[TopicPartition]bool // by transactional id
}

func (h *held) any() bool { return len(h.asked)+len(h.stored) > 0 }

func (h *held) has(p TopicPartition) bool {
	if h.asked[p] > 0 {
		return true
	}
	for _, parts := range h.stored {
		if parts[p] {
			return true
		}
	}
	return false
}

func (h *held) ask(parts []TopicPartition) {
	if h.asked == nil {
		h.asked = map[TopicPartition]int{}
	}
	for _, p := range parts {
		h.asked[p]++
	}
}

func (h *held) settle(id string, parts []TopicPartition, stored bool) {
	for _, p := range parts {
		if h.asked[p]--; h.asked[p] <= 0 {
			delete(h.asked, p)
		}
		if stored {
			h.store(id, p)
		}
	}
}

func (h *held) store(id string, p TopicPartition) {
	if h.stored == nil {
		h.stored = map[string]map[TopicPartition]bool{}
	}
	if h.stored[id] == nil {
		h.stored[id] = map[TopicPartition]bool{}
	}
	h.stored[id][p] = true
}

// unstable marks what is held, or leaves it out.
func (h *held) unstable(found []CommitOffset, leaveOut bool) []CommitOffset {
	kept := found[:0]
	for _, o := range found {
		if h.has(TopicPartition{o.TopicID, o.Partition}) {
			if leaveOut {
				continue
			}
			o.Offset, o.LeaderEpoch, o.Metadata, o.Err = -1, -1, "", ErrUnstableOffset
		}
		kept = append(kept, o)
	}
	return kept
}

// checkTxnCommit says whether the group takes offsets of a transaction from this client. Unlike a plain commit one is
// welcome while the group rebalances (KAFKA-9365), and without a member's name.
func checkTxnCommit(g *group, r *TxnCommitRequest) error {
	switch {
	case r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil:
		return nil
	case g != nil && g.consumers != nil:
		err := g.consumers.checkCommit(r.MemberID, r.Generation, 9)
		if errors.Is(err, ErrStaleEpoch) {
			return ErrIllegalGeneration
		}
		return err
	case g == nil && r.Generation < 0:
		return nil
	case g == nil:
		return ErrIllegalGeneration
	case r.Generation < 0 && g.state == empty:
		return nil
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	if r.Generation != g.generation && !seededbug.On(seededbug.AcceptWrongGeneration) {
		return ErrIllegalGeneration
	}
	return nil
}

// holdOffsets is the group's part of a TxnOffsetCommit: from here on readers of stable offsets wait.
func (s *shard) holdOffsets(now time.Time, e *entry, c *call, r *TxnCommitRequest) {
	if err := checkTxnCommit(e.g, r); err != nil {
		s.answer(c, nil, err)
		return
	}
	reply := CommitReply{Offsets: make([]error, len(r.Offsets))}
	var parts []TopicPartition
	for i, o := range r.Offsets {
		if !metadataFits(o.Metadata, s.cfg.metadataMax) {
			reply.Offsets[i] = ErrMetadataTooLarge
			continue
		}
		parts = append(parts, TopicPartition{o.TopicID, o.Partition})
	}
	e.held.ask(parts)
	if g := e.g; g != nil && g.consumers == nil && (g.state == stable || g.state == preparing) && r.MemberID != "" {
		g.keepAlive(now, r.MemberID)
	}
	s.answer(c, reply, nil)
}

// settleOffsets tells the group whether offsets that it allowed are stored.
func (s *shard) settleOffsets(now time.Time, group, id string, parts []TopicPartition, stored bool) {
	if !s.ours {
		return
	}
	e := s.entry(group)
	e.held.settle(id, parts, stored)
	s.touch(e, now)
	s.tidy(e)
}

// releaseOffsets ends what a transaction held of a group.
func (s *shard) releaseOffsets(now time.Time, group, id string) {
	if e := s.entries[group]; e != nil {
		delete(e.held.stored, id)
		s.touch(e, now)
		s.tidy(e)
	}
}

// storePending is the transaction's part of a TxnOffsetCommit, an operation of the id. settled is told whether the
// offsets are stored.
func (s *shard) storePending(now time.Time, x *txnEntry, c *txnCall, r *TxnCommitRequest, reply CommitReply, settled func(bool), done func()) {
	drop := func(now time.Time, err error) {
		settled(false)
		c.refuse(err)
		s.finishTxn(now, x)
	}
	if err := x.judgeOffsets(r); err != nil {
		drop(now, err)
		return
	}
	rows := map[groupPartition]meta.PendingOffsetRow{} // the last entry for a partition counts
	for i, o := range r.Offsets {
		if reply.Offsets[i] == nil {
			k := groupPartition{r.Group, TopicPartition{o.TopicID, o.Partition}}
			rows[k] = meta.PendingOffsetRow{ID: x.id, Group: r.Group, TopicID: o.TopicID, Partition: o.Partition, Offset: o.Offset,
				LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata, ProducerID: r.ProducerID, Epoch: r.Epoch}
		}
	}
	if len(rows) == 0 {
		settled(false)
		c.answer(done)
		s.finishTxn(now, x)
		return
	}
	o := &op{shard: s.id, deadline: now.Add(s.timeout), change: change{held: []meta.TransactionKey{{ID: x.id, Version: x.row.Version}}}}
	for _, row := range rows {
		o.change.pending = append(o.change.pending, row)
	}
	o.done = func(err error) {
		s.later(x, func(now time.Time) {
			switch {
			case errors.Is(err, meta.ErrRowMoved):
				settled(false)
				c.refuse(ErrLoading)
				s.reloadTxn(x)
			case errors.Is(err, ErrNotCoordinator):
				drop(now, err)
			case err != nil:
				drop(now, ErrLoading)
			default:
				for _, row := range o.change.pending {
					x.pending[groupPartition{row.Group, TopicPartition{row.TopicID, row.Partition}}] = row
				}
				if x.since.IsZero() {
					x.since = now
				}
				settled(true)
				c.answer(done)
				s.finishTxn(now, x)
			}
		})
	}
	if !s.committer.submit(o) {
		drop(now, ErrNotCoordinator)
	}
}

// moveOffsets makes a commit's pending offsets those of their groups, in the same transaction. Offsets of topics that
// are gone are dropped.
func (s *shard) moveOffsets(now time.Time, x *txnEntry, o *op) {
	byShard := map[int16]*change{}
	for k, p := range x.pending {
		if s.cfg.topicName != nil {
			if _, exists := s.cfg.topicName(p.TopicID); !exists {
				continue
			}
		}
		n := meta.ShardOf(k.group)
		if byShard[n] == nil {
			byShard[n] = &change{}
		}
		byShard[n].offsets = append(byShard[n].offsets, meta.OffsetRow{Group: k.group, TopicID: p.TopicID, Partition: p.Partition,
			Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, CommittedAt: now})
	}
	for n, c := range byShard {
		home := s.peers[n]
		rows := c.offsets // the same ones: they have their version when they are stored
		o.also = append(o.also, part{shard: n, change: *c, stored: func() {
			home.box.put(func(now time.Time) { home.takeOffsets(now, rows) })
		}})
	}
}

// takeOffsets puts offsets that a transaction committed into their groups.
func (s *shard) takeOffsets(now time.Time, rows []meta.OffsetRow) {
	if !s.ours {
		return
	}
	for _, row := range rows {
		e := s.entry(row.Group)
		if e.g == nil {
			e.g = newGroup(e.id, s.cfg)
			e.g.emptySince = now
		}
		e.offsets.apply(&change{offsets: []meta.OffsetRow{row}})
		s.touch(e, now)
		s.tidy(e)
	}
}
