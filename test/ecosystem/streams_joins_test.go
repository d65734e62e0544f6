package ecosystem

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var recordJoins = flag.Bool("record-joins", false, "write testdata/streams-joins.golden anew, from a real Kafka")

// joined is what a run of Joins wrote, by topic and key: lines of topic, partition, key, value and time after the first record's,
// in their order in the log. Two keys of one partition can come from two tasks, between which there is no order. The left join
// ends its windows by the clock, so the lines of "checked" are sorted.
type joined map[string][]string

var joinTopics = []string{"checked", "named", "paid", "summed"}

func (j joined) count() (n int) {
	for _, lines := range j {
		n += len(lines)
	}
	return n
}

func (j joined) lines() (all []string) {
	for _, place := range slices.Sorted(maps.Keys(j)) {
		lines := j[place]
		if strings.HasPrefix(place, "checked ") {
			slices.Sort(lines)
		}
		all = append(all, lines...)
	}
	return all
}

const joinPartitions = 2

// TestStreamsJoins: Kafka Streams joins streams and a table with exactly_once_v2 while the broker is killed, and the results are
// those of the same program and the same input on a real Kafka that nobody kills: at length on one beside it, in the short run
// those that testdata/streams-joins.golden has of one.
func TestStreamsJoins(t *testing.T) {
	n, kills, within := size(t, 200, 4000), size(t, 1, 20), size(t, 4*time.Second, 60*time.Second)
	classpath := script(t, "java/prepare", "streams")
	const golden = "testdata/streams-joins.golden"
	if *recordJoins {
		run := newJoinRun(t, classpath, realKafka(t), size(t, 200, 200))
		run.feed(2 * time.Second)
		text := "# Apache Kafka 4.4.0: the results of java/streams/Joins.java\n" + strings.Join(run.results(0), "\n") + "\n"
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var want []string
	if size(t, true, false) {
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		want = strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	} else {
		run := newJoinRun(t, classpath, realKafka(t), n)
		run.feed(within / 4)
		want = run.results(0)
		run.app.stop(t)
	}
	b := start(t)
	run := newJoinRun(t, classpath, b.Bootstrap(), n)
	hit := during(t, b, kills, func() { run.feed(within) })
	got := run.results(len(want))
	if !slices.Equal(got, want) {
		t.Errorf("%d results, want %d: %s", len(got), len(want), difference(got, want))
	}
	t.Logf("%d orders and payments, %d results, %d kills of the broker, %d threads of Streams replaced", n, len(got), hit, run.app.count("THREAD REPLACED"))
	if hit == 0 || len(want) < n {
		t.Errorf("%d kills and %d results", hit, len(want))
	}
}

// joinRun is the program with its input and what it wrote so far.
type joinRun struct {
	t         *testing.T
	app       *program
	bootstrap string
	n         int
	base      time.Time // of the first order

	mu      sync.Mutex // guards the two below
	got     joined
	changed time.Time
}

func newJoinRun(t *testing.T, classpath, bootstrap string, n int) *joinRun {
	t.Helper()
	r := &joinRun{t: t, bootstrap: bootstrap, n: n, base: time.Now().Add(-2 * time.Hour).Truncate(time.Second), got: joined{}, changed: time.Now()}
	adm := kadm.NewClient(clientOf(t, bootstrap))
	for _, topic := range append([]string{"orders", "payments", "customers"}, joinTopics...) {
		if _, err := adm.CreateTopic(t.Context(), joinPartitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	cl := clientOf(t, bootstrap, kgo.ConsumeTopics(joinTopics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(500*time.Millisecond))
	go func() {
		for t.Context().Err() == nil {
			cl.PollFetches(t.Context()).EachRecord(r.take)
		}
	}()
	r.app = jvm(t, classpath, "Joins", nil, bootstrap, "joins", t.TempDir())
	eventually(t, time.Minute, "Streams runs", func() bool { return r.app.count("STATE RUNNING") > 0 })
	return r
}

func (r *joinRun) take(record *kgo.Record) {
	if strings.HasPrefix(string(record.Key), "end") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = time.Now()
	place := fmt.Sprintf("%s %s", record.Topic, record.Key)
	r.got[place] = append(r.got[place], fmt.Sprintf("%s-%d %s = %s @%d", record.Topic, record.Partition, record.Key, record.Value,
		record.Timestamp.Sub(r.base).Milliseconds()))
}

// feed sends the input within about that time: some payments come with an older time than those before them, some too late for
// their window, and customers change their names, are deleted and come back. No two records have the same time, which would
// leave their order open.
func (r *joinRun) feed(within time.Duration) {
	cl := clientOf(r.t, r.bootstrap)
	send := func(topic string, i, customer int, value []byte, ms int) {
		record := &kgo.Record{Topic: topic, Partition: int32(customer % joinPartitions), Key: fmt.Append(nil, "customer-", customer), Value: value,
			Timestamp: r.base.Add(time.Duration(ms) * time.Millisecond)}
		cl.Produce(r.t.Context(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				r.t.Errorf("produce record %d of %s: %v", i, topic, err)
			}
		})
	}
	tick := time.NewTicker(within / time.Duration(r.n))
	defer tick.Stop()
	for i := range r.n {
		<-tick.C
		at := i * 900
		send("orders", i, i%10, fmt.Append(nil, "order-", i), at)
		send("payments", i, i*i%10, fmt.Append(nil, "payment-", i), at+1-3*(i*7919%4000))
		if i%4 == 0 {
			customer, name := i/4*3%10, fmt.Append(nil, "name-", i)
			if i%28 == 0 {
				name = nil
			}
			send("customers", i, customer, name, at+2)
		}
	}
	if err := cl.Flush(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

// results ends the windows and waits for so many results; with 0, until none has come for five seconds.
func (r *joinRun) results(want int) []string {
	r.t.Helper()
	cl := clientOf(r.t, r.bootstrap)
	defer cl.Close()
	for round, limit := 0, time.Now().Add(2*time.Minute); ; round++ {
		for p := range int32(joinPartitions) {
			for _, topic := range []string{"orders", "payments", "customers"} {
				end := &kgo.Record{Topic: topic, Partition: p, Key: []byte("end"), Value: []byte("end"), Timestamp: r.base.Add(time.Duration(r.n)*900*time.Millisecond + time.Minute + time.Duration(round)*time.Second)}
				if err := cl.ProduceSync(r.t.Context(), end).FirstErr(); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		time.Sleep(500 * time.Millisecond)
		r.mu.Lock()
		n, still := r.got.count(), time.Since(r.changed)
		r.mu.Unlock()
		if want > 0 && n >= want || want == 0 && n > 0 && still > 5*time.Second {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.got.lines()
		}
		if time.Now().After(limit) {
			r.t.Fatalf("%d results, want %d", n, want)
		}
	}
}
