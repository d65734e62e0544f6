package system

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// churn is clients that come once, under a name that nobody uses again.
type churn struct {
	t     *testing.T
	n     *node
	ask   *kgo.Client // requests go to the one broker as they are
	topic string
	round string // in all names
}

// TestTablesDoNotGrow (J-21): group ids, members, transactional ids, producer ids, client ids and topics that are made up
// for one use leave nothing behind once they have expired: every table of the database has its rows of before, /metrics
// its series, the logs no producers.
func TestTablesDoNotGrow(t *testing.T) {
	t.Parallel()
	many := 150 // of each kind
	if s := os.Getenv("PGBROKER_CHURN"); s != "" {
		var err error
		if many, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	url := pgtest.URL(t)
	n := startNode(t, nodeOptions{url: url, set: []string{
		"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=500", "offsets.retention.check.interval.ms=300",
		"group.consumer.min.session.timeout.ms=1000", "group.consumer.session.timeout.ms=1000",
		"group.consumer.min.heartbeat.interval.ms=300", "group.consumer.heartbeat.interval.ms=300",
		"transactional.id.expiration.ms=1500", "transaction.remove.expired.transaction.cleanup.interval.ms=300",
		"producer.id.expiration.ms=1500", "log.retention.check.interval.ms=300",
	}})
	n.createTopic("churn", 1, nil)
	c := &churn{t: t, n: n, ask: n.client(), topic: "churn", round: "warm"}

	c.run(12) // of each kind, so that every kind of series and counter is there
	base := c.settled(url, holding{})
	c.round = "churn"
	began := time.Now()
	var peak holding
	const rounds = 5 // what came first has expired before the last has come
	for range rounds {
		c.run(many / rounds)
		peak.raise(c.measure(url))
	}
	took := time.Since(began)
	began = time.Now()
	after := c.settled(url, base)
	t.Logf("%d of each kind came in %s; at most seen: %s", many, took.Round(time.Millisecond), peak)
	t.Logf("%s later: %s", time.Since(began).Round(time.Millisecond), after)
	for _, table := range churned {
		if peak.rows[table] == 0 {
			t.Errorf("nothing was seen in %s: what was churned?", table)
		}
	}
	if peak.producers == 0 {
		t.Error("no producer was seen")
	}
}

// run is so many clients of each kind, a few at a time.
func (c *churn) run(many int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	defer cancel()
	kinds := []func(context.Context, string) error{
		c.simpleGroup, c.classicGroup, c.deadMember, c.pendingMember, c.consumerGroup, c.askedGroup,
		c.committedTxn, c.abandonedTxn, c.unusedTxn, c.producer,
	}
	for i := range max(many/10, 1) {
		if err := c.client(ctx, fmt.Sprintf("%s-%d-%x", c.round, i, rand.Uint64())); err != nil {
			c.t.Fatal(err)
		}
	}
	const workers = 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < many*len(kinds) && ctx.Err() == nil; i += workers {
				name := fmt.Sprintf("%s-%d-%x", c.round, i, rand.Uint64())
				if err := kinds[i%len(kinds)](ctx, name); err != nil {
					c.t.Errorf("kind %d, %s: %v", i%len(kinds), name, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// asked sends a request; code reads the answer's error.
func asked[T kmsg.Response](ctx context.Context, c *churn, req kmsg.Request, code func(T) int16, allowed ...error) (T, error) {
	var answer T
	resp, err := c.ask.Broker(1).Request(ctx, req)
	if err != nil {
		return answer, fmt.Errorf("key %d: %w", req.Key(), err)
	}
	answer = resp.(T)
	if err := kerr.ErrorForCode(code(answer)); err != nil && !slices.Contains(allowed, err) {
		return answer, fmt.Errorf("key %d: %w", req.Key(), err)
	}
	return answer, nil
}

// pinned keeps a request at a version below the newest.
type pinned struct {
	kmsg.Request
	max int16
}

func (p pinned) MaxVersion() int16 { return p.max }

// simpleGroup is a commit without members, which says itself how long it wants to be kept (OffsetCommit v2 to v4).
func (c *churn) simpleGroup(ctx context.Context, name string) error {
	_, err := asked(ctx, c, pinned{c.commit(name, "", -1), 4}, commitCode)
	return err
}

const (
	keptMs       = 1000
	shortSession = 500 * time.Millisecond
)

func (c *churn) commit(group, member string, generation int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.RetentionTimeMillis = group, member, generation, keptMs
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = c.topic
	t.Partitions = append(t.Partitions, kmsg.OffsetCommitRequestTopicPartition{Offset: 1, LeaderEpoch: -1})
	req.Topics = append(req.Topics, t)
	return req
}

func commitCode(r *kmsg.OffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }

// member makes a group of one member.
func (c *churn) member(ctx context.Context, group string, session time.Duration) (*kmsg.JoinGroupResponse, error) {
	join := joinRequest(group, session)
	in, err := asked(ctx, c, pinned{join, 3}, func(r *kmsg.JoinGroupResponse) int16 { return r.ErrorCode })
	if err != nil {
		return nil, err
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, in.Generation, in.MemberID
	sync.GroupAssignment = append(sync.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: in.MemberID, MemberAssignment: []byte{0, 0}})
	_, err = asked(ctx, c, pinned{sync, 4}, func(r *kmsg.SyncGroupResponse) int16 { return r.ErrorCode })
	return in, err
}

// classicGroup joins, commits and leaves, as a console consumer does. A busy machine may take longer than its session.
func (c *churn) classicGroup(ctx context.Context, name string) error {
	in, err := c.member(ctx, name, shortSession)
	if err != nil {
		return err
	}
	if _, err := asked(ctx, c, pinned{c.commit(name, in.MemberID, in.Generation), 4}, commitCode, kerr.UnknownMemberID); err != nil {
		return err
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = name, in.MemberID
	_, err = asked(ctx, c, pinned{leave, 2}, func(r *kmsg.LeaveGroupResponse) int16 { return r.ErrorCode }, kerr.UnknownMemberID)
	return err
}

// deadMember joins and is never heard of again.
func (c *churn) deadMember(ctx context.Context, name string) error {
	_, err := c.member(ctx, name, shortSession)
	return err
}

// pendingMember gets a member id and does not come back with it.
func (c *churn) pendingMember(ctx context.Context, name string) error {
	_, err := asked(ctx, c, joinRequest(name, shortSession), func(r *kmsg.JoinGroupResponse) int16 { return r.ErrorCode }, kerr.MemberIDRequired)
	return err
}

// consumerGroup joins by the consumer protocol and is never heard of again.
func (c *churn) consumerGroup(ctx context.Context, name string) error {
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = name, name, 1000
	beat.SubscribedTopicNames, beat.Topics = []string{c.topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	_, err := asked(ctx, c, beat, func(r *kmsg.ConsumerGroupHeartbeatResponse) int16 { return r.ErrorCode })
	return err
}

// askedGroup is only asked about.
func (c *churn) askedGroup(ctx context.Context, name string) error {
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{name}
	if _, err := asked(ctx, c, describe, func(r *kmsg.DescribeGroupsResponse) int16 { return r.Groups[0].ErrorCode }, kerr.GroupIDNotFound); err != nil {
		return err
	}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = name
	fetch.Groups = append(fetch.Groups, group)
	if _, err := asked(ctx, c, fetch, func(r *kmsg.OffsetFetchResponse) int16 { return r.Groups[0].ErrorCode }); err != nil {
		return err
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = name, name, 1
	_, err := asked(ctx, c, beat, func(r *kmsg.HeartbeatResponse) int16 { return r.ErrorCode }, kerr.UnknownMemberID)
	return err
}

// initialised gets a producer id; without a transactional id when it is "".
func (c *churn) initialised(ctx context.Context, id string) (*kmsg.InitProducerIDResponse, error) {
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = 1000, -1, -1
	if id != "" {
		init.TransactionalID = &id
	}
	return asked(ctx, c, init, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
}

// wrote sends one record of a producer.
func (c *churn) wrote(ctx context.Context, id string, p *kmsg.InitProducerIDResponse) error {
	_, err := asked(ctx, c, pinned{oneRecord(c.topic, id, p.ProducerID, p.ProducerEpoch), 12}, func(r *kmsg.ProduceResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
	return err
}

// committedTxn is a transaction with a record that is committed.
func (c *churn) committedTxn(ctx context.Context, id string) error {
	p, err := c.initialised(ctx, id)
	if err != nil {
		return err
	}
	if err := c.wrote(ctx, id, p); err != nil {
		return err
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, p.ProducerID, p.ProducerEpoch, true
	_, err = asked(ctx, c, end, func(r *kmsg.EndTxnResponse) int16 { return r.ErrorCode })
	return err
}

// abandonedTxn has a record and an offset pending when its client goes: the broker aborts it.
func (c *churn) abandonedTxn(ctx context.Context, id string) error {
	p, err := c.initialised(ctx, id)
	if err != nil {
		return err
	}
	if err := c.wrote(ctx, id, p); err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch = id, id, p.ProducerID, p.ProducerEpoch
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = c.topic
	t.Partitions = append(t.Partitions, kmsg.TxnOffsetCommitRequestTopicPartition{Offset: 1, LeaderEpoch: -1})
	commit.Topics = append(commit.Topics, t)
	_, err = asked(ctx, c, pinned{commit, 5}, func(r *kmsg.TxnOffsetCommitResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
	return err
}

func (c *churn) unusedTxn(ctx context.Context, id string) error {
	_, err := c.initialised(ctx, id)
	return err
}

// producer is an idempotent one that writes one record.
func (c *churn) producer(ctx context.Context, _ string) error {
	p, err := c.initialised(ctx, "")
	if err != nil {
		return err
	}
	return c.wrote(ctx, "", p)
}

// client has a client id and a software of its own, makes a topic with a property, commits to it and deletes it.
func (c *churn) client(ctx context.Context, name string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.n.bootstrap), kgo.ClientID(name), kgo.SoftwareNameAndVersion(name, "1"), kgo.DefaultProduceTopic(name))
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	if _, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("1000")}, name); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		return err
	}
	var o kadm.Offsets
	o.AddOffset(name, 0, 1, -1)
	if err := admin.CommitAllOffsets(ctx, name, o); err != nil {
		return err
	}
	_, err = admin.DeleteTopic(ctx, name)
	return err
}

// oneRecord is a Produce of a batch with one record; in a transaction when it has an id.
func oneRecord(topic, id string, producer int64, epoch int16) *kmsg.ProduceRequest {
	const crcAt, attributesAt, headerBytes, transactional = 17, 21, 49, 1 << 4 // of a batch; headerBytes follow its length
	body := []byte{0, 0, 0, 1, 2, 'x', 0}                                      // attributes, deltas, no key, value, no headers
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{Magic: 2, PartitionLeaderEpoch: -1, FirstTimestamp: now, MaxTimestamp: now, ProducerID: producer, ProducerEpoch: epoch,
		NumRecords: 1, Records: append(binary.AppendVarint(nil, int64(len(body))), body...)}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	if id != "" {
		req.TransactionID = &id
		batch.Attributes = transactional
	}
	batch.Length = int32(headerBytes + len(batch.Records))
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = raw
	part := kmsg.NewProduceRequestTopic()
	part.Topic, part.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = append(req.Topics, part)
	return req
}

// holding is what a broker and its database keep at one moment.
type holding struct {
	rows      map[string]int64 // by private table
	series    map[string]bool
	producers int // that the log remembers
	groups    int
}

func (h holding) String() string {
	var b strings.Builder
	for _, table := range slices.Sorted(maps.Keys(h.rows)) {
		if h.rows[table] > 0 {
			fmt.Fprintf(&b, "%s %d, ", table, h.rows[table])
		}
	}
	return fmt.Sprintf("%s%d series, %d producers, %d groups", b.String(), len(h.series), h.producers, h.groups)
}

// raise makes h the most of both.
func (h *holding) raise(now holding) {
	if h.rows == nil {
		h.rows, h.series = map[string]int64{}, map[string]bool{}
	}
	for table, n := range now.rows {
		h.rows[table] = max(h.rows[table], n)
	}
	maps.Copy(h.series, now.series)
	h.producers, h.groups = max(h.producers, now.producers), max(h.groups, now.groups)
}

func (c *churn) measure(url string) holding {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	db, err := pgx.Connect(ctx, url)
	must(c.t, err)
	defer func() { _ = db.Close(ctx) }()
	h := holding{rows: map[string]int64{}, series: map[string]bool{}}
	found, err := db.Query(ctx, `SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'pgbroker_internal'::regnamespace`)
	must(c.t, err)
	tables, err := pgx.CollectRows(found, pgx.RowTo[string])
	must(c.t, err)
	for _, table := range tables {
		var n int64
		must(c.t, db.QueryRow(ctx, `SELECT count(*) FROM pgbroker_internal.`+pgx.Identifier{table}.Sanitize()).Scan(&n))
		h.rows[table] = n
	}
	resp, err := http.Get(c.n.httpURL + "/metrics")
	must(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(c.t, err)
	for line := range strings.Lines(string(body)) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
			h.series[name] = true
		}
	}
	described, err := kadm.NewClient(c.ask).DescribeProducers(ctx, kadm.TopicsSet{c.topic: {0: {}}})
	must(c.t, err)
	described.EachPartition(func(p kadm.DescribedProducersPartition) { h.producers += len(p.ActiveProducers) })
	listed, err := kadm.NewClient(c.ask).ListGroups(ctx)
	must(c.t, err)
	h.groups = len(listed)
	return h
}

// churned are the tables whose every row is made by a client and has an end.
var churned = []string{"consumer_groups", "group_members", "group_offsets", "transactions", "transaction_offsets"}

// more says what now has beyond before; of a broker that was not measured before, what can only be a client's.
func (before holding) more(now holding) (grown []string) {
	fresh := before.rows == nil
	for table, n := range now.rows {
		if n > before.rows[table] && (!fresh || slices.Contains(churned, table)) && table != "shard_seqs" {
			grown = append(grown, fmt.Sprintf("%s has %d rows, not %d", table, n, before.rows[table]))
		}
	}
	for name := range now.series {
		codes := strings.HasPrefix(name, "kafka_network_requestmetrics_errors_total{") // one for each of Kafka's codes, at most
		if !fresh && !before.series[name] && !codes {
			grown = append(grown, "series "+name)
		}
	}
	if fresh && now.rows["log_offsets"] == 0 {
		grown = append(grown, "nothing yet: the log's offsets were not reported once")
	}
	if most := int64(maxSeqRows); now.rows["shard_seqs"] > most {
		grown = append(grown, fmt.Sprintf("shard_seqs has %d rows, more than %d", now.rows["shard_seqs"], most))
	}
	if now.producers > 0 {
		grown = append(grown, fmt.Sprintf("%d producers", now.producers))
	}
	if now.groups > 0 {
		grown = append(grown, fmt.Sprintf("%d groups", now.groups))
	}
	return grown
}

// maxSeqRows is what the renewals of the lease leave of each shard's numbers, over all shards.
const maxSeqRows = 64 * 4

// settled waits until nothing is held beyond before.
func (c *churn) settled(url string, before holding) holding {
	c.t.Helper()
	var now holding
	var grown []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
		now = c.measure(url)
		if grown = before.more(now); len(grown) == 0 {
			return now
		}
	}
	c.t.Fatalf("after 30 s there is more than before:\n%s", strings.Join(grown[:min(len(grown), 40)], "\n"))
	return now
}
