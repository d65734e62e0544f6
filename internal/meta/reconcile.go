package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	sqlReconcileLock = `/* reconcile_lock */ SELECT history, catalog_version FROM pgbroker_internal.cluster FOR UPDATE`
	sqlReconcileMark = `/* reconcile_mark */
UPDATE pgbroker_internal.cluster SET history = $1, history_began = clock_timestamp(), server_mark = $2, catalog_version = $3`
	sqlReconcileBroker = `/* reconcile_broker */
UPDATE pgbroker_internal.brokers
SET incarnation = $2, process_id = $3, state = 1, lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond', beat = beat + 1
WHERE broker_id = $1`
	sqlReconcileTopics = `/* reconcile_topics */
INSERT INTO pgbroker_internal.topics (topic_id, name, created_at, version)
SELECT topic_id, name, coalesce(created_at, clock_timestamp()), $1 FROM unnest($2::uuid[], $3::text[], $4::timestamptz[]) w(topic_id, name, created_at)`
	sqlReconcilePartitions = `/* reconcile_partitions */
INSERT INTO pgbroker_internal.partitions AS p (topic_id, partition, leader, leader_term, partition_epoch, replicas, isr, elr, adding_replicas, removing_replicas, history, version)
SELECT topic_id, partition, leader, term, epoch, replicas::integer[], isr::integer[], elr::integer[], adding::integer[], removing::integer[], $1, $2
FROM unnest($3::uuid[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
  w(topic_id, partition, leader, term, epoch, replicas, isr, elr, adding, removing)
ON CONFLICT (topic_id, partition) DO UPDATE
SET leader = excluded.leader, leader_term = excluded.leader_term, partition_epoch = excluded.partition_epoch, replicas = excluded.replicas,
    isr = excluded.isr, elr = excluded.elr, adding_replicas = excluded.adding_replicas, removing_replicas = excluded.removing_replicas,
    history = excluded.history, version = excluded.version`
	sqlReconcileConfirm = `/* reconcile_confirm */
UPDATE pgbroker_internal.partitions SET history = $2, partition_epoch = partition_epoch + 1, version = $3 WHERE leader = $1 AND history < $2`
	sqlReconcileShards = `/* reconcile_shards */
UPDATE pgbroker_internal.coordinator_shards s SET owner = $1, term = w.term, version = $2 FROM unnest($3::smallint[], $4::integer[]) w(shard, term) WHERE s.shard = w.shard`
	sqlReconcileShardHistory = `/* reconcile_shard_history */
UPDATE pgbroker_internal.coordinator_shards SET history = $2 WHERE owner = $1`
	sqlReconcileEpochs = `/* reconcile_epochs */ UPDATE pgbroker_internal.transactions SET epoch = $1, version = version + 1`
	sqlReconcileNextID = `/* reconcile_next_id */ SELECT value FROM pgbroker_internal.counters WHERE name = 'producer_id' FOR UPDATE`
	sqlReconcileSetID  = `/* reconcile_set_id */ UPDATE pgbroker_internal.counters SET value = $1 WHERE name = 'producer_id'`
)

// reconcileLimit bounds Reconcile: ten thousand partitions take a second at most.
const reconcileLimit = 20 * time.Second

// Reconcile implements Control. Sessions of the other pools that lead to the server whose history it is are used from then on.
func (p *Postgres) Reconcile(ctx context.Context, r Registration, k Known) (Reconciled, error) {
	mark, err := p.ServerMark(ctx)
	if err != nil {
		return Reconciled{}, fmt.Errorf("reconcile: %w", err)
	}
	ctx, cancel := withLimit(ctx, reconcileLimit)
	defer cancel()
	var out Reconciled
	err = p.tx(ctx, p.control, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		out = Reconciled{}
		history, version, err := putBackBroker(ctx, tx, r, k)
		if err != nil {
			return err
		}
		if err := out.putBack(ctx, tx, r.BrokerID, k, history, version); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlReconcileMark, history, mark, version); err != nil {
			return err
		}
		out.Catalog, err = readCatalog(ctx, tx)
		return err
	})
	if err != nil {
		return Reconciled{}, fmt.Errorf("reconcile: %w", err)
	}
	p.mark.Store(&mark)
	return out, nil
}

// putBackBroker locks the broker's row and the cluster's, and gives the row the incarnation that is known. The history
// and the catalog version that it returns are above all that anybody has seen.
func putBackBroker(ctx context.Context, tx pgx.Tx, r Registration, k Known) (history int32, version int64, err error) {
	var old registeredRow
	found, err := old.read(ctx, tx, r.BrokerID)
	if err != nil {
		return 0, 0, err
	}
	if found {
		if err := MayReconcile(old.incarnation, old.process, r, k); err != nil {
			return 0, 0, err
		}
		if err := old.mayReplace(r); err != nil {
			return 0, 0, err
		}
	}
	err = tx.QueryRow(ctx, sqlReconcileLock).Scan(&history, &version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, errNotBootstrapped
	}
	if err != nil {
		return 0, 0, err
	}
	history = max(history, k.Catalog.Cluster.History) + 1
	version = max(version, k.Catalog.Cluster.CatalogVersion) + 1
	switch {
	case !found && k.Incarnation > 0:
		endpoints, err := json.Marshal(orEmpty(r.Endpoints))
		if err != nil {
			return 0, 0, err
		}
		_, err = tx.Exec(ctx, sqlRegisterInsert, r.BrokerID, k.Incarnation, pgUUID(r.ProcessID), r.Lease.Microseconds(), leaseMs(r.Lease),
			pgUUIDs(r.LogDirs), string(endpoints), r.Rack, r.Software, version)
		return history, version, err
	case found && old.incarnation < k.Incarnation:
		_, err = tx.Exec(ctx, sqlReconcileBroker, r.BrokerID, k.Incarnation, pgUUID(r.ProcessID), r.Lease.Microseconds())
	}
	return history, version, err
}

// MayReconcile refuses a process that is not the broker any more.
func MayReconcile(incarnation int64, process UUID, r Registration, k Known) error {
	if k.Live && (incarnation > k.Incarnation || incarnation == k.Incarnation && process != r.ProcessID) {
		return ErrFenced
	}
	return nil
}

func (out *Reconciled) putBack(ctx context.Context, tx pgx.Tx, broker int32, k Known, history int32, version int64) error {
	stored, err := readCatalog(ctx, tx)
	if err != nil {
		return err
	}
	var nextID int64
	if err := tx.QueryRow(ctx, sqlReconcileNextID).Scan(&nextID); err != nil {
		return err
	}
	plan, err := PlanReconcile(stored, nextID, k)
	if err != nil {
		return err
	}
	if err := plan.write(ctx, tx, history, version); err != nil {
		return err
	}
	if plan.NextProducerID != nextID {
		if _, err := tx.Exec(ctx, sqlReconcileSetID, plan.NextProducerID); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, sqlReconcileConfirm, broker, history, version); err != nil {
		return err
	}
	shards, err := lockShards(ctx, tx, allShards())
	if err != nil {
		return err
	}
	write, losses, err := PlanShards(slices.Collect(maps.Values(shards)), broker, k)
	if err != nil {
		return err
	}
	if len(write) > 0 {
		if _, err := tx.Exec(ctx, sqlReconcileShards, broker, version, column(write, func(s *Shard) int16 { return s.Shard }), column(write, func(s *Shard) int32 { return s.Term })); err != nil {
			return err
		}
	}
	switch {
	case k.Live:
		_, err = tx.Exec(ctx, sqlReconcileShardHistory, broker, history)
	case !k.Intact:
		_, err = tx.Exec(ctx, sqlReconcileEpochs, LastProducerEpoch)
	}
	if err != nil {
		return err
	}
	for _, s := range write {
		shards[s.Shard] = s
	}
	for _, s := range shards {
		if s.Owner == broker {
			out.Shards = append(out.Shards, s)
		}
	}
	sortShards(out.Shards)
	out.Losses = append(plan.Losses, losses...)
	return nil
}

func (p *ReconcilePlan) write(ctx context.Context, tx pgx.Tx, history int32, version int64) error {
	if len(p.Delete) > 0 {
		if _, err := deleteTopics(ctx, tx, p.Delete); err != nil {
			return err
		}
	}
	if t := p.Create; len(t) > 0 {
		_, err := tx.Exec(ctx, sqlReconcileTopics, version, column(t, func(t *Topic) pgtype.UUID { return pgUUID(t.ID) }),
			column(t, func(t *Topic) string { return t.Name }), column(t, func(t *Topic) *time.Time { return timeOrNull(t.CreatedAt) }))
		if err != nil {
			return err
		}
	}
	if err := p.writeConfigs(ctx, tx); err != nil {
		return err
	}
	if err := p.writeResources(ctx, tx); err != nil {
		return err
	}
	r := p.Partitions
	if len(r) == 0 {
		return nil
	}
	ints := func(f func(*Partition) int32) []int32 { return column(r, f) }
	lists := func(f func(*Partition) []int32) []string {
		return column(r, func(p *Partition) string { return arrayText(f(p)) })
	}
	_, err := tx.Exec(ctx, sqlReconcilePartitions, history, version, column(r, func(p *Partition) pgtype.UUID { return pgUUID(p.TopicID) }),
		ints(func(p *Partition) int32 { return p.Partition }), ints(func(p *Partition) int32 { return p.Leader }),
		ints(func(p *Partition) int32 { return p.Term }), ints(func(p *Partition) int32 { return p.Epoch }),
		lists(func(p *Partition) []int32 { return p.Replicas }), lists(func(p *Partition) []int32 { return p.ISR }),
		lists(func(p *Partition) []int32 { return p.ELR }), lists(func(p *Partition) []int32 { return p.Adding }),
		lists(func(p *Partition) []int32 { return p.Removing }))
	return err
}

func (p *ReconcilePlan) writeConfigs(ctx context.Context, tx pgx.Tx) error {
	if len(p.Configs) > 0 {
		if _, err := tx.Exec(ctx, sqlTopicConfigsDelete, pgUUIDs(column(p.Configs, func(t *Topic) UUID { return t.ID }))); err != nil {
			return err
		}
	}
	var ids []pgtype.UUID
	var names, values []string
	for _, t := range slices.Concat(p.Create, p.Configs) {
		for name, value := range t.Configs {
			ids, names, values = append(ids, pgUUID(t.ID)), append(names, name), append(values, toText(value))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, sqlConfigsInsert, ids, names, values)
	return err
}

const sqlBrokerLook = `/* broker_look */ SELECT incarnation, beat FROM pgbroker_internal.brokers WHERE broker_id = $1`

// Look implements Control.
func (p *Postgres) Look(ctx context.Context, broker int32) (Sight, error) {
	var s Sight
	mark, err := p.ServerMark(ctx)
	if err != nil {
		return s, fmt.Errorf("look at broker %d: %w", broker, err)
	}
	err = p.tx(ctx, p.control, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		s = Sight{ServerMark: mark}
		err := tx.QueryRow(ctx, sqlBrokerLook, broker).Scan(&s.Incarnation, &s.Beat)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		s.Catalog, err = readCatalog(ctx, tx)
		return err
	})
	if err != nil {
		return Sight{}, fmt.Errorf("look at broker %d: %w", broker, err)
	}
	return s, nil
}
