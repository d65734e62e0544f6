package meta

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errNotBootstrapped: the tables are there, the cluster row is not.
var errNotBootstrapped = errors.New("no cluster yet: Bootstrap comes first")

// NewClusterID makes 22 characters of Kafka's form: base64url of 16 random bytes, never beginning with '-'.
func NewClusterID() string {
	for {
		var raw [16]byte
		_, _ = rand.Read(raw[:]) // never fails
		if id := base64.RawURLEncoding.EncodeToString(raw[:]); id[0] != '-' {
			return id
		}
	}
}

const (
	sqlClusterRead   = `/* cluster_read */ SELECT cluster_id, history, server_mark, catalog_version FROM pgbroker_internal.cluster`
	sqlClusterInsert = `/* cluster_insert */
INSERT INTO pgbroker_internal.cluster (cluster_id, history, history_began, server_mark, catalog_version, coordinator_shards)
VALUES ($1, 1, clock_timestamp(), $2, 1, $3) ON CONFLICT DO NOTHING`
	sqlShardsInsert = `/* shards_insert */
WITH made AS (
  INSERT INTO pgbroker_internal.coordinator_shards (shard, owner, term, history, version)
  SELECT n, -1, 0, 1, 1 FROM generate_series(0, $1::integer - 1) n ON CONFLICT DO NOTHING RETURNING shard)
INSERT INTO pgbroker_internal.shard_seqs (shard, seq) SELECT shard, 0 FROM made`
	sqlCounterInsert = `/* counter_insert */ INSERT INTO pgbroker_internal.counters (name, value) VALUES ('producer_id', 0) ON CONFLICT DO NOTHING`
)

// Bootstrap implements Control.
func (p *Postgres) Bootstrap(ctx context.Context) (Cluster, error) {
	var c Cluster
	mark, err := p.ServerMark(ctx)
	if err != nil {
		return c, fmt.Errorf("bootstrap: %w", err)
	}
	p.mark.Store(&mark)
	read := func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlClusterRead).Scan(&c.ID, &c.History, &c.ServerMark, &c.CatalogVersion)
	}
	err = p.tx(ctx, p.control, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if err := read(ctx, tx); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if _, err := tx.Exec(ctx, sqlClusterInsert, NewClusterID(), mark, Shards); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlShardsInsert, Shards); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlCounterInsert); err != nil {
			return err
		}
		return read(ctx, tx)
	})
	if err != nil {
		return Cluster{}, fmt.Errorf("bootstrap: %w", err)
	}
	p.doubtLossless(ctx)
	return c, nil
}

const sqlAsynchronous = `/* asynchronous */ SELECT current_setting('synchronous_standby_names') = '' AND EXISTS (SELECT FROM pg_stat_replication)`

// doubtLossless warns of standbys that commits do not wait for. Standbys that share the server's storage are not seen here,
// and need not be waited for.
func (p *Postgres) doubtLossless(ctx context.Context) {
	if !p.opts.Lossless {
		return
	}
	var asynchronous bool
	err := p.withConn(ctx, p.control, func(ctx context.Context, conn *pgxpool.Conn) error {
		return p.classify(conn, conn.QueryRow(ctx, sqlAsynchronous).Scan(&asynchronous))
	})
	if err == nil && asynchronous {
		p.log.Warn("postgres.failover is lossless, but commits do not wait for the standbys of this server (synchronous_standby_names is empty): one that is promoted may lack the last ones")
	}
}

// sqlServerMark: the WAL file name shows a new timeline at once after a promotion and needs no privilege.
const sqlServerMark = `/* server_mark */
SELECT system_identifier::text || '/' || ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint::text FROM pg_control_system()`

// unknownMark is the mark of a server that does not tell its identity.
const unknownMark = "unknown"

// ServerMark implements Control.
func (p *Postgres) ServerMark(ctx context.Context) (string, error) {
	mark := unknownMark
	err := p.withConn(ctx, p.control, func(ctx context.Context, conn *pgxpool.Conn) error {
		err := conn.QueryRow(ctx, sqlServerMark).Scan(&mark)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && (pgErr.Code == "42501" || pgErr.Code == "42883") { // no right to it, no such function
			p.noMark.Store(true)
			mark = unknownMark
			return nil
		}
		return p.classify(conn, err)
	})
	if err != nil {
		return "", fmt.Errorf("read server mark: %w", err)
	}
	return mark, nil
}

const (
	sqlRenew = `/* renew */
UPDATE pgbroker_internal.brokers
SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond', lease_ms = $4, beat = beat + 1, backend_pid = pg_backend_pid()
WHERE broker_id = $1 AND incarnation = $2 AND state IN (1, 2) RETURNING beat`
	sqlOwnShards = `/* own_shards */
SELECT s.shard, (SELECT max(q.seq) FROM pgbroker_internal.shard_seqs q WHERE q.shard = s.shard) FROM pgbroker_internal.coordinator_shards s WHERE s.owner = $1`
)

// Renew implements Control. It is one round trip and one transaction; the update comes first. ErrUnknownOutcome means
// that the lease may or may not be longer: trust must not grow.
func (p *Postgres) Renew(ctx context.Context, o Owner, lease time.Duration, knownCatalog int64) (Renewal, error) {
	var r Renewal
	var renewed bool
	trim := &p.trim
	err := p.batch(ctx, p.control, func(b *pgx.Batch) {
		r, renewed = Renewal{ShardSeqs: map[int16]int64{}, ServerMark: unknownMark}, false
		b.Queue(sqlRenew, o.BrokerID, o.Incarnation, lease.Microseconds(), leaseMs(lease)).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&r.Beat}, func() error {
				renewed = true
				return nil
			})
			return err
		})
		b.Queue(sqlCatalog, knownCatalog).Query(func(rows pgx.Rows) (err error) {
			r.Catalog, err = scanCatalog(rows)
			return err
		})
		b.Queue(sqlOwnShards, o.BrokerID).Query(func(rows pgx.Rows) error {
			var shard int16
			var seq int64
			_, err := pgx.ForEachRow(rows, []any{&shard, &seq}, func() error {
				r.ShardSeqs[shard] = seq
				return nil
			})
			return err
		})
		if !p.noMark.Load() {
			b.Queue(sqlServerMark).QueryRow(func(row pgx.Row) error { return row.Scan(&r.ServerMark) })
		}
		if t := trim.take(); len(t.shards) > 0 {
			b.Queue(sqlShardsTrim, t.shards, t.first, t.below)
		}
	})
	if err != nil {
		return Renewal{}, fmt.Errorf("renew lease of broker %d: %w", o.BrokerID, err)
	}
	if !renewed {
		return Renewal{}, fmt.Errorf("renew lease of broker %d: %w", o.BrokerID, p.whyFenced(ctx, o))
	}
	trim.settled(r.ShardSeqs)
	return r, nil
}

// whyFenced tells a newer registration from a database that has forgotten ours.
func (p *Postgres) whyFenced(ctx context.Context, o Owner) (why error) {
	err := p.withConn(ctx, p.control, func(ctx context.Context, conn *pgxpool.Conn) error {
		var err error
		why, err = fencedOrForked(ctx, conn, o)
		return p.classify(conn, err)
	})
	return errors.Join(why, err)
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func fencedOrForked(ctx context.Context, q queryer, o Owner) (why, err error) {
	var incarnation int64
	if err := q.QueryRow(ctx, sqlIncarnation, o.BrokerID).Scan(&incarnation); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	if incarnation < o.Incarnation {
		return ErrForked, nil
	}
	return ErrFenced, nil
}

// leaseMs is what operators see; a lease below a millisecond counts as one.
func leaseMs(lease time.Duration) int64 { return max(lease.Milliseconds(), 1) }

const (
	// sqlOwnerGuard is the first statement of every control transaction of a broker.
	sqlOwnerGuard = `/* owner_guard */
UPDATE pgbroker_internal.brokers SET beat = beat + 1 WHERE broker_id = $1 AND incarnation = $2 AND state IN (1, 2)`
	sqlIncarnation = `/* incarnation */ SELECT incarnation FROM pgbroker_internal.brokers WHERE broker_id = $1`
	sqlBrokerState = `/* broker_state */
UPDATE pgbroker_internal.brokers SET state = $2::smallint, version = $3, lease_until = CASE WHEN $2::smallint = 3 THEN clock_timestamp() ELSE lease_until END
WHERE broker_id = $1`
	sqlClusterLock = `/* cluster_lock */ SELECT history, catalog_version FROM pgbroker_internal.cluster FOR UPDATE`
	sqlClusterMove = `/* cluster_move */ UPDATE pgbroker_internal.cluster SET catalog_version = $1`
)

// guardOwner proves that o still is the broker and holds its row until the end.
func guardOwner(ctx context.Context, tx pgx.Tx, o Owner) error {
	tag, err := tx.Exec(ctx, sqlOwnerGuard, o.BrokerID, o.Incarnation)
	if err != nil || tag.RowsAffected() == 1 {
		return err
	}
	why, err := fencedOrForked(ctx, tx, o)
	return errors.Join(why, err)
}

// lockCluster orders catalog changes of all brokers; it comes after the broker's own row and before all others.
func lockCluster(ctx context.Context, tx pgx.Tx) (history int32, version int64, err error) {
	err = tx.QueryRow(ctx, sqlClusterLock).Scan(&history, &version)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNotBootstrapped
	}
	return history, version, err
}

// catalogTx runs fn in a durable transaction that is guarded by o and ordered by the cluster row. fn returns whether
// it changed something; if so the catalog moves to the version that fn was given.
func (p *Postgres) catalogTx(ctx context.Context, o Owner, fn func(ctx context.Context, tx pgx.Tx, history int32, version int64) (bool, error)) error {
	return p.tx(ctx, p.durable, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if err := guardOwner(ctx, tx, o); err != nil {
			return err
		}
		history, version, err := lockCluster(ctx, tx)
		if err != nil {
			return err
		}
		changed, err := fn(ctx, tx, history, version+1)
		if err != nil || !changed {
			return err
		}
		_, err = tx.Exec(ctx, sqlClusterMove, version+1)
		return err
	})
}

// SetBrokerState implements Control.
func (p *Postgres) SetBrokerState(ctx context.Context, o Owner, s BrokerState) error {
	if s != BrokerStopping && s != BrokerStopped {
		return fmt.Errorf("set state of broker %d: state %d is not one to set", o.BrokerID, s)
	}
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, _ int32, version int64) (bool, error) {
		_, err := tx.Exec(ctx, sqlBrokerState, o.BrokerID, int16(s), version)
		return true, err
	})
	if err != nil {
		return fmt.Errorf("set state of broker %d: %w", o.BrokerID, err)
	}
	return nil
}

const sqlTakeShards = `/* take_shards */
WITH floor AS (SELECT * FROM unnest($4::smallint[], $5::integer[]) f(shard, term)),
locked AS MATERIALIZED (SELECT shard FROM pgbroker_internal.coordinator_shards ORDER BY shard FOR UPDATE)
UPDATE pgbroker_internal.coordinator_shards s
SET owner = $1, version = $3, history = $2,
    term = greatest(s.term, coalesce((SELECT max(term) FROM floor WHERE floor.shard = s.shard), 0))
           + CASE WHEN s.history < $2 THEN 1000 ELSE 1 END
FROM locked WHERE s.shard = locked.shard`

// sqlShardsSweep leaves of each shard the highest seq: no statement of an older term can take effect any more.
const sqlShardsSweep = `/* shards_sweep */
DELETE FROM pgbroker_internal.shard_seqs q USING pgbroker_internal.coordinator_shards s
WHERE s.shard = q.shard AND q.seq < (SELECT max(m.seq) FROM pgbroker_internal.shard_seqs m WHERE m.shard = s.shard)`

func allShards() []int16 {
	all := make([]int16, Shards)
	for n := range all {
		all[n] = int16(n)
	}
	return all
}

// TakeShards implements Control.
func (p *Postgres) TakeShards(ctx context.Context, o Owner, floors map[int16]int32) ([]Shard, error) {
	var out []Shard
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, history int32, version int64) (bool, error) {
		shards, terms := shardFloorArrays(floors)
		if _, err := tx.Exec(ctx, sqlTakeShards, o.BrokerID, history, version, shards, terms); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, sqlShardsSweep); err != nil {
			return false, err
		}
		taken, err := readShards(ctx, tx, allShards())
		out = slices.Collect(maps.Values(taken))
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("take shards for broker %d: %w", o.BrokerID, err)
	}
	sortShards(out)
	return out, nil
}

// trimming removes seqs that a renewal has found settled, with the next renewal.
type trimming struct {
	mu    sync.Mutex
	last  map[int16]int64 // up to which it is done
	found map[int16]int64 // of the last renewal
}

type shardsToCut struct {
	shards       []int16
	first, below []int64
}

// settled notes what a renewal that has returned had read.
func (t *trimming) settled(seqs map[int16]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.found = seqs
}

// take is what can go now.
func (t *trimming) take() (cut shardsToCut) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.found == nil {
		return cut
	}
	for shard, seq := range t.found {
		if first := t.last[shard]; first < seq {
			cut.shards, cut.first, cut.below = append(cut.shards, shard), append(cut.first, first), append(cut.below, seq)
		}
	}
	t.last, t.found = t.found, nil
	return cut
}
