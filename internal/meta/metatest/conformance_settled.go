package metatest

import (
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// offsetOf is a row of group g.
func offsetOf(partition int32, offset, version int64) meta.OffsetRow {
	return meta.OffsetRow{Group: "g", TopicID: id(1), Partition: partition, Offset: offset, LeaderEpoch: -1, CommittedAt: committed, Version: version}
}

func keyOf(partition int32, version int64) meta.OffsetKey {
	return meta.OffsetKey{Group: "g", TopicID: id(1), Partition: partition, Version: version}
}

func (s *suite) resolve(r meta.Resolve) meta.Resolved {
	s.Helper()
	got, err := s.store.ResolveShards(s.ctx, 1, []meta.Resolve{r})
	s.ok(err)
	return got[0]
}

// Cases of transactions.md's rules B: how a shard that Postgres has taken back gets its rows again.
var settledCases = []suiteCase{
	{"a relaxed commit is one like any other", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Groups, c.Offsets = []meta.GroupRow{groupRow}, []meta.OffsetRow{offsetRow}
		s.ok(s.store.CommitShardsRelaxed(s.ctx, 1, []meta.ShardChange{c}))
		s.is(s.store.CommitShardsRelaxed(s.ctx, 1, []meta.ShardChange{c}), meta.ErrStale)
		equal(s, "rows", text(s.load(shards[0])[0]), text(meta.ShardRows{Groups: c.Groups, Offsets: c.Offsets}))
		deposed := c
		deposed.Seq, deposed.Term = 1, c.Term-1
		s.is(s.store.CommitShardsRelaxed(s.ctx, 1, []meta.ShardChange{deposed}), meta.ErrFenced)
		for _, durable := range []meta.ShardChange{
			{Shard: 0, Term: c.Term, Seq: 1, Transactions: []meta.TransactionRow{freshTransaction}},
			{Shard: 0, Term: c.Term, Seq: 1, HeldTransactions: []meta.TransactionKey{{ID: "x"}}},
			{Shard: 0, Term: c.Term, Seq: 1, Pending: []meta.PendingOffsetRow{pendingRow}},
			{Shard: 0, Term: c.Term, Seq: 1, EndedPending: []meta.TransactionKey{{ID: "x"}}},
		} {
			s.is(s.store.CommitShardsRelaxed(s.ctx, 1, []meta.ShardChange{durable}), meta.ErrInvalid)
		}
	}},
	{"what is missing below the known seq is put back, with its deletes", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Groups, c.Members = []meta.GroupRow{groupRow}, []meta.MemberRow{fullRow, bareRow}
		c.Offsets = []meta.OffsetRow{offsetOf(0, 10, 1), offsetOf(1, 10, 1), offsetOf(2, 10, 1<<32)} // the last is somebody else's
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		r := meta.Resolve{Shard: 0, Term: c.Term, Seq: 4, Settled: 1, Missing: meta.ShardChange{
			Offsets:        []meta.OffsetRow{offsetOf(0, 11, 3), offsetOf(2, 11, 4), offsetOf(3, 11, 4)},
			DeletedMembers: []meta.MemberKey{{Group: "g", MemberID: "m2", Version: 3}}, DeletedOffsets: []meta.OffsetKey{keyOf(1, 4)},
		}}
		got := s.resolve(r)
		equal(s, "seq", got.Seq, 6)
		equal(s, "took effect", got.TookEffect, false)
		equal(s, "put back", got.PutBack, 2)
		equal(s, "found", len(got.Found.Offsets), 1)
		equal(s, "found offset", got.Found.Offsets[0].Partition, 2)
		want := meta.ShardRows{Groups: c.Groups, Members: []meta.MemberRow{fullRow}, Offsets: []meta.OffsetRow{offsetOf(0, 11, 3), offsetOf(2, 10, 1<<32), offsetOf(3, 11, 4)}}
		equal(s, "rows", text(s.load(shards[0])[0]), text(want))
		again := s.resolve(r) // its answer was lost
		equal(s, "seq of the same once more", again.Seq, 6)
		equal(s, "put back once more", again.PutBack, 0)
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: 6}}))
	}},
	{"nothing is put back where nothing is missing", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Offsets = []meta.OffsetRow{offsetOf(0, 10, 1)}
		s.ok(s.store.CommitShardsRelaxed(s.ctx, 1, []meta.ShardChange{c}))
		missing := meta.ShardChange{Offsets: []meta.OffsetRow{offsetOf(0, 99, 5)}}
		got := s.resolve(meta.Resolve{Shard: 0, Term: c.Term, Seq: 1, Missing: missing})
		equal(s, "seq", got.Seq, 1)
		got = s.resolve(meta.Resolve{Shard: 0, Term: c.Term, Seq: 0, Unknown: true, Missing: missing})
		equal(s, "took effect", got.TookEffect, true)
		got = s.resolve(meta.Resolve{Shard: 0, Term: c.Term, Seq: 1, Unknown: true, Missing: missing}) // nothing but the unknown commit is missing
		equal(s, "seq after a commit that did not happen", got.Seq, 3)
		equal(s, "offset", s.load(shards[0])[0].Offsets[0].Offset, 10)
	}},
	{"less than what was settled asks for everything", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		other := groupRow
		other.Group, other.Version = "forgotten delete", 1
		c.Groups, c.Members, c.Offsets = []meta.GroupRow{groupRow, other}, []meta.MemberRow{bareRow}, []meta.OffsetRow{offsetOf(0, 10, 1), offsetOf(1, 10, 1), offsetOf(2, 77, 1<<33)}
		c.Transactions, c.Pending = []meta.TransactionRow{freshTransaction}, []meta.PendingOffsetRow{pendingRow}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		r := meta.Resolve{Shard: 0, Term: c.Term, Seq: 9, Unknown: true, Settled: 8}
		got := s.resolve(r)
		equal(s, "everything is wanted", got.NeedAll, true)
		equal(s, "seq", got.Seq, 1)
		equal(s, "rows of a lost server", len(s.load(shards[0])[0].Groups), 2)
		group := groupRow
		group.Generation, group.Version = 8, 9
		txn, pending := freshTransaction, pendingRow
		txn.Epoch, txn.Version, pending.ID, pending.Version = 77, 7, "another", 6
		r.All = &meta.ShardRows{Groups: []meta.GroupRow{group}, Members: []meta.MemberRow{fullRow}, Offsets: []meta.OffsetRow{offsetOf(0, 12, 8)},
			Transactions: []meta.TransactionRow{txn}, Pending: []meta.PendingOffsetRow{pending}}
		r.Highest = 9
		for range 2 {
			got = s.resolve(r)
			equal(s, "seq", got.Seq >= 11, true)
			equal(s, "found", len(got.Found.Offsets), 1)
			want := *r.All
			want.Offsets = append(slices.Clone(want.Offsets), offsetOf(2, 77, 1<<33))
			rows := s.load(shards[0])[0]
			equal(s, "rows", text(rows), text(want))
			equal(s, "transactions", transactionText(rows), transactionText(want))
		}
	}},
	{"pending offsets of an id are put back once, beside some that go", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		row := func(id string, partition int32, offset, version int64) meta.PendingOffsetRow {
			p := pendingRow
			p.ID, p.Partition, p.Offset, p.Version = id, partition, offset, version
			return p
		}
		c.Pending = []meta.PendingOffsetRow{row("mixed", 0, 1, 1), row("mixed", 1, 1, 1), row("mixed", 2, 1, 1), row("goes", 0, 1, 1), row("stays", 0, 1, 1)}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		r := meta.Resolve{Shard: 0, Term: c.Term, Seq: 9, Settled: 8, Highest: 9, All: &meta.ShardRows{Pending: []meta.PendingOffsetRow{
			row("comes", 0, 2, 5),
			row("mixed", 1, 1, 1), // stored as it is
			row("mixed", 2, 2, 6), // stored in an older version
			row("mixed", 3, 2, 7), // missing
			row("stays", 0, 1, 1),
		}}}
		got := s.resolve(r)
		equal(s, "put back", got.PutBack, 3)
		equal(s, "removed", got.Removed, 2)
		equal(s, "pending", transactionText(s.load(shards[0])[0]), transactionText(*r.All))
	}},
}
