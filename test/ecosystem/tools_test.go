package ecosystem

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

const tools = "org.apache.kafka.tools."

// TestVerifiableTools: Kafka's VerifiableProducer writes, two TransactionalMessageCopiers copy in transactions, some of them
// aborted, a VerifiableConsumer reads the copy, and the broker is killed meanwhile. Nothing acknowledged is missing, the copy is
// the input, each record once and in the order of its partition, and the consumer saw all of it.
func TestVerifiableTools(t *testing.T) {
	n, kills := size(t, 3000, 30000), size(t, 2, 20)
	jars := script(t, "../compat/kafka/assemble") + "/*"
	b := start(t)
	const partitions = 2
	create(t, b, partitions, "input", "output")
	config := filepath.Join(t.TempDir(), "client.properties")
	settings := "isolation.level=read_committed\nheartbeat.interval.ms=500\nretries=1000\nretry.backoff.ms=50\ndelivery.timeout.ms=60000\n" +
		"request.timeout.ms=10000\nlinger.ms=0\nenable.idempotence=true\n"
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}

	var producer, consumer *program
	hit := during(t, b, kills, func() {
		producer = jvm(t, jars, tools+"VerifiableProducer", nil, "--bootstrap-server", b.Bootstrap(), "--topic", "input", "--acks", "-1",
			"--max-messages", strconv.Itoa(n), "--throughput", strconv.Itoa(n/size(t, 4, 40)), "--command-config", config)
		producer.wait(t, 3*time.Minute)
	})
	consumer = jvm(t, jars, tools+"VerifiableConsumer", nil, "--bootstrap-server", b.Bootstrap(), "--topic", "output", "--group-id", "reader",
		"--verbose", "--command-config", config)
	hitCopiers := during(t, b, kills, func() {
		var copiers []*program
		for p := range partitions {
			copiers = append(copiers, jvm(t, jars, tools+"TransactionalMessageCopier", nil, "--broker-list", b.Bootstrap(), "--input-topic", "input",
				"--input-partition", strconv.Itoa(p), "--output-topic", "output", "--consumer-group", "copiers", "--transactional-id",
				fmt.Sprint("copier-", p), "--transaction-size", "10", "--enable-random-aborts", "--use-group-metadata"))
		}
		for p, copier := range copiers {
			copier.wait(t, 3*time.Minute)
			if code := copier.cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("copier %d: exit code %d", p, code)
			}
		}
	})
	input := readAll(t, b, "input")
	copied := readAll(t, b, "output")
	checkAcked(t, producer, input)
	if got, want := copied.sorted(), input.sorted(); !slices.Equal(got, want) {
		t.Errorf("%d records were copied, %d were there: %s", len(got), len(want), difference(got, want))
	}
	copied.inOrder(t, input)
	eventually(t, time.Minute, "the consumer has read all", func() bool { return consumer.count(`"name":"record_data"`) >= len(copied.all) })
	checkConsumed(t, consumer, copied)
	consumer.stop(t)
	t.Logf("%d records acknowledged of %d, %d copied, the broker was killed %d times under the producer and %d times under the copiers",
		producer.count(`"producer_send_success"`), n, len(copied.all), hit, hitCopiers)
	if hit == 0 || hitCopiers == 0 {
		t.Error("no kill hit")
	}
}

// reading is a topic as read_committed sees it.
type reading struct{ all []*kgo.Record }

func readAll(t *testing.T, b *harness.Broker, topic string) (r reading) {
	t.Helper()
	adm := kadm.NewClient(client(t, b))
	ends, err := adm.ListCommittedOffsets(t.Context(), topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	cl := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())
	var mu sync.Mutex
	next := map[int32]int64{}
	behind := func() bool {
		for p, end := range ends[topic] {
			if next[p] < end.Offset {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(time.Minute); behind(); {
		if time.Now().After(end) {
			t.Fatalf("%s: read up to %v of %v", topic, next, ends[topic])
		}
		cl.PollFetches(t.Context()).EachRecord(func(record *kgo.Record) {
			mu.Lock()
			defer mu.Unlock()
			next[record.Partition] = record.Offset + 1
			if !record.Attrs.IsControl() {
				r.all = append(r.all, record)
			}
		})
	}
	return r
}

func (r reading) sorted() (values []string) {
	for _, record := range r.all {
		values = append(values, string(record.Value))
	}
	slices.Sort(values)
	return values
}

// inOrder: the records of one partition of the source are in its order wherever they were copied to.
func (r reading) inOrder(t *testing.T, source reading) {
	t.Helper()
	from, at := map[string]int32{}, map[string]int64{}
	for _, record := range source.all {
		from[string(record.Value)], at[string(record.Value)] = record.Partition, record.Offset
	}
	last := map[[2]int32]int64{}
	for _, record := range r.all {
		v := string(record.Value)
		line := [2]int32{record.Partition, from[v]}
		if before, ok := last[line]; ok && before >= at[v] {
			t.Errorf("%s (offset %d of its partition) is behind offset %d", v, at[v], before)
		}
		last[line] = at[v]
	}
}

func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("from %v on, want %v", got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
		}
	}
	return "none"
}

// checkAcked: each record that the producer was told of is where it was told.
func checkAcked(t *testing.T, producer *program, input reading) {
	t.Helper()
	at := map[string]string{}
	for _, r := range input.all {
		at[fmt.Sprintf("%d-%d", r.Partition, r.Offset)] = string(r.Value)
	}
	acked := 0
	for _, line := range producer.output() {
		if !strings.Contains(line, `"producer_send_success"`) {
			continue
		}
		var e struct {
			Value             string
			Partition, Offset int64
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		acked++
		if got := at[fmt.Sprintf("%d-%d", e.Partition, e.Offset)]; got != e.Value {
			t.Errorf("%s was acknowledged at %d-%d, where %q is", e.Value, e.Partition, e.Offset, got)
		}
	}
	if acked == 0 || acked > len(input.all) {
		t.Errorf("%d acknowledged, %d there", acked, len(input.all))
	}
}

// checkConsumed: the consumer printed each record, with the value that is there, and those of a partition for the first time in
// order; after a kill it may print some again.
func checkConsumed(t *testing.T, consumer *program, topic reading) {
	t.Helper()
	type place struct {
		Partition int32
		Offset    int64
	}
	want, seen, highest := map[place]string{}, map[place]bool{}, map[int32]int64{}
	for _, r := range topic.all {
		want[place{r.Partition, r.Offset}] = string(r.Value)
	}
	for _, line := range consumer.output() {
		var e struct {
			Name, Value string
			place
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Name != "record_data" {
			continue
		}
		if value, ok := want[e.place]; !ok || value != e.Value {
			t.Errorf("the consumer saw %q at %v, where %q is", e.Value, e.place, value)
		}
		if !seen[e.place] && e.Offset < highest[e.Partition] {
			t.Errorf("the consumer saw %v for the first time after offset %d", e.place, highest[e.Partition])
		}
		seen[e.place] = true
		highest[e.Partition] = max(highest[e.Partition], e.Offset)
	}
	if len(seen) != len(want) {
		t.Errorf("the consumer saw %d records, %d are there", len(seen), len(want))
	}
}
