package meta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	sqlTopicsInsert = `/* topics_insert */
INSERT INTO pgbroker_internal.topics (topic_id, name, created_at, version)
SELECT topic_id, name, clock_timestamp(), $1 FROM unnest($2::uuid[], $3::text[]) w(topic_id, name)
ON CONFLICT DO NOTHING RETURNING topic_id`
	sqlConfigsInsert = `/* configs_insert */
INSERT INTO pgbroker_internal.topic_configs (topic_id, name, value)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[])
ON CONFLICT (topic_id, name) DO UPDATE SET value = excluded.value`
	// Arrays of arrays would have to be rectangular, so a list of brokers travels as its text.
	sqlPartitionsInsert = `/* partitions_insert */
INSERT INTO pgbroker_internal.partitions (topic_id, partition, leader, leader_term, partition_epoch, replicas, isr, history, version)
SELECT topic_id, partition, (replicas::integer[])[1], 1, 0, replicas::integer[], replicas::integer[], $1, $2
FROM unnest($3::uuid[], $4::integer[], $5::text[]) w(topic_id, partition, replicas)`
)

// newPartitions are parameters of sqlPartitionsInsert.
type newPartitions struct {
	ids      []pgtype.UUID
	numbers  []int32
	replicas []string
}

func (n *newPartitions) add(id UUID, first int, replicas [][]int32) {
	for i, r := range replicas {
		n.ids = append(n.ids, pgUUID(id))
		n.numbers = append(n.numbers, int32(first+i))
		n.replicas = append(n.replicas, arrayText(r))
	}
}

func (n *newPartitions) insert(ctx context.Context, tx pgx.Tx, history int32, version int64) error {
	_, err := tx.Exec(ctx, sqlPartitionsInsert, history, version, n.ids, n.numbers, n.replicas)
	return err
}

func arrayText(list []int32) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(v), 10))
	}
	b.WriteByte('}')
	return b.String()
}

// CreateTopics implements CatalogStore.
func (p *Postgres) CreateTopics(ctx context.Context, o Owner, topics []NewTopic) (Catalog, []error, error) {
	if err := CheckNewTopics(topics); err != nil {
		return Catalog{}, nil, fmt.Errorf("create topics: %w", err)
	}
	var c Catalog
	var errs []error
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, history int32, version int64) (bool, error) {
		ids := column(topics, func(t *NewTopic) pgtype.UUID { return pgUUID(t.ID) })
		names := column(topics, func(t *NewTopic) string { return t.Name })
		made, err := collectIDs(tx.Query(ctx, sqlTopicsInsert, version, ids, names))
		if err != nil {
			return false, err
		}
		if errs, err = insertNewTopics(ctx, tx, topics, made, history, version); err != nil {
			return false, err
		}
		c, err = readCatalogAs(ctx, tx, version, len(made) > 0)
		return len(made) > 0, err
	})
	if err != nil {
		return Catalog{}, nil, fmt.Errorf("create topics: %w", err)
	}
	return c, errs, nil
}

func insertNewTopics(ctx context.Context, tx pgx.Tx, topics []NewTopic, made map[UUID]bool, history int32, version int64) ([]error, error) {
	errs := make([]error, len(topics))
	var parts newPartitions
	var ids []pgtype.UUID
	var names, values []string
	done := map[UUID]bool{}
	for i, t := range topics {
		if !made[t.ID] || done[t.ID] {
			errs[i] = ErrTopicExists
			continue
		}
		done[t.ID] = true
		parts.add(t.ID, 0, t.Replicas)
		for name, value := range t.Configs {
			ids, names, values = append(ids, pgUUID(t.ID)), append(names, name), append(values, toText(value))
		}
	}
	if len(parts.ids) == 0 {
		return errs, nil
	}
	if err := parts.insert(ctx, tx, history, version); err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		if _, err := tx.Exec(ctx, sqlConfigsInsert, ids, names, values); err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// readCatalogAs reads the catalog inside its change: the version becomes the new one at the end of the transaction.
func readCatalogAs(ctx context.Context, tx pgx.Tx, version int64, changed bool) (Catalog, error) {
	c, err := readCatalog(ctx, tx)
	if changed {
		c.Cluster.CatalogVersion = version
	}
	return c, err
}

func collectIDs(rows pgx.Rows, err error) (map[UUID]bool, error) {
	if err != nil {
		return nil, err
	}
	out := map[UUID]bool{}
	var id UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		out[id] = true
		return nil
	})
	return out, err
}

const (
	sqlTopicsDelete        = `/* topics_delete */ DELETE FROM pgbroker_internal.topics WHERE topic_id = ANY ($1::uuid[]) RETURNING topic_id`
	sqlTopicConfigsDelete  = `/* topic_configs_delete */ DELETE FROM pgbroker_internal.topic_configs WHERE topic_id = ANY ($1::uuid[])`
	sqlPartitionsDelete    = `/* partitions_delete */ DELETE FROM pgbroker_internal.partitions WHERE topic_id = ANY ($1::uuid[])`
	sqlTopicLogsDelete     = `/* topic_logs_delete */ DELETE FROM pgbroker_internal.log_offsets WHERE topic_id = ANY ($1::uuid[])`
	sqlTopicOffsetsDelete  = `/* topic_offsets_delete */ DELETE FROM pgbroker_internal.group_offsets WHERE topic_id = ANY ($1::uuid[])`
	sqlTopicPendingsDelete = `/* topic_pendings_delete */ DELETE FROM pgbroker_internal.transaction_offsets WHERE topic_id = ANY ($1::uuid[])`
)

// deleteTopics removes topics with all that belongs to them, and returns those that there were.
func deleteTopics(ctx context.Context, tx pgx.Tx, ids []UUID) (map[UUID]bool, error) {
	arg := pgUUIDs(ids)
	for _, stmt := range []string{sqlTopicConfigsDelete, sqlPartitionsDelete, sqlTopicLogsDelete, sqlTopicOffsetsDelete, sqlTopicPendingsDelete} {
		if _, err := tx.Exec(ctx, stmt, arg); err != nil {
			return nil, err
		}
	}
	return collectIDs(tx.Query(ctx, sqlTopicsDelete, arg))
}

// DeleteTopics implements CatalogStore.
func (p *Postgres) DeleteTopics(ctx context.Context, o Owner, ids []UUID) (Catalog, []error, error) {
	var c Catalog
	var errs []error
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, _ int32, version int64) (bool, error) {
		gone, err := deleteTopics(ctx, tx, ids)
		if err != nil {
			return false, err
		}
		changed := len(gone) > 0
		errs = make([]error, len(ids))
		for i, id := range ids {
			if !gone[id] {
				errs[i] = ErrUnknownTopic
			}
			delete(gone, id) // named twice: the second is unknown
		}
		c, err = readCatalogAs(ctx, tx, version, changed)
		return changed, err
	})
	if err != nil {
		return Catalog{}, nil, fmt.Errorf("delete topics: %w", err)
	}
	return c, errs, nil
}

const (
	sqlTopicExists     = `/* topic_exists */ SELECT count(*) FROM pgbroker_internal.topics WHERE topic_id = $1`
	sqlPartitionsCount = `/* partitions_count */ SELECT count(*) FROM pgbroker_internal.partitions WHERE topic_id = $1`
	sqlTopicTouch      = `/* topic_touch */ UPDATE pgbroker_internal.topics SET version = $2 WHERE topic_id = $1`
	sqlConfigsRemove   = `/* configs_remove */ DELETE FROM pgbroker_internal.topic_configs WHERE topic_id = $1 AND name = ANY ($2::text[])`
)

// changeTopic runs fn on a topic that exists and returns the catalog after it.
func (p *Postgres) changeTopic(ctx context.Context, o Owner, id UUID, fn func(ctx context.Context, tx pgx.Tx, history int32, version int64) error) (Catalog, error) {
	var c Catalog
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, history int32, version int64) (bool, error) {
		var n int
		if err := tx.QueryRow(ctx, sqlTopicExists, pgUUID(id)).Scan(&n); err != nil {
			return false, err
		}
		if n == 0 {
			return false, ErrUnknownTopic
		}
		if err := fn(ctx, tx, history, version); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, sqlTopicTouch, pgUUID(id), version); err != nil {
			return false, err
		}
		var err error
		c, err = readCatalogAs(ctx, tx, version, true)
		return true, err
	})
	return c, err
}

// AddPartitions implements CatalogStore.
func (p *Postgres) AddPartitions(ctx context.Context, o Owner, id UUID, known int, replicas [][]int32) (Catalog, error) {
	err := CheckReplicas(replicas)
	if err != nil {
		return Catalog{}, fmt.Errorf("add partitions: %w", err)
	}
	c, err := p.changeTopic(ctx, o, id, func(ctx context.Context, tx pgx.Tx, history int32, version int64) error {
		var n int
		if err := tx.QueryRow(ctx, sqlPartitionsCount, pgUUID(id)).Scan(&n); err != nil {
			return err
		}
		if n != known {
			return ErrStale
		}
		var parts newPartitions
		parts.add(id, known, replicas)
		return parts.insert(ctx, tx, history, version)
	})
	if err != nil {
		return Catalog{}, fmt.Errorf("add partitions: %w", err)
	}
	return c, nil
}

// SetTopicConfigs implements CatalogStore. A property that is both set and removed is set.
func (p *Postgres) SetTopicConfigs(ctx context.Context, o Owner, id UUID, set map[string]string, remove []string) (Catalog, error) {
	c, err := p.changeTopic(ctx, o, id, func(ctx context.Context, tx pgx.Tx, _ int32, _ int64) error {
		if len(remove) > 0 {
			if _, err := tx.Exec(ctx, sqlConfigsRemove, pgUUID(id), remove); err != nil {
				return err
			}
		}
		if len(set) == 0 {
			return nil
		}
		var ids []pgtype.UUID
		var names, values []string
		for name, value := range set {
			ids, names, values = append(ids, pgUUID(id)), append(names, name), append(values, toText(value))
		}
		_, err := tx.Exec(ctx, sqlConfigsInsert, ids, names, values)
		return err
	})
	if err != nil {
		return Catalog{}, fmt.Errorf("set topic configs: %w", err)
	}
	return c, nil
}

const sqlPartitionsChange = `/* partitions_change */
WITH want AS (
  SELECT * FROM unnest($2::uuid[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[],
                       $10::text[], $11::text[], $12::text[], $13::text[], $14::text[])
    w(topic_id, partition, guard_term, guard_epoch, guard_history, leader, term, history, replicas, isr, elr, adding, removing)),
locked AS MATERIALIZED (
  SELECT w.* FROM pgbroker_internal.partitions p JOIN want w USING (topic_id, partition)
  WHERE p.leader_term = w.guard_term AND p.partition_epoch = w.guard_epoch AND p.history = w.guard_history
  ORDER BY p.topic_id, p.partition FOR UPDATE OF p)
UPDATE pgbroker_internal.partitions p
SET leader = w.leader, leader_term = w.term, partition_epoch = p.partition_epoch + 1, history = w.history, version = $1,
    replicas = w.replicas::integer[], isr = w.isr::integer[], elr = w.elr::integer[],
    adding_replicas = w.adding::integer[], removing_replicas = w.removing::integer[]
FROM locked w WHERE p.topic_id = w.topic_id AND p.partition = w.partition`

// ChangePartitions implements Control.
func (p *Postgres) ChangePartitions(ctx context.Context, o Owner, changes []PartitionChange) error {
	if len(changes) == 0 {
		return nil
	}
	for i := range changes {
		if err := CheckPartitionChange(changes[i]); err != nil {
			return fmt.Errorf("change partitions: %w", err)
		}
	}
	ints := func(f func(*PartitionChange) int32) []int32 { return column(changes, f) }
	lists := func(f func(*PartitionChange) []int32) []string {
		return column(changes, func(c *PartitionChange) string { return arrayText(f(c)) })
	}
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, _ int32, version int64) (bool, error) {
		tag, err := tx.Exec(ctx, sqlPartitionsChange, version,
			column(changes, func(c *PartitionChange) pgtype.UUID { return pgUUID(c.Guard.TopicID) }),
			ints(func(c *PartitionChange) int32 { return c.Guard.Partition }),
			ints(func(c *PartitionChange) int32 { return c.Guard.Term }),
			ints(func(c *PartitionChange) int32 { return c.Guard.Epoch }),
			ints(func(c *PartitionChange) int32 { return c.Guard.History }),
			ints(func(c *PartitionChange) int32 { return c.Row.Leader }),
			ints(func(c *PartitionChange) int32 { return c.Row.Term }),
			ints(func(c *PartitionChange) int32 { return c.Row.History }),
			lists(func(c *PartitionChange) []int32 { return c.Row.Replicas }),
			lists(func(c *PartitionChange) []int32 { return c.Row.ISR }),
			lists(func(c *PartitionChange) []int32 { return c.Row.ELR }),
			lists(func(c *PartitionChange) []int32 { return c.Row.Adding }),
			lists(func(c *PartitionChange) []int32 { return c.Row.Removing }))
		if err == nil && tag.RowsAffected() != int64(len(changes)) {
			err = ErrStale
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("change partitions: %w", err)
	}
	return nil
}

const sqlProducerIDs = `/* producer_ids */
UPDATE pgbroker_internal.counters SET value = value + $1 WHERE name = 'producer_id' RETURNING value - $1`

// AllocateProducerIDs implements CatalogStore. A block whose COMMIT was of unknown outcome is never asked for again.
func (p *Postgres) AllocateProducerIDs(ctx context.Context, o Owner, n int64) (first int64, err error) {
	if n <= 0 {
		return 0, fmt.Errorf("allocate producer ids: %d is not positive", n)
	}
	err = p.tx(ctx, p.durable, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if err := guardOwner(ctx, tx, o); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, sqlProducerIDs, n).Scan(&first)
		if errors.Is(err, pgx.ErrNoRows) {
			err = errNotBootstrapped
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("allocate producer ids: %w", err)
	}
	return first, nil
}

// The join skips partitions that are deleted meanwhile; the order is everybody's lock order.
const sqlLogOffsets = `/* log_offsets */
INSERT INTO pgbroker_internal.log_offsets AS t (topic_id, partition, start_offset, stable_offset, high_offset, end_offset, size_bytes, reported_at)
SELECT w.topic_id, w.partition, w.start_offset, w.stable_offset, w.high_offset, w.end_offset, w.size_bytes, clock_timestamp()
FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
     w(topic_id, partition, start_offset, stable_offset, high_offset, end_offset, size_bytes)
JOIN pgbroker_internal.partitions USING (topic_id, partition)
ORDER BY w.topic_id, w.partition
ON CONFLICT (topic_id, partition) DO UPDATE
SET start_offset = excluded.start_offset, stable_offset = excluded.stable_offset, high_offset = excluded.high_offset,
    end_offset = excluded.end_offset, size_bytes = excluded.size_bytes, reported_at = excluded.reported_at`

// SaveLogOffsets implements CatalogStore. One row per partition.
func (p *Postgres) SaveLogOffsets(ctx context.Context, offsets []LogOffset) error {
	if len(offsets) == 0 {
		return nil
	}
	longs := func(f func(*LogOffset) int64) []int64 { return column(offsets, f) }
	err := p.batch(ctx, p.relaxed, func(b *pgx.Batch) {
		b.Queue(sqlLogOffsets,
			column(offsets, func(o *LogOffset) pgtype.UUID { return pgUUID(o.TopicID) }),
			column(offsets, func(o *LogOffset) int32 { return o.Partition }),
			longs(func(o *LogOffset) int64 { return o.Start }), longs(func(o *LogOffset) int64 { return o.Stable }),
			longs(func(o *LogOffset) int64 { return o.High }), longs(func(o *LogOffset) int64 { return o.End }),
			longs(func(o *LogOffset) int64 { return o.SizeBytes }))
	})
	if err != nil {
		return fmt.Errorf("save log offsets: %w", err)
	}
	return nil
}
