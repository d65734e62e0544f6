package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// sqlShardsGuard locks all shards' rows in ascending order and gives each its next seq, if the highest that it has is the
// expected one. Unless every one of them holds it fails with division_by_zero, which ends the implicit transaction that it
// begins: the rows behind it need no second round trip. A statement that has waited for the lock looks with an old
// snapshot; the seq that it would take is taken then, and the key knows, whatever the snapshot shows.
const sqlShardsGuard = `/* shards_guard */
WITH held AS MATERIALIZED (
  SELECT s.shard, w.seq FROM pgbroker_internal.coordinator_shards s
  JOIN unnest($2::smallint[], $3::integer[], $4::bigint[]) w(shard, term, seq) ON s.shard = w.shard AND s.term = w.term
  WHERE s.owner = $1 ORDER BY s.shard FOR NO KEY UPDATE OF s),
moved AS (
  INSERT INTO pgbroker_internal.shard_seqs (shard, seq)
  SELECT w.shard, s.seq + 1 FROM held w
  CROSS JOIN LATERAL (SELECT q.seq FROM pgbroker_internal.shard_seqs q WHERE q.shard = w.shard ORDER BY q.seq DESC LIMIT 1) s
  WHERE s.seq = w.seq ON CONFLICT DO NOTHING RETURNING 1)
SELECT 1 / (count(*) = cardinality($2::smallint[]))::integer FROM moved`

// sqlShardGuard is the same for one shard, the most frequent case.
const sqlShardGuard = `/* shard_guard */
WITH held AS MATERIALIZED (
  SELECT shard FROM pgbroker_internal.coordinator_shards WHERE shard = $2 AND owner = $1 AND term = $3 FOR NO KEY UPDATE),
moved AS (
  INSERT INTO pgbroker_internal.shard_seqs (shard, seq)
  SELECT held.shard, s.seq + 1 FROM held
  CROSS JOIN (SELECT seq FROM pgbroker_internal.shard_seqs WHERE shard = $2 ORDER BY seq DESC LIMIT 1) s
  WHERE seq = $4 ON CONFLICT DO NOTHING RETURNING 1)
SELECT 1 / count(*) FROM moved`

const (
	guardMissed = "22012" // division_by_zero

	sqlShardsRead = `/* shards_read */
SELECT s.shard, s.owner, s.term, (SELECT max(q.seq) FROM pgbroker_internal.shard_seqs q WHERE q.shard = s.shard)
FROM pgbroker_internal.coordinator_shards s WHERE s.shard = ANY ($1::smallint[])`
	// sqlShardsLock comes before sqlShardsRead, whose snapshot then has what the lock waited for.
	sqlShardsLock = `/* shards_lock */
SELECT shard FROM pgbroker_internal.coordinator_shards WHERE shard = ANY ($1::smallint[]) ORDER BY shard FOR NO KEY UPDATE`
	// sqlShardsSeq raises seqs past the number of a commit that may still be under way, and takes that number.
	sqlShardsSeq = `/* shards_seq */
INSERT INTO pgbroker_internal.shard_seqs (shard, seq, filler)
SELECT shard, seq, false FROM unnest($1::smallint[], $2::bigint[]) w(shard, seq)
UNION ALL SELECT shard, seq, true FROM unnest($3::smallint[], $4::bigint[]) f(shard, seq)
ON CONFLICT DO NOTHING`
	// sqlShardsTrim removes what is below a settled seq. Fillers stay as long as the term: they stop late statements. The
	// highest stays whatever is asked.
	sqlShardsTrim = `/* shards_trim */
DELETE FROM pgbroker_internal.shard_seqs q USING unnest($1::smallint[], $2::bigint[], $3::bigint[]) w(shard, first, below)
WHERE q.shard = w.shard AND q.seq >= w.first AND q.seq < w.below AND NOT q.filler
  AND q.seq < (SELECT max(m.seq) FROM pgbroker_internal.shard_seqs m WHERE m.shard = w.shard)`
)

// CommitShards implements ShardStore, in one round trip.
func (p *Postgres) CommitShards(ctx context.Context, owner int32, changes []ShardChange) error {
	return p.commitShards(ctx, p.durable, owner, changes)
}

// CommitShardsRelaxed implements ShardStore, in one round trip.
func (p *Postgres) CommitShardsRelaxed(ctx context.Context, owner int32, changes []ShardChange) error {
	if err := CheckRelaxed(changes); err != nil {
		return fmt.Errorf("commit shards: %w", err)
	}
	return p.commitShards(ctx, p.relaxed, owner, changes)
}

func (p *Postgres) commitShards(ctx context.Context, pl *pool, owner int32, changes []ShardChange) error {
	if len(changes) == 0 {
		return nil
	}
	if err := CheckShardChanges(changes); err != nil {
		return fmt.Errorf("commit shards: %w", err)
	}
	rows := collectShardRows(changes)
	guard, guards := seededGuard(sqlShardGuard), seededGuard(sqlShardsGuard)
	err := p.batch(ctx, pl, func(b *pgx.Batch) {
		if c := changes[0]; len(changes) == 1 {
			b.Queue(guard, owner, c.Shard, c.Term, c.Seq)
		} else {
			b.Queue(guards, owner,
				column(changes, func(c *ShardChange) int16 { return c.Shard }),
				column(changes, func(c *ShardChange) int32 { return c.Term }),
				column(changes, func(c *ShardChange) int64 { return c.Seq }))
		}
		rows.queue(b)
	})
	if isMissed(err) {
		err = p.whyMissed(ctx, owner, changes)
	}
	if err != nil {
		return fmt.Errorf("commit shards: %w", err)
	}
	return nil
}

// isMissed says whether a guard, or a row's version, was not the expected one.
func isMissed(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == guardMissed
}

// whyMissed reads the guard rows of a commit that did not happen.
func (p *Postgres) whyMissed(ctx context.Context, owner int32, changes []ShardChange) error {
	var stored map[int16]Shard
	err := p.tx(ctx, p.durable, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) (err error) {
		stored, err = readShards(ctx, tx, column(changes, func(c *ShardChange) int16 { return c.Shard }))
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := guardShard(stored, c.Shard, owner, c.Term); err != nil {
			return err
		}
		if stored[c.Shard].Seq != c.Seq {
			return ErrStale
		}
	}
	return ErrRowMoved
}

// guardShard: whoever is not the owner under exactly this term must register again. A term below ours was forgotten.
func guardShard(stored map[int16]Shard, shard int16, owner, term int32) error {
	s, ok := stored[shard]
	if !ok {
		return fmt.Errorf("shard %d: %w", shard, errNotBootstrapped)
	}
	if s.Term < term && !seededbug.On(seededbug.LowerTermDeposes) {
		return fmt.Errorf("shard %d has owner %d and term %d, not %d and %d: %w", shard, s.Owner, s.Term, owner, term, ErrForked)
	}
	if s.Owner != owner || s.Term != term {
		return fmt.Errorf("shard %d has owner %d and term %d, not %d and %d: %w", shard, s.Owner, s.Term, owner, term, ErrFenced)
	}
	return nil
}

func readShards(ctx context.Context, tx pgx.Tx, shards []int16) (map[int16]Shard, error) {
	rows, err := tx.Query(ctx, sqlShardsRead, shards)
	if err != nil {
		return nil, err
	}
	out := map[int16]Shard{}
	var s Shard
	_, err = pgx.ForEachRow(rows, []any{&s.Shard, &s.Owner, &s.Term, &s.Seq}, func() error {
		out[s.Shard] = s
		return nil
	})
	return out, err
}

// lockShards holds the shards' rows until the end of the transaction, and reads them.
func lockShards(ctx context.Context, tx pgx.Tx, shards []int16) (map[int16]Shard, error) {
	if _, err := tx.Exec(ctx, sqlShardsLock, shards); err != nil {
		return nil, err
	}
	return readShards(ctx, tx, shards)
}

// ResolveShards implements ShardStore. It is interactive: the lock waits for a lost session, and only what is read under
// it decides.
func (p *Postgres) ResolveShards(ctx context.Context, owner int32, shards []Resolve) ([]Resolved, error) {
	ctx, cancel := withLimit(ctx, loadLimit)
	defer cancel()
	var out []Resolved
	err := p.tx(ctx, p.durable, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		out = make([]Resolved, 0, len(shards))
		read := lockShards
		if seededbug.On(seededbug.ReadBackWithoutLock) {
			read = readShards
		}
		stored, err := read(ctx, tx, column(shards, func(r *Resolve) int16 { return r.Shard }))
		if err != nil {
			return err
		}
		var compare []int16
		var moved []int16
		var seqs, fillers []int64
		for _, r := range shards {
			if err := guardShard(stored, r.Shard, owner, r.Term); err != nil {
				return err
			}
			got, putBack := ResolveSeq(r, stored[r.Shard].Seq)
			if got.Seq != stored[r.Shard].Seq {
				moved, seqs, fillers = append(moved, r.Shard), append(seqs, got.Seq), append(fillers, r.Seq+1)
			}
			if putBack {
				compare = append(compare, r.Shard)
			}
			out = append(out, got)
		}
		if len(moved) == 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, sqlShardsSeq, moved, seqs, moved, fillers); err != nil || len(compare) == 0 {
			return err
		}
		return putBackRows(ctx, tx, shards, compare, out)
	})
	if isMissed(err) { // somebody wrote a row after it was compared
		err = ErrRowMoved
	}
	if err != nil {
		return nil, fmt.Errorf("resolve shards: %w", err)
	}
	return out, nil
}

// putBackRows compares the rows of shards whose guards are held, and writes what is missing.
func putBackRows(ctx context.Context, tx pgx.Tx, shards []Resolve, compare []int16, out []Resolved) error {
	stored := make(map[int16]ShardRows, len(compare))
	if err := loadShardRows(ctx, tx, compare, stored); err != nil {
		return err
	}
	var changes []ShardChange
	for i, r := range shards {
		if slices.Contains(compare, r.Shard) {
			changes = append(changes, PutBack(r, stored[r.Shard], &out[i]))
		}
	}
	b := &pgx.Batch{}
	collectShardRows(changes).queue(b)
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

const (
	sqlLoadGroups = `/* load_groups */
SELECT shard, group_id, kind, protocol_type, protocol, generation, leader, empty_since, assignment_epoch, subscription_hash, version
FROM pgbroker_internal.consumer_groups WHERE shard = ANY ($1::smallint[])`
	sqlLoadMembers = `/* load_members */
SELECT shard, group_id, member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, protocols::text, assignment, consumer::text, version
FROM pgbroker_internal.group_members WHERE shard = ANY ($1::smallint[])`
	sqlLoadOffsets = `/* load_offsets */
SELECT shard, group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at, expires_at, version
FROM pgbroker_internal.group_offsets WHERE shard = ANY ($1::smallint[])`
)

// loadLimit bounds LoadShards: a million offsets take seconds.
const loadLimit = time.Minute

// LoadShards implements ShardStore; all rows are of one snapshot.
func (p *Postgres) LoadShards(ctx context.Context, owner int32, shards []Shard) (map[int16]ShardRows, error) {
	ctx, cancel := withLimit(ctx, loadLimit)
	defer cancel()
	out := make(map[int16]ShardRows, len(shards))
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := p.tx(ctx, p.durable, snapshot, func(ctx context.Context, tx pgx.Tx) error {
		clear(out)
		numbers := column(shards, func(s *Shard) int16 { return s.Shard })
		stored, err := readShards(ctx, tx, numbers)
		if err != nil {
			return err
		}
		for _, s := range shards {
			if err := guardShard(stored, s.Shard, owner, s.Term); err != nil {
				return err
			}
			out[s.Shard] = ShardRows{}
		}
		return loadShardRows(ctx, tx, numbers, out)
	})
	if err != nil {
		return nil, fmt.Errorf("load shards: %w", err)
	}
	for s, rows := range out {
		rows.sort()
		out[s] = rows
	}
	return out, nil
}

// sort makes the order of rows not depend on where they lie in the table.
func (r *ShardRows) sort() {
	slices.SortFunc(r.Groups, func(a, b GroupRow) int { return compareKeys(a.Group, b.Group) })
	slices.SortFunc(r.Members, func(a, b MemberRow) int { return compareKeys(a.Group, b.Group, a.MemberID, b.MemberID) })
	slices.SortFunc(r.Offsets, func(a, b OffsetRow) int {
		if c := compareKeys(a.Group, b.Group, string(a.TopicID[:]), string(b.TopicID[:])); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	slices.SortFunc(r.Transactions, func(a, b TransactionRow) int { return compareKeys(a.ID, b.ID) })
	slices.SortFunc(r.Pending, func(a, b PendingOffsetRow) int {
		if c := compareKeys(a.ID, b.ID, a.Group, b.Group, string(a.TopicID[:]), string(b.TopicID[:])); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
}
