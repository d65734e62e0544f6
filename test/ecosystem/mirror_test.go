package ecosystem

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

// realKafka runs a one-node Apache Kafka 4.4.0 and returns where clients connect.
func realKafka(t *testing.T) (bootstrap string) {
	t.Helper()
	script(t, "../compat/kafka/assemble") // before its start is waited for
	port := harness.FreePort(t)
	bootstrap = fmt.Sprint("127.0.0.1:", port)
	kafka := launch(t, nil, "../compat/kafka/serve", fmt.Sprint(port), filepath.Join(t.TempDir(), "kafka"))
	adm := kadm.NewClient(clientOf(t, bootstrap))
	eventually(t, time.Minute, "Kafka answers", func() bool {
		select {
		case <-kafka.exited:
			t.Fatal("Kafka ended before it answered")
		default:
		}
		meta, err := adm.BrokerMetadata(t.Context())
		return err == nil && len(meta.Brokers) == 1
	})
	return bootstrap
}

// clientOf is a client of any broker.
func clientOf(t *testing.T, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.RetryTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AlwaysRetryEOF()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// mirrorSettings are MirrorMaker's, between a "kafka" and a "pg", both ways, exactly once into pg.
const mirrorSettings = `
clusters=kafka,pg
kafka.bootstrap.servers=%s
pg.bootstrap.servers=%s
kafka->pg.enabled=true
kafka->pg.topics=orders
kafka->pg.groups=readers,busy
pg->kafka.enabled=true
pg->kafka.topics=invoices
pg->kafka.groups=auditors
pg.exactly.once.source.support=enabled
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:%d
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=1
offset.flush.interval.ms=500
offset.lag.max=0
kafka.consumer.isolation.level=read_committed
pg.consumer.isolation.level=read_committed
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
emit.checkpoints.interval.seconds=1
emit.heartbeats.interval.seconds=1
refresh.topics.interval.seconds=1
refresh.groups.interval.seconds=1
sync.topic.configs.interval.seconds=1
`

// TestMirrorMaker: MirrorMaker 2 copies a topic of a real Kafka to pgbroker, exactly once, with its settings and its group's
// offsets, and a topic with committed and aborted transactions of pgbroker to the Kafka, while pgbroker is killed. What
// arrives is what was sent, with keys, headers and times, in the order of its partition.
func TestMirrorMaker(t *testing.T) {
	n, kills := size(t, 500, 10000), size(t, 1, 10)
	classpath := script(t, "java/prepare", "mirror")
	kafka := realKafka(t)
	b := start(t)
	pg := b.Bootstrap()
	newTopic(t, kafka, "orders", map[string]string{"retention.ms": "123456789", "max.message.bytes": "400000"})
	newTopic(t, pg, "invoices", map[string]string{"retention.ms": "987654321"})
	produceAll(t, kafka, "orders", 0, n/2)
	settle(t, pg, "invoices", n)
	config := filepath.Join(t.TempDir(), "mirror.properties")
	if err := os.WriteFile(config, fmt.Appendf(nil, mirrorSettings, kafka, pg, harness.FreePort(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A group with a member in pgbroker, which MirrorMaker leaves alone.
	busy := clientOf(t, pg, kgo.ConsumerGroup("busy"), kgo.ConsumeTopics("invoices"), kgo.DisableAutoCommit())
	go func() {
		for t.Context().Err() == nil {
			busy.PollFetches(t.Context())
		}
	}()
	ahead := kadm.OffsetsFromRecords(kgo.Record{Topic: "orders", Offset: 10, LeaderEpoch: -1})
	if err := kadm.NewClient(clientOf(t, kafka)).CommitAllOffsets(t.Context(), "busy", ahead); err != nil {
		t.Fatal(err)
	}
	mirror := jvm(t, classpath, "org.apache.kafka.connect.mirror.MirrorMaker", nil, config)
	arrived := func(bootstrap, topic string, want int) func() bool {
		return func() bool {
			select {
			case <-mirror.exited:
				t.Fatal("MirrorMaker ended")
			default:
			}
			return countOf(t, bootstrap, topic) >= want
		}
	}
	eventually(t, 2*time.Minute, "the first records are in pgbroker", arrived(pg, "kafka.orders", n/2))
	hit := during(t, b, kills, func() {
		for at, step := n/2, max(1, n/2/(kills+1)); at < n; at += step {
			produceAll(t, kafka, "orders", at, min(at+step, n))
			time.Sleep(2 * time.Second) // spreads the records over the kills
		}
	})
	eventually(t, 2*time.Minute, "all records are in pgbroker", arrived(pg, "kafka.orders", n))
	eventually(t, 2*time.Minute, "all records are in Kafka", arrived(kafka, "pg.invoices", n))
	same(t, kafka, "orders", pg, "kafka.orders")
	same(t, pg, "invoices", kafka, "pg.invoices")
	checkSettings(t, pg, "kafka.orders", map[string]string{"retention.ms": "123456789", "max.message.bytes": "400000"})
	checkSettings(t, kafka, "pg.invoices", map[string]string{"retention.ms": "987654321"})
	alterTopic(t, kafka, "orders", "retention.ms", "222222222")
	checkSettings(t, pg, "kafka.orders", map[string]string{"retention.ms": "222222222"})
	checkGroup(t, kafka, "orders", pg, "kafka.orders", "readers")
	checkGroup(t, pg, "invoices", kafka, "pg.invoices", "auditors")
	checkUntouched(t, pg, "kafka.orders", "busy")
	mirror.stop(t)
	t.Logf("%d records each way, %d kills of pgbroker", n, hit)
	if hit == 0 {
		t.Error("the broker was never killed")
	}
}

const mirrored = 2 // partitions of each topic

func newTopic(t *testing.T, bootstrap, topic string, settings map[string]string) {
	t.Helper()
	configs := map[string]*string{}
	for key, value := range settings {
		configs[key] = &value
	}
	if _, err := kadm.NewClient(clientOf(t, bootstrap)).CreateTopic(t.Context(), mirrored, 1, configs, topic); err != nil {
		t.Fatal(err)
	}
}

func alterTopic(t *testing.T, bootstrap, topic, key, value string) {
	t.Helper()
	_, err := kadm.NewClient(clientOf(t, bootstrap)).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
	if err != nil {
		t.Fatal(err)
	}
}

// records are those of the numbers from up to before to, with all that a record can have.
func records(topic string, from, to int) (all []*kgo.Record) {
	for i := from; i < to; i++ {
		all = append(all, &kgo.Record{Topic: topic, Partition: int32(i % mirrored), Key: fmt.Append(nil, "key-", i%50), Value: fmt.Append(nil, "value-", i),
			Headers: []kgo.RecordHeader{{Key: "number", Value: fmt.Append(nil, i)}, {Key: "empty"}}, Timestamp: time.Now().Add(-time.Hour)})
	}
	return all
}

func produceAll(t *testing.T, bootstrap, topic string, from, to int) {
	t.Helper()
	if err := clientOf(t, bootstrap).ProduceSync(t.Context(), records(topic, from, to)...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// settle writes n records in committed transactions of 50, and an aborted transaction after each.
func settle(t *testing.T, bootstrap, topic string, n int) {
	t.Helper()
	cl := clientOf(t, bootstrap, kgo.TransactionalID("settle"))
	transaction := func(from, to int, end kgo.TransactionEndTry) {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), records(topic, from, to)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; at < n; at += 50 {
		transaction(at, min(at+50, n), kgo.TryCommit)
		transaction(1000000+at, 1000000+at+4, kgo.TryAbort)
	}
}

// readFrom reads a topic as read_committed sees it; a topic that is not there has nothing.
func readFrom(t *testing.T, bootstrap, topic string) (all []*kgo.Record) {
	t.Helper()
	cl := clientOf(t, bootstrap, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	next := map[int32]int64{}
	behind := func() (yes bool) {
		ends.Each(func(end kadm.ListedOffset) { yes = yes || end.Err == nil && next[end.Partition] < end.Offset })
		return yes
	}
	for limit := time.Now().Add(time.Minute); behind(); {
		if time.Now().After(limit) {
			t.Fatalf("%s is read up to %v", topic, next)
		}
		cl.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
		})
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return all
}

func countOf(t *testing.T, bootstrap, topic string) int {
	t.Helper()
	return len(readFrom(t, bootstrap, topic))
}

// same: both topics have the same records.
func same(t *testing.T, from, topic, to, copied string) {
	t.Helper()
	describe := func(all []*kgo.Record) (lines []string) {
		for _, r := range all {
			lines = append(lines, fmt.Sprintf("%d %s %s %v %d", r.Partition, r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli()))
		}
		return lines
	}
	want, got := describe(readFrom(t, from, topic)), describe(readFrom(t, to, copied))
	if !slices.Equal(got, want) {
		t.Errorf("%s has %d records, %s has %d: %s", copied, len(got), topic, len(want), difference(got, want))
	}
}

// checkSettings waits until a topic has settings of its own.
func checkSettings(t *testing.T, bootstrap, topic string, want map[string]string) {
	t.Helper()
	adm, got := kadm.NewClient(clientOf(t, bootstrap)), map[string]string{}
	eventually(t, 30*time.Second, fmt.Sprintf("%s has %v", topic, want), func() bool {
		configs, err := adm.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			return false
		}
		for _, c := range configs {
			for _, entry := range c.Configs {
				got[entry.Key] = entry.MaybeValue()
			}
		}
		for key, value := range want {
			if got[key] != value {
				return false
			}
		}
		return true
	})
}

// checkGroup: a group that commits offsets beside a topic goes on in the copy where it was: at or before the first record it
// has not read, and not at the start.
func checkGroup(t *testing.T, from, topic, to, copied, group string) {
	t.Helper()
	source := readFrom(t, from, topic)
	read := map[int32]int64{} // the offset after the last record the group has read
	for _, r := range source[:len(source)-1] {
		read[r.Partition] = r.Offset + 1
	}
	var offsets kadm.Offsets
	for p, at := range read {
		offsets.AddOffset(topic, p, at, -1)
	}
	if err := kadm.NewClient(clientOf(t, from)).CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(clientOf(t, to))
	translated := map[int32]int64{}
	eventually(t, time.Minute, "the offsets of "+group+" are in the other cluster", func() bool {
		got, err := adm.FetchOffsets(t.Context(), group)
		if err != nil {
			return false
		}
		got.Each(func(o kadm.OffsetResponse) {
			if o.Topic == copied && o.At > 0 {
				translated[o.Partition] = o.At
			}
		})
		return len(translated) == mirrored
	})
	unread := map[string]bool{}
	for _, r := range source {
		if r.Offset >= read[r.Partition] {
			unread[string(r.Value)] = true
		}
	}
	for _, r := range readFrom(t, to, copied) {
		if unread[string(r.Value)] && r.Offset < translated[r.Partition] {
			t.Errorf("group %s would not read %s, at %s-%d offset %d, from %d on", group, r.Value, copied, r.Partition, r.Offset, translated[r.Partition])
		}
	}
	t.Logf("group %s: %v of %s is %v of %s", group, read, topic, translated, copied)
}

// checkUntouched: a group has a member and no offset of a topic.
func checkUntouched(t *testing.T, bootstrap, topic, group string) {
	t.Helper()
	adm := kadm.NewClient(clientOf(t, bootstrap))
	described, err := adm.DescribeGroups(t.Context(), group)
	if err != nil || len(described[group].Members) != 1 {
		t.Errorf("group %s has %d members, want 1; %v", group, len(described[group].Members), err)
	}
	offsets, err := adm.FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := offsets.Lookup(topic, 0); ok && o.At >= 0 {
		t.Errorf("group %s has offset %d of %s", group, o.At, topic)
	}
}
