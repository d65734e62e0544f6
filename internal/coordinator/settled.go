package coordinator

import (
	"context"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// unsettledRows bounds what is kept for Postgres: beyond it commits are durable ones, which need not be kept.
const unsettledRows = 200_000

// unsettled is what a shard has committed and a crash of Postgres could still take back: each row once, the last change of
// it counts. A change is settled, and forgotten here, when a synchronous commit that wrote has returned and had read its
// seq, or a later one. Nothing but the shard's seq says so: not a session, not a position in Postgres' log.
type unsettled struct {
	groups  map[string]kept[meta.GroupRow]
	members map[memberKey]kept[meta.MemberRow]
	offsets map[offsetKey]kept[meta.OffsetRow]
}

// kept is a row as it should be.
type kept[R any] struct {
	seq     int64 // under which it was committed
	version int64
	row     *R // nil: deleted
}

func (u *unsettled) rows() int { return len(u.groups) + len(u.members) + len(u.offsets) }

// add notes a change that made the shard's seq what it is. Deletes come first, as in Postgres.
func (u *unsettled) add(c *meta.ShardChange, seq int64) {
	if u.groups == nil {
		u.groups, u.members, u.offsets = map[string]kept[meta.GroupRow]{}, map[memberKey]kept[meta.MemberRow]{}, map[offsetKey]kept[meta.OffsetRow]{}
	}
	for _, k := range c.DeletedGroups {
		u.forgetGroup(k.Group)
		u.groups[k.Group] = kept[meta.GroupRow]{seq, k.Version, nil}
	}
	for _, k := range c.DeletedMembers {
		u.members[memberKey{k.Group, k.MemberID}] = kept[meta.MemberRow]{seq, k.Version, nil}
	}
	for _, k := range c.DeletedOffsets {
		u.offsets[offsetKey{k.Group, TopicPartition{k.TopicID, k.Partition}}] = kept[meta.OffsetRow]{seq, k.Version, nil}
	}
	for i := range c.Groups {
		u.groups[c.Groups[i].Group] = kept[meta.GroupRow]{seq, c.Groups[i].Version, &c.Groups[i]}
	}
	for i := range c.Members {
		m := &c.Members[i]
		u.members[memberKey{m.Group, m.MemberID}] = kept[meta.MemberRow]{seq, m.Version, m}
	}
	for i := range c.Offsets {
		o := &c.Offsets[i]
		u.offsets[offsetKey{o.Group, TopicPartition{o.TopicID, o.Partition}}] = kept[meta.OffsetRow]{seq, o.Version, o}
	}
}

// forgetGroup drops what a deleted group had; the group's deletion takes it along.
func (u *unsettled) forgetGroup(group string) {
	for k := range u.members {
		if k.group == group {
			delete(u.members, k)
		}
	}
	for k := range u.offsets {
		if k.group == group {
			delete(u.offsets, k)
		}
	}
}

// settle forgets what was committed up to seq.
func (u *unsettled) settle(seq int64) {
	dropUpTo(u.groups, seq)
	dropUpTo(u.members, seq)
	dropUpTo(u.offsets, seq)
	if u.rows() == 0 {
		*u = unsettled{}
	}
}

func dropUpTo[K comparable, R any](rows map[K]kept[R], seq int64) {
	for k, r := range rows {
		if r.seq <= seq {
			delete(rows, k)
		}
	}
}

// change is all of it, to be put back.
func (u *unsettled) change() (c meta.ShardChange) {
	for k, r := range u.groups {
		if r.row == nil {
			c.DeletedGroups = append(c.DeletedGroups, meta.GroupKey{Group: k, Version: r.version})
		} else {
			c.Groups = append(c.Groups, *r.row)
		}
	}
	for k, r := range u.members {
		if r.row == nil {
			c.DeletedMembers = append(c.DeletedMembers, meta.MemberKey{Group: k.group, MemberID: k.member, Version: r.version})
		} else {
			c.Members = append(c.Members, *r.row)
		}
	}
	for k, r := range u.offsets {
		if r.row == nil {
			c.DeletedOffsets = append(c.DeletedOffsets, meta.OffsetKey{Group: k.group, TopicID: k.TopicID, Partition: k.Partition, Version: r.version})
		} else {
			c.Offsets = append(c.Offsets, *r.row)
		}
	}
	return c
}

// Standing is how far the shards were when a renewal was sent.
type Standing struct {
	seq, settled [meta.Shards]int64
}

// Standing must be taken before a renewal is sent, and given to Renewed.
func (g *Groups) Standing() Standing { return g.committer.standing() }

// Renewed tells what a lease renewal, a synchronous commit that wrote, has read: it settles relaxed changes, and finds those
// that Postgres has lost, which are put back.
func (g *Groups) Renewed(sent Standing, seqs map[int16]int64) { g.committer.renewed(sent, seqs) }

// Retake goes on after the database went back, with the terms that were won since: everything that the shards hold is
// compared with what is stored, and put back. Groups keep their members; nobody notices.
func (g *Groups) Retake(shards []meta.Shard) {
	g.committer.retake(shards)
	for _, row := range shards {
		s := g.shards[row.Shard]
		s.box.put(func(time.Time) { s.term = max(s.term, row.Term) })
	}
}

// Unsettled says how many rows a crash of Postgres could take back now, if this process ended uncleanly as well, and how
// many shards are still to be compared with what is stored.
func (g *Groups) Unsettled() (rows, shards int) {
	c := g.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pipes {
		if p != nil {
			rows += p.missing.rows()
			if p.broken() {
				shards++
			}
		}
	}
	return rows, shards
}

// memory asks shards for all that they hold. What was settled before the call is in it.
func (g *Groups) memory(ctx context.Context, shards []int16) (map[int16]meta.ShardRows, error) {
	type answer struct {
		shard int16
		rows  meta.ShardRows
		ours  bool
	}
	answers := make(chan answer, len(shards))
	for _, n := range shards {
		s := g.shards[n]
		if !s.box.put(func(time.Time) { answers <- answer{n, s.rows(), s.ours} }) {
			return nil, ErrNotCoordinator
		}
	}
	out := make(map[int16]meta.ShardRows, len(shards))
	for range shards {
		select {
		case a := <-answers:
			if !a.ours {
				return nil, ErrNotCoordinator
			}
			out[a.shard] = a.rows
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, nil
}

// adopt hands over rows that somebody else has written.
func (g *Groups) adopt(shard int16, rows meta.ShardRows) {
	if s := g.shards[shard]; len(rows.Offsets) > 0 {
		s.box.put(func(now time.Time) { s.adopt(now, rows.Offsets) })
	}
}

// rows is everything that the shard stores, as it stores it.
func (s *shard) rows() (all meta.ShardRows) {
	for _, e := range s.entries {
		if e.row != nil {
			all.Groups = append(all.Groups, *e.row)
		}
		for _, m := range e.members {
			all.Members = append(all.Members, m)
		}
		for k, o := range e.offsets {
			all.Offsets = append(all.Offsets, meta.OffsetRow{Group: e.id, TopicID: k.TopicID, Partition: k.Partition, Offset: o.offset, LeaderEpoch: o.leaderEpoch,
				Metadata: o.metadata, CommittedAt: o.at, ExpiresAt: o.expires, Version: o.version})
		}
	}
	for _, x := range s.txns {
		if x.exists() {
			all.Transactions = append(all.Transactions, x.row)
		}
		for _, p := range x.pending {
			all.Pending = append(all.Pending, p)
		}
	}
	return all
}

// adopt takes offsets that somebody else has written: they have a version above ours.
func (s *shard) adopt(now time.Time, rows []meta.OffsetRow) {
	if !s.ours {
		return
	}
	for _, row := range rows {
		e := s.entry(row.Group)
		if e.offsets[TopicPartition{row.TopicID, row.Partition}].version < row.Version {
			s.takeOffsets(now, []meta.OffsetRow{row})
		}
		s.tidy(e)
	}
}

// keepRows notes what is stored now of a group: its row and its members' rows, as they are in Postgres. A row without a version was
// replaced by a later change of the same commit, which is noted after this one.
func (e *entry) keepRows(c *change) {
	for range c.deletedGroups {
		e.row, e.members = nil, nil
	}
	for _, k := range c.deletedMembers {
		delete(e.members, k.member)
	}
	for _, row := range c.groups {
		if row.Version > 0 {
			e.row = &row
		}
	}
	for _, m := range c.members {
		if m.Version > 0 {
			if e.members == nil {
				e.members = map[string]meta.MemberRow{}
			}
			e.members[m.MemberID] = m
		}
	}
}
