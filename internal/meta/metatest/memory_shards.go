package metatest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func (m *Memory) guardShard(n int16, owner, term int32) (shard, error) {
	s, ok := m.db.shards[n]
	if !ok {
		return s, fmt.Errorf("no shard %d: Bootstrap comes first", n)
	}
	if s.Owner != owner || s.Term != term {
		return s, fmt.Errorf("shard %d: %w", n, meta.ErrFenced)
	}
	return s, nil
}

// LoadShards implements meta.ShardStore.
func (m *Memory) LoadShards(ctx context.Context, owner int32, shards []meta.Shard) (out map[int16]meta.ShardRows, err error) {
	err = m.do(ctx, "LoadShards", func() error {
		out = map[int16]meta.ShardRows{}
		for _, want := range shards {
			if _, err := m.guardShard(want.Shard, owner, want.Term); err != nil {
				return err
			}
			out[want.Shard] = m.shardRows(want.Shard)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (m *Memory) shardRows(n int16) (rows meta.ShardRows) {
	for _, g := range m.db.groups {
		if g.shard == n {
			rows.Groups = append(rows.Groups, g.row)
		}
	}
	for _, g := range m.db.members {
		if g.shard == n {
			rows.Members = append(rows.Members, cloneMember(g.row))
		}
	}
	for _, o := range m.db.offsets {
		if o.shard == n {
			rows.Offsets = append(rows.Offsets, o.row)
		}
	}
	m.transactionRows(n, &rows)
	slices.SortFunc(rows.Groups, func(a, b meta.GroupRow) int { return strings.Compare(a.Group, b.Group) })
	slices.SortFunc(rows.Members, func(a, b meta.MemberRow) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return strings.Compare(a.MemberID, b.MemberID)
	})
	slices.SortFunc(rows.Offsets, func(a, b meta.OffsetRow) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		if c := bytes.Compare(a.TopicID[:], b.TopicID[:]); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return rows
}

func cloneMember(r meta.MemberRow) meta.MemberRow {
	r.Assignment = slices.Clone(r.Assignment)
	r.Protocols = slices.Clone(r.Protocols)
	for i := range r.Protocols {
		r.Protocols[i].Metadata = slices.Clone(r.Protocols[i].Metadata)
	}
	if r.InstanceID != nil {
		id := *r.InstanceID
		r.InstanceID = &id
	}
	r.Consumer = r.Consumer.Clone()
	return r
}

// CommitShards implements meta.ShardStore.
func (m *Memory) CommitShards(ctx context.Context, owner int32, changes []meta.ShardChange) error {
	return m.do(ctx, "CommitShards", func() error {
		if err := meta.CheckShardChanges(changes); err != nil {
			return err
		}
		for _, c := range changes { // as in Postgres: fenced is told before stale
			if _, err := m.guardShard(c.Shard, owner, c.Term); err != nil {
				return err
			}
		}
		for _, c := range changes {
			s := m.db.shards[c.Shard]
			if s.Seq != c.Seq {
				return meta.ErrStale
			}
			s.Seq++
			put(m, m.db.shards, c.Shard, s)
		}
		for _, c := range changes {
			m.deleteRows(c)
		}
		for _, c := range changes {
			m.writeRows(c)
		}
		for _, c := range changes {
			if err := m.writeTransactions(c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *Memory) deleteRows(c meta.ShardChange) {
	for _, d := range c.DeletedGroups {
		for _, k := range slices.Collect(maps.Keys(m.db.members)) {
			if k.group == d.Group && m.db.members[k].row.Version <= d.Version {
				remove(m, m.db.members, k)
			}
		}
		for _, k := range slices.Collect(maps.Keys(m.db.offsets)) {
			if k.group == d.Group && m.db.offsets[k].row.Version <= d.Version {
				remove(m, m.db.offsets, k)
			}
		}
		if m.db.groups[d.Group].row.Version <= d.Version {
			remove(m, m.db.groups, d.Group)
		}
	}
	for _, d := range c.DeletedMembers {
		if k := (memberKey{d.Group, d.MemberID}); m.db.members[k].row.Version <= d.Version {
			remove(m, m.db.members, k)
		}
	}
	for _, d := range c.DeletedOffsets {
		if k := (offsetKey{d.Group, d.TopicID, d.Partition}); m.db.offsets[k].row.Version <= d.Version {
			remove(m, m.db.offsets, k)
		}
	}
}

func (m *Memory) writeRows(c meta.ShardChange) {
	for _, r := range c.Groups {
		r.EmptySince = meta.StoredTime(r.EmptySince)
		if old, ok := m.db.groups[r.Group]; !ok || old.row.Version < r.Version {
			put(m, m.db.groups, r.Group, stored[meta.GroupRow]{c.Shard, r})
		}
	}
	for _, r := range c.Members {
		k := memberKey{r.Group, r.MemberID}
		if old, ok := m.db.members[k]; !ok || old.row.Version < r.Version {
			put(m, m.db.members, k, stored[meta.MemberRow]{c.Shard, cloneMember(r)})
		}
	}
	for _, r := range c.Offsets {
		r.CommittedAt, r.ExpiresAt = meta.StoredTime(r.CommittedAt), meta.StoredTime(r.ExpiresAt)
		k := offsetKey{r.Group, r.TopicID, r.Partition}
		if old, ok := m.db.offsets[k]; !ok || old.row.Version < r.Version {
			put(m, m.db.offsets, k, stored[meta.OffsetRow]{c.Shard, r})
		}
	}
}

// ResolveShards implements meta.ShardStore.
func (m *Memory) ResolveShards(ctx context.Context, owner int32, changes []meta.ShardChange) (out []meta.Resolved, err error) {
	err = m.do(ctx, "ResolveShards", func() error {
		out = nil
		for _, c := range changes {
			s, err := m.guardShard(c.Shard, owner, c.Term)
			if err != nil {
				return err
			}
			r := meta.ResolveSeq(c, s.Seq)
			if r.Seq != s.Seq {
				s.Seq = r.Seq
				put(m, m.db.shards, c.Shard, s)
			}
			out = append(out, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
