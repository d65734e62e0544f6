package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Rows of transactions are guarded by their own version beside the shard's seq: whoever writes one names the version it
// read, and a miss ends the whole commit as a missed guard does.
const (
	sqlTransactionsInsert = `/* transactions_insert */
WITH done AS (
  INSERT INTO pgbroker_internal.transactions
    (shard, transactional_id, producer_id, epoch, last_epoch, timeout_ms, outcome, decided_producer_id, decided_epoch, marker_epoch,
     partitions, decided_by, decided_term, version, used_at)
  SELECT w.shard, w.id, w.producer_id, w.epoch, w.last_epoch, w.timeout_ms, w.outcome, w.decided_producer_id, w.decided_epoch, w.marker_epoch,
     w.partitions::jsonb, w.decided_by, w.decided_term, w.version, w.used_at
  FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::smallint[], $5::smallint[], $6::integer[], $7::smallint[], $8::bigint[], $9::smallint[],
     $10::smallint[], $11::text[], $12::text[], $13::integer[], $14::bigint[], $15::timestamptz[])
     w(shard, id, producer_id, epoch, last_epoch, timeout_ms, outcome, decided_producer_id, decided_epoch, marker_epoch,
       partitions, decided_by, decided_term, version, used_at)
  ON CONFLICT (transactional_id) DO NOTHING RETURNING 1)
SELECT 1 / (count(*) = cardinality($1::smallint[]))::integer FROM done`
	sqlTransactionsUpdate = `/* transactions_update */
WITH done AS (
  UPDATE pgbroker_internal.transactions t
  SET producer_id = w.producer_id, epoch = w.epoch, last_epoch = w.last_epoch, timeout_ms = w.timeout_ms, outcome = w.outcome,
      decided_producer_id = w.decided_producer_id, decided_epoch = w.decided_epoch, marker_epoch = w.marker_epoch,
      partitions = w.partitions::jsonb, decided_by = w.decided_by, decided_term = w.decided_term, version = w.version,
      used_at = w.used_at
  FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::smallint[], $5::smallint[], $6::integer[], $7::smallint[], $8::bigint[], $9::smallint[],
     $10::smallint[], $11::text[], $12::text[], $13::integer[], $14::bigint[], $15::timestamptz[], $16::bigint[])
     w(shard, id, producer_id, epoch, last_epoch, timeout_ms, outcome, decided_producer_id, decided_epoch, marker_epoch,
       partitions, decided_by, decided_term, version, used_at, known)
  WHERE t.transactional_id = w.id AND t.shard = w.shard AND t.version = w.known RETURNING 1)
SELECT 1 / (count(*) = cardinality($1::smallint[]))::integer FROM done`
	sqlTransactionsHold = `/* transactions_hold */
WITH held AS MATERIALIZED (
  SELECT t.transactional_id FROM pgbroker_internal.transactions t
  JOIN unnest($1::text[], $2::bigint[]) w(id, known) ON t.transactional_id = w.id AND t.version = w.known FOR SHARE OF t)
SELECT 1 / (count(*) = cardinality($1::text[]))::integer FROM held`
	sqlTransactionsDelete = `/* transactions_delete */
DELETE FROM pgbroker_internal.transactions t USING unnest($1::text[], $2::bigint[]) w(id, version)
WHERE t.transactional_id = w.id AND t.version <= w.version`
	sqlPendingUpsert = `/* pending_upsert */
INSERT INTO pgbroker_internal.transaction_offsets AS t
  (shard, transactional_id, group_id, topic_id, partition, committed_offset, leader_epoch, metadata, producer_id, epoch, version)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::integer[], $6::bigint[], $7::integer[], $8::text[], $9::bigint[], $10::smallint[], $11::bigint[])
ON CONFLICT (transactional_id, group_id, topic_id, partition) DO UPDATE
SET committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    producer_id = excluded.producer_id, epoch = excluded.epoch, version = excluded.version
WHERE t.version < excluded.version`
	sqlPendingDelete = `/* pending_delete */
DELETE FROM pgbroker_internal.transaction_offsets t USING unnest($1::text[], $2::bigint[]) w(id, version)
WHERE t.transactional_id = w.id AND t.version <= w.version`

	sqlLoadTransactions = `/* load_transactions */
SELECT shard, transactional_id, producer_id, epoch, last_epoch, timeout_ms, outcome, decided_producer_id, decided_epoch, marker_epoch,
       partitions::text, coalesce(decided_by, ''), coalesce(decided_term, -1), version, used_at
FROM pgbroker_internal.transactions WHERE shard = ANY ($1::smallint[])`
	sqlLoadPending = `/* load_pending */
SELECT shard, transactional_id, group_id, topic_id, partition, committed_offset, leader_epoch, metadata, producer_id, epoch, version
FROM pgbroker_internal.transaction_offsets WHERE shard = ANY ($1::smallint[])`
)

// Outcome of a transaction's last decision.
type Outcome int16

const (
	OutcomeNone Outcome = iota
	OutcomeCommit
	OutcomeAbort
)

// TransactionPartition is a partition that a decision ends, with the first offset that the transaction has there.
type TransactionPartition struct {
	TopicID     UUID
	Partition   int32
	FirstOffset int64
}

// TransactionRow is a row of transactions, one per transactional id. "Open" is not stored: that is an open entry in a
// log, or a row of transaction_offsets.
type TransactionRow struct {
	ID         string // transactional.id
	ProducerID int64
	Epoch      int16
	LastEpoch  int16 // -1 none: whose EndTxn may be repeated (KIP-890)
	Timeout    time.Duration
	// The last decision: what, under which ids the transaction had written, and with which epoch its markers are.
	Outcome           Outcome
	DecidedProducerID int64 // -1 none
	DecidedEpoch      int16 // -1 none
	MarkerEpoch       int16 // -1 none
	Partitions        []TransactionPartition
	DecidedBy         string // "" nobody
	DecidedTerm       int32  // the shard's; -1 none
	Version           int64
	// UsedAt is when the row was last written by the broker: what is idle for long expires.
	UsedAt time.Time
	// Known is, for a write, the version of the row that it replaces, 0 when there is none yet. It is not stored.
	Known int64
}

// PendingOffsetRow is a row of transaction_offsets: an offset that waits for the decision.
type PendingOffsetRow struct {
	ID          string // transactional.id
	Group       string
	TopicID     UUID
	Partition   int32
	Offset      int64
	LeaderEpoch int32 // -1 none
	Metadata    string
	ProducerID  int64
	Epoch       int16
	Version     int64
}

// TransactionKey names a row of transactions with a version.
type TransactionKey struct {
	ID      string
	Version int64
}

func (s *shardRowSet) queueTransactions(b *pgx.Batch) {
	if k := s.heldTransactions; len(k) > 0 {
		b.Queue(sqlTransactionsHold, transactionKeys(k)...)
	}
	if k := s.deletedTransactions; len(k) > 0 {
		b.Queue(sqlTransactionsDelete, transactionKeys(k)...)
	}
	if k := s.endedPending; len(k) > 0 {
		b.Queue(sqlPendingDelete, transactionKeys(k)...)
	}
	isNew := func(x inShard[TransactionRow]) bool { return x.row.Known == 0 }
	old := slices.DeleteFunc(slices.Clone(s.transactions), isNew)
	fresh := slices.DeleteFunc(slices.Clone(s.transactions), func(x inShard[TransactionRow]) bool { return !isNew(x) })
	if len(fresh) > 0 {
		b.Queue(sqlTransactionsInsert, transactionColumns(fresh)...)
	}
	if len(old) > 0 {
		known := column(old, func(x *inShard[TransactionRow]) int64 { return x.row.Known })
		b.Queue(sqlTransactionsUpdate, append(transactionColumns(old), known)...)
	}
	s.queuePending(b)
}

func transactionKeys(k []TransactionKey) []any {
	return []any{
		column(k, func(k *TransactionKey) string { return toText(k.ID) }),
		column(k, func(k *TransactionKey) int64 { return k.Version }),
	}
}

func transactionColumns(r []inShard[TransactionRow]) []any {
	type row = inShard[TransactionRow]
	shorts := func(f func(*TransactionRow) int16) []int16 {
		return column(r, func(x *row) int16 { return f(x.row) })
	}
	return []any{
		column(r, func(x *row) int16 { return x.shard }), column(r, func(x *row) string { return toText(x.row.ID) }),
		column(r, func(x *row) int64 { return x.row.ProducerID }),
		shorts(func(t *TransactionRow) int16 { return t.Epoch }), shorts(func(t *TransactionRow) int16 { return t.LastEpoch }),
		column(r, func(x *row) int32 { return toMs(x.row.Timeout) }),
		shorts(func(t *TransactionRow) int16 { return int16(t.Outcome) }),
		column(r, func(x *row) int64 { return x.row.DecidedProducerID }),
		shorts(func(t *TransactionRow) int16 { return t.DecidedEpoch }), shorts(func(t *TransactionRow) int16 { return t.MarkerEpoch }),
		column(r, func(x *row) string { return partitionsText(x.row.Partitions) }),
		column(r, func(x *row) *string {
			if x.row.DecidedBy == "" {
				return nil
			}
			return textOrNull(&x.row.DecidedBy, toText)
		}),
		column(r, func(x *row) *int32 {
			if x.row.DecidedTerm < 0 {
				return nil
			}
			return &x.row.DecidedTerm
		}),
		column(r, func(x *row) int64 { return x.row.Version }),
		column(r, func(x *row) time.Time { return StoredTime(x.row.UsedAt) }),
	}
}

func (s *shardRowSet) queuePending(b *pgx.Batch) {
	type row = inShard[PendingOffsetRow]
	r := s.pending
	if len(r) == 0 {
		return
	}
	texts := func(f func(*PendingOffsetRow) string) []string {
		return column(r, func(x *row) string { return toText(f(x.row)) })
	}
	b.Queue(sqlPendingUpsert, column(r, func(x *row) int16 { return x.shard }),
		texts(func(o *PendingOffsetRow) string { return o.ID }), texts(func(o *PendingOffsetRow) string { return o.Group }),
		column(r, func(x *row) pgtype.UUID { return pgUUID(x.row.TopicID) }), column(r, func(x *row) int32 { return x.row.Partition }),
		column(r, func(x *row) int64 { return x.row.Offset }), column(r, func(x *row) int32 { return x.row.LeaderEpoch }),
		texts(func(o *PendingOffsetRow) string { return o.Metadata }), column(r, func(x *row) int64 { return x.row.ProducerID }),
		column(r, func(x *row) int16 { return x.row.Epoch }), column(r, func(x *row) int64 { return x.row.Version }))
}

func loadTransactionRows(ctx context.Context, tx pgx.Tx, shards []int16, out map[int16]ShardRows) error {
	var shard int16
	var t TransactionRow
	var timeoutMs int32
	var partitions string
	err := forEach(ctx, tx, sqlLoadTransactions, shards, []any{&shard, &t.ID, &t.ProducerID, &t.Epoch, &t.LastEpoch, &timeoutMs, &t.Outcome,
		&t.DecidedProducerID, &t.DecidedEpoch, &t.MarkerEpoch, &partitions, &t.DecidedBy, &t.DecidedTerm, &t.Version, &t.UsedAt}, func() (err error) {
		r := t
		r.ID, r.DecidedBy, r.Timeout = fromText(t.ID), fromText(t.DecidedBy), time.Duration(timeoutMs)*time.Millisecond
		r.UsedAt = t.UsedAt.UTC()
		if r.Partitions, err = partitionsFromText(partitions); err != nil {
			return fmt.Errorf("%q: %w", r.ID, err)
		}
		rows := out[shard]
		rows.Transactions = append(rows.Transactions, r)
		out[shard] = rows
		return nil
	})
	if err != nil {
		return fmt.Errorf("transactions: %w", err)
	}
	var o PendingOffsetRow
	err = forEach(ctx, tx, sqlLoadPending, shards, []any{&shard, &o.ID, &o.Group, &o.TopicID, &o.Partition, &o.Offset, &o.LeaderEpoch,
		&o.Metadata, &o.ProducerID, &o.Epoch, &o.Version}, func() error {
		r := o
		r.ID, r.Group, r.Metadata = fromText(o.ID), fromText(o.Group), fromText(o.Metadata)
		rows := out[shard]
		rows.Pending = append(rows.Pending, r)
		out[shard] = rows
		return nil
	})
	if err != nil {
		return fmt.Errorf("pending offsets: %w", err)
	}
	return nil
}

// partitionsText is [[topic id, partition, first offset], …].
func partitionsText(list []TransactionPartition) string {
	stored := make([][3]any, len(list))
	for i, p := range list {
		stored[i] = [3]any{uuidText(p.TopicID), p.Partition, p.FirstOffset}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		panic(err) // texts and numbers always have a JSON form
	}
	return string(text)
}

func partitionsFromText(text string) ([]TransactionPartition, error) {
	var stored [][3]json.RawMessage
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	var list []TransactionPartition
	for _, s := range stored {
		var p TransactionPartition
		var id string
		for i, into := range []any{&id, &p.Partition, &p.FirstOffset} {
			if err := json.Unmarshal(s[i], into); err != nil {
				return nil, err
			}
		}
		var u pgtype.UUID
		if err := u.Scan(id); err != nil {
			return nil, err
		}
		p.TopicID = u.Bytes
		list = append(list, p)
	}
	return list, nil
}

func uuidText(id UUID) string { return pgUUID(id).String() }
