package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Rows of many shards travel as one array per column. A row replaces only an older version of itself; one of the same or a
// newer version divides by zero, which ends the whole commit as a missed guard does, and so does its deletion.
const (
	sqlGroupsUpsert = `/* groups_upsert */
INSERT INTO pgbroker_internal.consumer_groups AS t
  (shard, group_id, kind, protocol_type, protocol, generation, leader, empty_since, assignment_epoch, subscription_hash, version)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[], $8::timestamptz[], $9::integer[], $10::bigint[], $11::bigint[])
ON CONFLICT (group_id) DO UPDATE
SET kind = excluded.kind, protocol_type = excluded.protocol_type, protocol = excluded.protocol, generation = excluded.generation,
    leader = excluded.leader, empty_since = excluded.empty_since, assignment_epoch = excluded.assignment_epoch,
    subscription_hash = excluded.subscription_hash, version = excluded.version / (t.version < excluded.version)::integer`
	sqlMembersUpsert = `/* members_upsert */
INSERT INTO pgbroker_internal.group_members AS t
  (shard, group_id, member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, protocols, assignment, consumer, version)
SELECT w.shard, w.group_id, w.member_id, w.instance_id, w.client_id, w.client_host, w.session_ms, w.rebalance_ms, w.protocols::jsonb, w.assignment, w.consumer::jsonb, w.version
FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[], $8::integer[], $9::text[], $10::bytea[], $11::text[], $12::bigint[])
     w(shard, group_id, member_id, instance_id, client_id, client_host, session_ms, rebalance_ms, protocols, assignment, consumer, version)
ON CONFLICT (group_id, member_id) DO UPDATE
SET instance_id = excluded.instance_id, client_id = excluded.client_id, client_host = excluded.client_host,
    session_timeout_ms = excluded.session_timeout_ms, rebalance_timeout_ms = excluded.rebalance_timeout_ms,
    protocols = excluded.protocols, assignment = excluded.assignment, consumer = excluded.consumer, version = excluded.version / (t.version < excluded.version)::integer`
	sqlOffsetsUpsert = `/* offsets_upsert */
INSERT INTO pgbroker_internal.group_offsets AS t
  (shard, group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at, expires_at, version)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::integer[], $7::text[], $8::timestamptz[], $9::timestamptz[], $10::bigint[])
ON CONFLICT (group_id, topic_id, partition) DO UPDATE
SET committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at = excluded.committed_at, expires_at = excluded.expires_at,
    version = excluded.version / (t.version < excluded.version)::integer`
	sqlGroupsDelete = `/* groups_delete */
WITH w AS (SELECT * FROM unnest($1::text[], $2::bigint[]) w(group_id, version)),
members AS (DELETE FROM pgbroker_internal.group_members t USING w WHERE t.group_id = w.group_id AND 1 / (t.version <= w.version)::integer = 1),
offsets AS (DELETE FROM pgbroker_internal.group_offsets t USING w WHERE t.group_id = w.group_id AND 1 / (t.version <= w.version)::integer = 1)
DELETE FROM pgbroker_internal.consumer_groups t USING w WHERE t.group_id = w.group_id AND 1 / (t.version <= w.version)::integer = 1`
	sqlMembersDelete = `/* members_delete */
DELETE FROM pgbroker_internal.group_members t USING unnest($1::text[], $2::text[], $3::bigint[]) w(group_id, member_id, version)
WHERE t.group_id = w.group_id AND t.member_id = w.member_id AND 1 / (t.version <= w.version)::integer = 1`
	sqlOffsetsDelete = `/* offsets_delete */
DELETE FROM pgbroker_internal.group_offsets t USING unnest($1::text[], $2::uuid[], $3::integer[], $4::bigint[]) w(group_id, topic_id, partition, version)
WHERE t.group_id = w.group_id AND t.topic_id = w.topic_id AND t.partition = w.partition AND 1 / (t.version <= w.version)::integer = 1`
)

// inShard is a row with the shard it belongs to.
type inShard[R any] struct {
	shard int16
	row   *R
}

// shardRowSet is all changes of one commit by table.
type shardRowSet struct {
	groups         []inShard[GroupRow]
	members        []inShard[MemberRow]
	offsets        []inShard[OffsetRow]
	deletedGroups  []GroupKey
	deletedMembers []MemberKey
	deletedOffsets []OffsetKey

	transactions        []inShard[TransactionRow]
	heldTransactions    []TransactionKey
	deletedTransactions []TransactionKey
	pending             []inShard[PendingOffsetRow]
	endedPending        []TransactionKey
}

func collectShardRows(changes []ShardChange) *shardRowSet {
	s := &shardRowSet{}
	for i := range changes {
		c := &changes[i]
		s.groups = appendInShard(s.groups, c.Shard, c.Groups)
		s.members = appendInShard(s.members, c.Shard, c.Members)
		s.offsets = appendInShard(s.offsets, c.Shard, c.Offsets)
		s.deletedGroups = append(s.deletedGroups, c.DeletedGroups...)
		s.deletedMembers = append(s.deletedMembers, c.DeletedMembers...)
		s.deletedOffsets = append(s.deletedOffsets, c.DeletedOffsets...)
		s.transactions = appendInShard(s.transactions, c.Shard, c.Transactions)
		s.heldTransactions = append(s.heldTransactions, c.HeldTransactions...)
		s.deletedTransactions = append(s.deletedTransactions, c.DeletedTransactions...)
		s.pending = appendInShard(s.pending, c.Shard, c.Pending)
		s.endedPending = append(s.endedPending, c.EndedPending...)
	}
	return s
}

func appendInShard[R any](to []inShard[R], shard int16, rows []R) []inShard[R] {
	for i := range rows {
		to = append(to, inShard[R]{shard, &rows[i]})
	}
	return to
}

// queue adds the statements for the tables that have changes; deletes come first.
func (s *shardRowSet) queue(b *pgx.Batch) {
	if d := s.deletedGroups; len(d) > 0 {
		b.Queue(sqlGroupsDelete, column(d, func(k *GroupKey) string { return toText(k.Group) }), column(d, func(k *GroupKey) int64 { return k.Version }))
	}
	if d := s.deletedMembers; len(d) > 0 {
		b.Queue(sqlMembersDelete, column(d, func(k *MemberKey) string { return toText(k.Group) }),
			column(d, func(k *MemberKey) string { return toText(k.MemberID) }), column(d, func(k *MemberKey) int64 { return k.Version }))
	}
	if d := s.deletedOffsets; len(d) > 0 {
		b.Queue(sqlOffsetsDelete, column(d, func(k *OffsetKey) string { return toText(k.Group) }),
			column(d, func(k *OffsetKey) pgtype.UUID { return pgUUID(k.TopicID) }),
			column(d, func(k *OffsetKey) int32 { return k.Partition }), column(d, func(k *OffsetKey) int64 { return k.Version }))
	}
	s.queueGroups(b)
	s.queueMembers(b)
	s.queueOffsets(b)
	s.queueTransactions(b)
}

func (s *shardRowSet) queueGroups(b *pgx.Batch) {
	type row = inShard[GroupRow]
	r := s.groups
	if len(r) == 0 {
		return
	}
	texts := func(f func(*GroupRow) string) []string {
		return column(r, func(x *row) string { return toText(f(x.row)) })
	}
	b.Queue(sqlGroupsUpsert, column(r, func(x *row) int16 { return x.shard }),
		texts(func(g *GroupRow) string { return g.Group }), texts(func(g *GroupRow) string { return g.Kind }),
		texts(func(g *GroupRow) string { return g.ProtocolType }), texts(func(g *GroupRow) string { return g.Protocol }),
		column(r, func(x *row) int32 { return x.row.Generation }), texts(func(g *GroupRow) string { return g.Leader }),
		column(r, func(x *row) *time.Time { return timeOrNull(x.row.EmptySince) }),
		column(r, func(x *row) int32 { return x.row.AssignmentEpoch }), column(r, func(x *row) int64 { return x.row.SubscriptionHash }),
		column(r, func(x *row) int64 { return x.row.Version }))
}

func (s *shardRowSet) queueMembers(b *pgx.Batch) {
	type row = inShard[MemberRow]
	r := s.members
	if len(r) == 0 {
		return
	}
	texts := func(f func(*MemberRow) string) []string {
		return column(r, func(x *row) string { return toText(f(x.row)) })
	}
	b.Queue(sqlMembersUpsert, column(r, func(x *row) int16 { return x.shard }),
		texts(func(m *MemberRow) string { return m.Group }), texts(func(m *MemberRow) string { return m.MemberID }),
		column(r, func(x *row) *string { return textOrNull(x.row.InstanceID, toText) }),
		texts(func(m *MemberRow) string { return m.ClientID }), texts(func(m *MemberRow) string { return m.ClientHost }),
		column(r, func(x *row) int32 { return toMs(x.row.SessionTimeout) }), column(r, func(x *row) int32 { return toMs(x.row.RebalanceTimeout) }),
		column(r, func(x *row) string { return protocolsText(x.row.Protocols) }),
		column(r, func(x *row) []byte { return x.row.Assignment }), column(r, func(x *row) *string { return consumerText(x.row.Consumer) }),
		column(r, func(x *row) int64 { return x.row.Version }))
}

func (s *shardRowSet) queueOffsets(b *pgx.Batch) {
	type row = inShard[OffsetRow]
	r := s.offsets
	if len(r) == 0 {
		return
	}
	b.Queue(sqlOffsetsUpsert, column(r, func(x *row) int16 { return x.shard }),
		column(r, func(x *row) string { return toText(x.row.Group) }), column(r, func(x *row) pgtype.UUID { return pgUUID(x.row.TopicID) }),
		column(r, func(x *row) int32 { return x.row.Partition }), column(r, func(x *row) int64 { return x.row.Offset }),
		column(r, func(x *row) int32 { return x.row.LeaderEpoch }), column(r, func(x *row) string { return toText(x.row.Metadata) }),
		column(r, func(x *row) time.Time { return StoredTime(x.row.CommittedAt) }), column(r, func(x *row) *time.Time { return timeOrNull(x.row.ExpiresAt) }),
		column(r, func(x *row) int64 { return x.row.Version }))
}

func loadShardRows(ctx context.Context, tx pgx.Tx, shards []int16, out map[int16]ShardRows) error {
	var shard int16
	var g GroupRow
	var since, expires *time.Time
	err := forEach(ctx, tx, sqlLoadGroups, shards, []any{&shard, &g.Group, &g.Kind, &g.ProtocolType, &g.Protocol, &g.Generation, &g.Leader, &since, &g.AssignmentEpoch, &g.SubscriptionHash, &g.Version}, func() error {
		r := g
		r.Group, r.Kind, r.ProtocolType, r.Protocol, r.Leader = fromText(g.Group), fromText(g.Kind), fromText(g.ProtocolType), fromText(g.Protocol), fromText(g.Leader)
		r.EmptySince = timeFromNull(since)
		rows := out[shard]
		rows.Groups = append(rows.Groups, r)
		out[shard] = rows
		return nil
	})
	if err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	var m MemberRow
	var sessionMs, rebalanceMs int32
	var protocols string
	var consumer *string
	err = forEach(ctx, tx, sqlLoadMembers, shards, []any{&shard, &m.Group, &m.MemberID, &m.InstanceID, &m.ClientID, &m.ClientHost, &sessionMs, &rebalanceMs, &protocols, &m.Assignment, &consumer, &m.Version}, func() error {
		r := m
		r.Group, r.MemberID, r.ClientID, r.ClientHost = fromText(m.Group), fromText(m.MemberID), fromText(m.ClientID), fromText(m.ClientHost)
		r.InstanceID = textOrNull(m.InstanceID, fromText)
		r.SessionTimeout, r.RebalanceTimeout = time.Duration(sessionMs)*time.Millisecond, time.Duration(rebalanceMs)*time.Millisecond
		if err := protocolsFromText(protocols, &r.Protocols); err != nil {
			return err
		}
		if r.Consumer, err = consumerFromText(consumer); err != nil {
			return err
		}
		rows := out[shard]
		rows.Members = append(rows.Members, r)
		out[shard] = rows
		return nil
	})
	if err != nil {
		return fmt.Errorf("members: %w", err)
	}
	var o OffsetRow
	err = forEach(ctx, tx, sqlLoadOffsets, shards, []any{&shard, &o.Group, &o.TopicID, &o.Partition, &o.Offset, &o.LeaderEpoch, &o.Metadata, &o.CommittedAt, &expires, &o.Version}, func() error {
		r := o
		r.Group, r.Metadata = fromText(o.Group), fromText(o.Metadata)
		r.CommittedAt, r.ExpiresAt = o.CommittedAt.UTC(), timeFromNull(expires)
		rows := out[shard]
		rows.Offsets = append(rows.Offsets, r)
		out[shard] = rows
		return nil
	})
	if err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	return loadTransactionRows(ctx, tx, shards, out)
}

func forEach(ctx context.Context, tx pgx.Tx, stmt string, shards []int16, into []any, fn func() error) error {
	rows, err := tx.Query(ctx, stmt, shards)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, fn)
	return err
}

// protocolsText is JSON; metadata is base64 in it.
func protocolsText(list []MemberProtocol) string {
	stored := make([]MemberProtocol, len(list))
	for i, p := range list {
		stored[i] = MemberProtocol{Name: toText(p.Name), Metadata: p.Metadata}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		panic(err) // strings and bytes always have a JSON form
	}
	return string(text)
}

func protocolsFromText(text string, into *[]MemberProtocol) error {
	var list []MemberProtocol
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	for i := range list {
		list[i].Name = fromText(list[i].Name)
	}
	*into = list
	return nil
}

func textOrNull(s *string, convert func(string) string) *string {
	if s == nil {
		return nil
	}
	t := convert(*s)
	return &t
}

var (
	firstTime = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// StoredTime is a time as both stores keep it: UTC, microseconds, within the years 1 to 9999, so that a retention that a
// client made up cannot fail a commit. The zero time stays.
func StoredTime(t time.Time) time.Time {
	switch {
	case t.IsZero():
		return time.Time{}
	case t.Before(firstTime):
		return firstTime
	case t.After(lastTime):
		return lastTime
	}
	return t.UTC().Truncate(time.Microsecond)
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = StoredTime(t)
	return &t
}

func timeFromNull(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// toMs is the stored form of a timeout: Kafka's int32 milliseconds.
func toMs(d time.Duration) int32 { return int32(min(d.Milliseconds(), 1<<31-1)) }

// compareKeys compares pairs (a1, b1, a2, b2, …) until one differs.
func compareKeys(pairs ...string) int {
	for i := 0; i < len(pairs); i += 2 {
		if c := strings.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}
