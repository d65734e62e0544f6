package meta

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// TermStepAfterFork is how far a term jumps when its row was last confirmed in an older history: the terms that were
// given out and forgotten there stay unused.
const TermStepAfterFork = 1000

const (
	sqlRegisterLock = `/* register_lock */
SELECT incarnation, process_id, state IN (1, 2) AS running, log_dirs, endpoints::text,
       (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint
FROM pgbroker_internal.brokers WHERE broker_id = $1 FOR UPDATE`
	sqlRegisterLeads = `/* register_leads */
SELECT count(*) FROM pgbroker_internal.partitions WHERE leader = $1`
	sqlRegisterInsert = `/* register_insert */
INSERT INTO pgbroker_internal.brokers (broker_id, incarnation, process_id, state, lease_until, lease_ms, beat, backend_pid, log_dirs, endpoints, rack, software, registered_at, version)
VALUES ($1, $2, $3, 1, clock_timestamp() + $4::bigint * interval '1 microsecond', $5, 1, pg_backend_pid(), $6, $7::text::jsonb, $8, $9, clock_timestamp(), $10)
ON CONFLICT DO NOTHING`
	sqlRegisterUpdate = `/* register_update */
UPDATE pgbroker_internal.brokers
SET incarnation = $2, process_id = $3, state = 1, lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond', lease_ms = $5, beat = beat + 1,
    backend_pid = pg_backend_pid(), log_dirs = $6, endpoints = $7::text::jsonb, rack = $8, software = $9, registered_at = clock_timestamp(), version = $10
WHERE broker_id = $1`
	// sqlRegisterFloors raises terms to what the broker knows. It goes from floor to row whatever the planner believes: the
	// lengths of the arrays are unknown to a generic plan, and a join of two guesses may compare each with each.
	sqlRegisterFloors = `/* register_floors */
UPDATE pgbroker_internal.partitions p SET leader_term = low.term
FROM (SELECT f.topic_id, f.partition, f.term
      FROM (SELECT topic_id, partition, max(term) AS term FROM unnest($2::uuid[], $3::integer[], $4::integer[]) f(topic_id, partition, term)
            GROUP BY 1, 2 ORDER BY 1, 2) f
      CROSS JOIN LATERAL (SELECT FROM pgbroker_internal.partitions q
                          WHERE q.topic_id = f.topic_id AND q.partition = f.partition AND q.leader_term < f.term
                            AND (q.leader = $1 OR (q.leader = -1 AND $1 = ANY (q.isr))) OFFSET 0 FOR UPDATE) q) low
WHERE p.topic_id = low.topic_id AND p.partition = low.partition`
	sqlRegisterPartitions = `/* register_partitions */
WITH won AS MATERIALIZED (
  SELECT p.topic_id, p.partition FROM pgbroker_internal.partitions p
  WHERE p.leader = $1 OR (p.leader = -1 AND $1 = ANY (p.isr))
  ORDER BY p.topic_id, p.partition FOR UPDATE)
UPDATE pgbroker_internal.partitions p
SET leader = $1, leader_term = p.leader_term + CASE WHEN p.history < $2 THEN 1000 ELSE 1 END,
    partition_epoch = p.partition_epoch + 1, history = $2, version = $3
FROM won WHERE p.topic_id = won.topic_id AND p.partition = won.partition`
	sqlRegisterShards = `/* register_shards */
WITH floor AS (SELECT * FROM unnest($4::smallint[], $5::integer[]) f(shard, term)),
won AS MATERIALIZED (SELECT shard FROM pgbroker_internal.coordinator_shards WHERE owner = $1 ORDER BY shard FOR UPDATE)
UPDATE pgbroker_internal.coordinator_shards s
SET term = greatest(s.term, coalesce((SELECT max(term) FROM floor WHERE floor.shard = s.shard), 0)) + CASE WHEN s.history < $2 THEN 1000 ELSE 1 END,
    history = $2, version = $3
FROM won WHERE s.shard = won.shard`
)

// registerPause is the wait before a registration of unknown outcome is looked at again.
const registerPause = 100 * time.Millisecond

// registerLimit bounds a registration, whose length follows the number of partitions: ten thousand take a second on an
// idle machine, and a start on a busy one should not fail.
const registerLimit = time.Minute

// errRegisterRace: another process inserted the broker's first row meanwhile.
var errRegisterRace = errors.New("another process registered at the same time")

// Register implements Control. It resolves its own unknown COMMIT, as long as ctx lasts: the row's lock waits for the
// lost session, and the row then says whose registration it is.
func (p *Postgres) Register(ctx context.Context, r Registration) (Registered, error) {
	var tried *Registered // what a COMMIT of unknown outcome would have won
	for {
		got, err := p.registerOnce(ctx, r, tried)
		switch {
		case err == nil:
			return got, nil
		case errors.Is(err, ErrUnknownOutcome):
			tried = &got
		case errors.Is(err, errRegisterRace), tried != nil && errors.Is(err, ErrUnavailable):
		default:
			return Registered{}, fmt.Errorf("register broker %d: %w", r.BrokerID, err)
		}
		select {
		case <-ctx.Done():
			return Registered{}, fmt.Errorf("register broker %d: %w", r.BrokerID, err)
		case <-time.After(registerPause):
		}
	}
}

// registerOnce returns what it tried to win also when the outcome is unknown.
func (p *Postgres) registerOnce(ctx context.Context, r Registration, tried *Registered) (Registered, error) {
	ctx, cancel := withLimit(ctx, registerLimit)
	defer cancel()
	var out Registered
	err := p.tx(ctx, p.control, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		out = Registered{Incarnation: 1}
		var old registeredRow
		found, err := old.read(ctx, tx, r.BrokerID)
		if err != nil {
			return err
		}
		if found {
			if tried != nil && old.process == r.ProcessID && old.incarnation == tried.Incarnation {
				out = *tried // the unknown COMMIT took effect
				return nil
			}
			if err := old.mayReplace(r); err != nil {
				return err
			}
			if err := old.checkDirs(ctx, tx, r); err != nil {
				return err
			}
			out.Incarnation, out.KnownLogDirs = old.incarnation+1, old.logDirs
		}
		history, version, err := lockCluster(ctx, tx)
		if err != nil {
			return err
		}
		if err := writeRegistration(ctx, tx, r, out.Incarnation, history, version+1, found); err != nil {
			return err
		}
		out.Catalog, err = readCatalog(ctx, tx)
		return err
	})
	return out, err
}

// checkDirs refuses directories that cannot hold what this broker leads: serving them empty would lose records silently.
func (o *registeredRow) checkDirs(ctx context.Context, tx pgx.Tx, r Registration) error {
	if r.AcceptNewLogDirs || SameDirs(o.logDirs, r.LogDirs) {
		return nil
	}
	var leads int
	if err := tx.QueryRow(ctx, sqlRegisterLeads, r.BrokerID).Scan(&leads); err != nil || leads == 0 {
		return err
	}
	return &LogDirsError{BrokerID: r.BrokerID, Partitions: leads}
}

type registeredRow struct {
	incarnation int64
	process     UUID
	running     bool
	logDirs     []UUID
	endpoints   []Endpoint
	remaining   time.Duration
}

func (o *registeredRow) read(ctx context.Context, tx pgx.Tx, id int32) (bool, error) {
	var endpoints string
	var micros int64
	var dirs []pgtype.UUID
	err := tx.QueryRow(ctx, sqlRegisterLock, id).Scan(&o.incarnation, &o.process, &o.running, &dirs, &endpoints, &micros)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	o.remaining = time.Duration(micros) * time.Microsecond
	o.logDirs = column(dirs, func(d *pgtype.UUID) UUID { return d.Bytes })
	return true, json.Unmarshal([]byte(endpoints), &o.endpoints)
}

// mayReplace refuses while another process runs under a lease. One with the same lock is dead: we hold it.
func (o *registeredRow) mayReplace(r Registration) error {
	if o.running && o.remaining > 0 && !SameLock(o.process, r.ProcessID) {
		return &LeaseRunningError{BrokerID: r.BrokerID, Remaining: o.remaining, Endpoints: o.endpoints}
	}
	return nil
}

// SameDirs compares two sets of directory ids; an empty set proves nothing and is equal to none.
func SameDirs(a, b []UUID) bool {
	sorted := func(in []UUID) []UUID {
		out := slices.Clone(in)
		slices.SortFunc(out, func(x, y UUID) int { return slices.Compare(x[:], y[:]) })
		return slices.Compact(out)
	}
	return len(a) > 0 && slices.Equal(sorted(a), sorted(b))
}

func writeRegistration(ctx context.Context, tx pgx.Tx, r Registration, incarnation int64, history int32, version int64, update bool) error {
	endpoints, err := json.Marshal(orEmpty(r.Endpoints))
	if err != nil {
		return err
	}
	stmt := sqlRegisterInsert
	if update {
		stmt = sqlRegisterUpdate
	}
	tag, err := tx.Exec(ctx, stmt, r.BrokerID, incarnation, pgUUID(r.ProcessID), r.Lease.Microseconds(), leaseMs(r.Lease),
		pgUUIDs(r.LogDirs), string(endpoints), r.Rack, r.Software, version)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errRegisterRace
	}
	_, err = tx.Exec(ctx, sqlRegisterFloors, r.BrokerID,
		column(r.Floors, func(f *Floor) pgtype.UUID { return pgUUID(f.TopicID) }),
		column(r.Floors, func(f *Floor) int32 { return f.Partition }),
		column(r.Floors, func(f *Floor) int32 { return f.Term }))
	if err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, sqlRegisterPartitions, r.BrokerID, history, version); err != nil {
		return err
	}
	shards, terms := shardFloorArrays(r.ShardFloors)
	if _, err = tx.Exec(ctx, sqlRegisterShards, r.BrokerID, history, version, shards, terms); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sqlClusterMove, version)
	return err
}

func shardFloorArrays(floors map[int16]int32) (shards []int16, terms []int32) {
	shards, terms = make([]int16, 0, len(floors)), make([]int32, 0, len(floors))
	for s, t := range floors {
		shards, terms = append(shards, s), append(terms, t)
	}
	return shards, terms
}

func sortShards(s []Shard) {
	slices.SortFunc(s, func(a, b Shard) int { return cmp.Compare(a.Shard, b.Shard) })
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
