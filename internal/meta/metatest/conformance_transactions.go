package metatest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

var (
	freshTransaction = meta.TransactionRow{ID: "fresh\x00", ProducerID: 7, LastEpoch: -1, Timeout: time.Minute,
		DecidedProducerID: -1, DecidedEpoch: -1, MarkerEpoch: -1, DecidedTerm: -1, Version: 1, UsedAt: committed}
	decidedTransaction = meta.TransactionRow{ID: "decided", ProducerID: math.MaxInt64, Epoch: math.MaxInt16 - 1, LastEpoch: math.MaxInt16 - 2,
		Timeout: 15 * time.Minute, Outcome: meta.OutcomeCommit, DecidedProducerID: math.MaxInt64, DecidedEpoch: math.MaxInt16 - 2, MarkerEpoch: math.MaxInt16 - 1,
		Partitions: []meta.TransactionPartition{{TopicID: id(1), Partition: 3, FirstOffset: math.MaxInt64}, {TopicID: id(2)}},
		DecidedBy:  "broker 1", DecidedTerm: 4, Version: 1, UsedAt: committed.Add(time.Hour)}
	pendingRow = meta.PendingOffsetRow{ID: "decided", Group: "g\x00", TopicID: id(1), Partition: 2, Offset: math.MaxInt64, LeaderEpoch: -1,
		Metadata: "text \x00 \xfe", ProducerID: 7, Epoch: 3, Version: 1}
)

func transactionText(r meta.ShardRows) string {
	var b strings.Builder
	for _, t := range r.Transactions {
		fmt.Fprintf(&b, "%q\n", fmt.Sprint(t))
	}
	for _, o := range r.Pending {
		fmt.Fprintf(&b, "%q\n", fmt.Sprint(o))
	}
	return b.String()
}

var transactionCases = []suiteCase{
	{"transactions come back as they were written", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[9])
		c.Transactions = []meta.TransactionRow{freshTransaction, decidedTransaction}
		second := pendingRow
		second.Partition = 1
		c.Pending = []meta.PendingOffsetRow{pendingRow, second}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		rows := s.load(shards[9], shards[2])
		want := meta.ShardRows{Transactions: []meta.TransactionRow{decidedTransaction, freshTransaction}, Pending: []meta.PendingOffsetRow{second, pendingRow}}
		equal(s, "rows", transactionText(rows[9]), transactionText(want))
		equal(s, "rows of another shard", transactionText(rows[2]), "")
	}},
	{"a transaction's row replaces exactly the version that was known, or nothing happens", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Transactions = []meta.TransactionRow{decidedTransaction}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		before := transactionText(s.load(shards[0])[0])

		next := decidedTransaction
		next.Version, next.Epoch, next.Partitions, next.UsedAt = 2, 1, nil, committed.Add(2*time.Hour)
		for _, known := range []int64{0, 2} { // there is a row; it is of another version
			next.Known = known
			bad := meta.ShardChange{Shard: 0, Term: c.Term, Seq: 1, Transactions: []meta.TransactionRow{next}, Offsets: []meta.OffsetRow{offsetRow},
				EndedPending: []meta.TransactionKey{{ID: "decided", Version: 9}}}
			other := change(shards[1])
			other.Offsets = []meta.OffsetRow{expiring}
			s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{bad, other}), meta.ErrRowMoved)
		}
		unborn := freshTransaction
		unborn.Known = 1 // there is no row
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: 1, Transactions: []meta.TransactionRow{unborn}}}), meta.ErrRowMoved)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: 0, Transactions: []meta.TransactionRow{unborn}}}), meta.ErrStale)
		rows := s.load(shards[0], shards[1])
		equal(s, "rows", transactionText(rows[0]), before)
		equal(s, "offsets", len(rows[0].Offsets)+len(rows[1].Offsets), 0)

		next.Known = 1
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: 1, Transactions: []meta.TransactionRow{next}}}))
		got := s.load(shards[0])[0].Transactions[0]
		equal(s, "epoch", got.Epoch, 1)
		equal(s, "version", got.Version, int64(2))
		equal(s, "use", got.UsedAt, next.UsedAt)
		equal(s, "partitions", len(got.Partitions), 0)
	}},
	{"pending offsets are stored only beside the version that was known", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Transactions = []meta.TransactionRow{decidedTransaction}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		pend := func(seq, known int64, rows ...meta.PendingOffsetRow) error {
			return s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: seq,
				HeldTransactions: []meta.TransactionKey{{ID: "decided", Version: known}}, Pending: rows}})
		}
		s.is(pend(1, 2, pendingRow), meta.ErrRowMoved)
		equal(s, "pending", len(s.load(shards[0])[0].Pending), 0)
		s.ok(pend(1, 1, pendingRow))
		again := pendingRow
		again.Offset, again.Version = 5, 3
		s.ok(pend(2, 1, again))
		older := pendingRow
		older.Offset, older.Version = 6, 2
		s.ok(pend(3, 1, older))
		rows := s.load(shards[0])[0].Pending
		equal(s, "pending", len(rows), 1)
		equal(s, "offset", rows[0].Offset, int64(5))
	}},
	{"a decision moves pending offsets to a group of another shard in one commit", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[3])
		c.Transactions = []meta.TransactionRow{decidedTransaction}
		bystander := pendingRow
		bystander.ID = "fresh\x00"
		c.Pending = []meta.PendingOffsetRow{pendingRow, bystander}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		next := decidedTransaction
		next.Known, next.Version = 1, 2
		own := meta.ShardChange{Shard: 3, Term: c.Term, Seq: 1, Transactions: []meta.TransactionRow{next}, EndedPending: []meta.TransactionKey{{ID: "decided", Version: 2}}}
		group := change(shards[2])
		group.Offsets = []meta.OffsetRow{offsetRow}
		stale := group
		stale.Seq = 9
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{own, stale}), meta.ErrStale)
		equal(s, "pending", len(s.load(shards[3])[3].Pending), 2)
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{own, group}))
		rows := s.load(shards[2], shards[3])
		equal(s, "pending", transactionText(meta.ShardRows{Pending: rows[3].Pending}), transactionText(meta.ShardRows{Pending: []meta.PendingOffsetRow{bystander}}))
		equal(s, "offset", rows[2].Offsets[0].Offset, offsetRow.Offset)
	}},
	{"transactional ids are deleted up to a version", func(s *suite) {
		_, shards := s.taken()
		c := change(shards[0])
		c.Transactions, c.Pending = []meta.TransactionRow{freshTransaction, decidedTransaction}, []meta.PendingOffsetRow{pendingRow}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{c}))
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: 1,
			DeletedTransactions: []meta.TransactionKey{{ID: "fresh\x00", Version: 1}, {ID: "decided", Version: 0}},
			EndedPending:        []meta.TransactionKey{{ID: "decided", Version: 0}}}}))
		rows := s.load(shards[0])[0]
		equal(s, "transactions", len(rows.Transactions), 1)
		equal(s, "kept", rows.Transactions[0].ID, "decided")
		equal(s, "pending", len(rows.Pending), 1)
		long := freshTransaction
		long.ID = strings.Repeat("x", meta.MaxKeyBytes+1)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{{Shard: 0, Term: c.Term, Seq: 2, Transactions: []meta.TransactionRow{long}}}), meta.ErrInvalid)
	}},
	{"an unknown decision is settled", func(s *suite) {
		_, shards := s.taken()
		done, lost := change(shards[0]), change(shards[1])
		done.Transactions = []meta.TransactionRow{decidedTransaction}
		lost.Transactions = []meta.TransactionRow{freshTransaction}
		s.ok(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{done}))
		got, err := s.store.ResolveShards(s.ctx, 1, meta.Unknown(done, lost))
		s.ok(err)
		equal(s, "the one that happened", got[0].TookEffect, true)
		equal(s, "the one that did not", got[1].TookEffect, false)
		s.is(s.store.CommitShards(s.ctx, 1, []meta.ShardChange{lost}), meta.ErrStale)
		equal(s, "transactions", len(s.load(shards[1])[1].Transactions), 0)
	}},
}
