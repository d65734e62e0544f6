package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

func (m *Memory) guardShard(n int16, owner, term int32) (shard, error) {
	s, ok := m.db.shards[n]
	if !ok {
		return s, fmt.Errorf("no shard %d: Bootstrap comes first", n)
	}
	if s.Term < term && !seededbug.On(seededbug.LowerTermDeposes) {
		return s, fmt.Errorf("shard %d: %w", n, meta.ErrForked)
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
	return m.commitShards(ctx, "CommitShards", owner, changes)
}

// CommitShardsRelaxed implements meta.ShardStore. Until a durable commit follows, Crash takes it back.
func (m *Memory) CommitShardsRelaxed(ctx context.Context, owner int32, changes []meta.ShardChange) error {
	if err := meta.CheckRelaxed(changes); err != nil {
		return err
	}
	return m.commitShards(ctx, relaxedCommit, owner, changes)
}

func (m *Memory) commitShards(ctx context.Context, method string, owner int32, changes []meta.ShardChange) error {
	return m.do(ctx, method, func() error {
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
		return m.write(changes)
	})
}

// write is in Postgres' order.
func (m *Memory) write(changes []meta.ShardChange) error {
	for _, step := range []func(meta.ShardChange) error{m.deleteRows, m.writeRows, m.writeTransactions} {
		for _, c := range changes {
			if err := step(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop removes a row up to a version; a newer one is somebody else's.
func drop[K comparable, R any](m *Memory, table map[K]stored[R], k K, is, upTo int64) error {
	if _, ok := table[k]; ok && is > upTo {
		return meta.ErrRowMoved
	}
	remove(m, table, k)
	return nil
}

func (m *Memory) deleteRows(c meta.ShardChange) error {
	var err error
	note := func(e error) { err = errors.Join(err, e) }
	for _, d := range c.DeletedGroups {
		for _, k := range slices.Collect(maps.Keys(m.db.members)) {
			if k.group == d.Group {
				note(drop(m, m.db.members, k, m.db.members[k].row.Version, d.Version))
			}
		}
		for _, k := range slices.Collect(maps.Keys(m.db.offsets)) {
			if k.group == d.Group {
				note(drop(m, m.db.offsets, k, m.db.offsets[k].row.Version, d.Version))
			}
		}
		note(drop(m, m.db.groups, d.Group, m.db.groups[d.Group].row.Version, d.Version))
	}
	for _, d := range c.DeletedMembers {
		k := memberKey{d.Group, d.MemberID}
		note(drop(m, m.db.members, k, m.db.members[k].row.Version, d.Version))
	}
	for _, d := range c.DeletedOffsets {
		k := offsetKey{d.Group, d.TopicID, d.Partition}
		note(drop(m, m.db.offsets, k, m.db.offsets[k].row.Version, d.Version))
	}
	return err
}

// replace writes a row over an older version of itself.
func replace[K comparable, R any](m *Memory, table map[K]stored[R], k K, shard int16, row R, version func(*R) int64) error {
	if old, ok := table[k]; ok && version(&old.row) >= version(&row) {
		return meta.ErrRowMoved
	}
	put(m, table, k, stored[R]{shard, row})
	return nil
}

func (m *Memory) writeRows(c meta.ShardChange) error {
	for _, r := range c.Groups {
		r.EmptySince = meta.StoredTime(r.EmptySince)
		if err := replace(m, m.db.groups, r.Group, c.Shard, r, func(r *meta.GroupRow) int64 { return r.Version }); err != nil {
			return err
		}
	}
	for _, r := range c.Members {
		k := memberKey{r.Group, r.MemberID}
		if err := replace(m, m.db.members, k, c.Shard, cloneMember(r), func(r *meta.MemberRow) int64 { return r.Version }); err != nil {
			return err
		}
	}
	for _, r := range c.Offsets {
		r.CommittedAt, r.ExpiresAt = meta.StoredTime(r.CommittedAt), meta.StoredTime(r.ExpiresAt)
		k := offsetKey{r.Group, r.TopicID, r.Partition}
		if err := replace(m, m.db.offsets, k, c.Shard, r, func(r *meta.OffsetRow) int64 { return r.Version }); err != nil {
			return err
		}
	}
	return nil
}

// ResolveShards implements meta.ShardStore.
func (m *Memory) ResolveShards(ctx context.Context, owner int32, shards []meta.Resolve) (out []meta.Resolved, err error) {
	err = m.do(ctx, "ResolveShards", func() error {
		out = nil
		for _, r := range shards {
			s, err := m.guardShard(r.Shard, owner, r.Term)
			if err != nil {
				return err
			}
			got, putBack := meta.ResolveSeq(r, s.Seq)
			if got.Seq != s.Seq {
				s.Seq = got.Seq
				put(m, m.db.shards, r.Shard, s)
			}
			if putBack {
				if err := m.write([]meta.ShardChange{meta.PutBack(r, m.shardRows(r.Shard), &got)}); err != nil {
					return err
				}
			}
			out = append(out, got)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
