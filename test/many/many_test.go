//go:build linux

package many

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	perTopic    = 100
	connections = 500
)

// TestManyPartitions: each partition is written and read, by more connections than a small server sees, under a limit of
// descriptors that is below the number of partitions; all is there again after a clean stop and after kill -9. What the
// broker holds in goroutines and handles does not follow the number of partitions, and a start takes time in proportion.
// PGBROKER_MANY_PARTITIONS sets their number, a multiple of 500, and has both durabilities run.
func TestManyPartitions(t *testing.T) {
	partitions, maxFiles, durabilities := 2000, 2048, []string{"strict"} // maxFiles is ulimit -n of the broker
	if s := os.Getenv("PGBROKER_MANY_PARTITIONS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 5*perTopic || n%(5*perTopic) != 0 {
			t.Fatalf("PGBROKER_MANY_PARTITIONS=%q is no multiple of %d", s, 5*perTopic)
		}
		partitions, maxFiles, durabilities = n, 4096, []string{"relaxed", "strict"}
	}
	for _, durability := range durabilities {
		t.Run(durability, func(t *testing.T) { many(t, durability, partitions, maxFiles) })
	}
}

func many(t *testing.T, durability string, partitions, maxFiles int) {
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"),
		Set: []string{"durability=" + durability, "max.connections.per.ip=10000", "auto.create.topics.enable=false"}})
	b.Wrap = []string{"bash", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, maxFiles)}
	b.StopLimit = time.Minute // a log is a few syncs of its own; restart tells how long it was
	b.MustStart()
	r := &run{t: t, broker: b}
	empty := r.measure("no partition")

	r.create(partitions / 5)
	r.restart("a fifth of the partitions, clean stop", b.Stop)
	fifth := r.took
	r.create(partitions)
	r.produce("first")
	r.consume("written")
	busy := r.measure(fmt.Sprintf("%d partitions, clients connected", partitions))
	if busy.connections < connections {
		t.Errorf("only %.0f connections", busy.connections)
	}
	r.disconnect()
	r.alone()

	r.restart("all partitions, clean stop", b.Stop)
	clean := r.took
	idle := r.measure("after it, no client")
	r.consume("after a clean stop")
	r.produce("second")
	r.disconnect()
	r.restart("all partitions, kill -9", func() error { b.Kill(); return nil })
	r.consume("after kill -9")
	r.disconnect()

	for what, m := range map[string]measured{"busy": busy, "idle": idle} {
		if m.files > maxFiles*3/4 {
			t.Errorf("%s: %d handles of %d", what, m.files, maxFiles)
		}
	}
	if more := idle.goroutines - empty.goroutines; more > 50 {
		t.Errorf("%d partitions bring %.0f goroutines", partitions, more)
	}
	if perConnection := (busy.goroutines - empty.goroutines) / busy.connections; perConnection > 4 {
		t.Errorf("%.1f goroutines for each connection", perConnection)
	}
	if clean > 2*5*fifth+2*time.Second {
		t.Errorf("five times the partitions take %s to start instead of %s", clean, fifth)
	}
	t.Logf("memory: %.1f KiB resident and %.1f KiB of heap for each idle partition",
		(idle.resident-empty.resident)/1024/float64(partitions), (idle.heap-empty.heap)/1024/float64(partitions))
}

// run is one broker with its topics and clients.
type run struct {
	t       *testing.T
	broker  *harness.Broker
	topics  []string
	clients []*kgo.Client
	written []string // the value of each offset, the same in every partition
	took    time.Duration
}

// create adds topics up to so many partitions.
func (r *run) create(partitions int) {
	r.t.Helper()
	began := time.Now()
	var fresh []string
	for len(r.topics)*perTopic < partitions {
		r.topics = append(r.topics, fmt.Sprintf("many-%03d", len(r.topics)))
		fresh = append(fresh, r.topics[len(r.topics)-1])
	}
	c := r.dial()
	defer c.Close()
	admin := kadm.NewClient(c)
	admin.SetTimeoutMillis(120_000) // a topic of 100 partitions is hundreds of syncs
	for some := range slices.Chunk(fresh, 10) {
		answers, err := admin.CreateTopics(r.t.Context(), perTopic, 1, nil, some...)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Logf("created %d topics of %d partitions in %s", len(fresh), perTopic, time.Since(began).Round(time.Millisecond))
}

func (r *run) dial(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(r.broker.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(time.Second), kgo.FetchMaxBytes(1<<20))...)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

type partition struct {
	topic  string
	number int32
}

// share is what one of n clients works on.
func (r *run) share(client, n int) (parts []partition) {
	all := len(r.topics) * perTopic
	for i := client * all / n; i < (client+1)*all/n; i++ {
		parts = append(parts, partition{r.topics[i/perTopic], int32(i % perTopic)})
	}
	return parts
}

// each runs do for so many clients at once, and fails the test at the first error.
func (r *run) each(n int, do func(client int) error) {
	r.t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			if err := do(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		r.t.Fatal(err)
	}
}

// produce writes one record to each partition.
func (r *run) produce(value string) {
	r.t.Helper()
	began := time.Now()
	const writers = 20
	r.each(writers, func(i int) error {
		c := r.dial(kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		defer c.Close()
		var records []*kgo.Record
		for _, p := range r.share(i, writers) {
			records = append(records, &kgo.Record{Topic: p.topic, Partition: p.number, Value: []byte(value)})
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		defer cancel()
		return c.ProduceSync(ctx, records...).FirstErr()
	})
	r.written = append(r.written, value)
	r.t.Logf("wrote to each of %d partitions in %s", len(r.topics)*perTopic, time.Since(began).Round(time.Millisecond))
}

// consume reads all partitions from their start, by as many clients as make the connections, which stay and poll.
func (r *run) consume(when string) {
	r.t.Helper()
	began := time.Now()
	const readers = connections / 2 // each has a connection for metadata and one for fetches
	r.clients = make([]*kgo.Client, readers)
	r.each(readers, func(i int) error {
		from := map[string]map[int32]kgo.Offset{}
		share := r.share(i, readers)
		for _, p := range share {
			if from[p.topic] == nil {
				from[p.topic] = map[int32]kgo.Offset{}
			}
			from[p.topic][p.number] = kgo.NewOffset().At(0)
		}
		c := r.dial(kgo.ConsumePartitions(from))
		r.clients[i] = c
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		defer cancel()
		return r.readAll(ctx, c, len(share))
	})
	r.t.Logf("read all of %d partitions %s in %s", len(r.topics)*perTopic, when, time.Since(began).Round(time.Millisecond))
}

// readAll reads until a client has every value of so many partitions, each in its place.
func (r *run) readAll(ctx context.Context, c *kgo.Client, partitions int) error {
	for left := partitions * len(r.written); left > 0; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d records are missing: %w", left, err)
		}
		for _, rec := range fetches.Records() {
			if rec.Offset >= int64(len(r.written)) || string(rec.Value) != r.written[rec.Offset] {
				return fmt.Errorf("%s-%d holds %q at offset %d", rec.Topic, rec.Partition, rec.Value, rec.Offset)
			}
			left--
		}
	}
	return nil
}

// alone has one client ask for the metadata of all topics, and read all partitions (J-19).
func (r *run) alone() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	c := r.dial(kgo.ConsumeTopics(r.topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	var fastest time.Duration
	for n := range 3 {
		began := time.Now()
		found, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c.Broker(1)) // of all topics, past the client's cache
		if err != nil || len(found.Topics) != len(r.topics) || len(found.Topics[0].Partitions) != perTopic {
			r.t.Fatalf("metadata: %v (%v)", found, err)
		}
		if took := time.Since(began); n == 0 || took < fastest {
			fastest = took
		}
	}
	if fastest > time.Second {
		r.t.Errorf("metadata of %d topics takes %s", len(r.topics), fastest)
	}
	began := time.Now()
	if err := r.readAll(ctx, c, len(r.topics)*perTopic); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("one client: metadata in %s, all partitions in %s", fastest.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

func (r *run) disconnect() {
	for _, c := range r.clients {
		c.Close()
	}
	r.clients = nil
}

// restart ends the broker, starts it again, and wants it to have said how far it was.
func (r *run) restart(what string, end func() error) {
	r.t.Helper()
	began := time.Now()
	if err := end(); err != nil {
		r.t.Fatal(err)
	}
	stopped := time.Since(began)
	before := len(r.broker.Log.String())
	began = time.Now()
	r.broker.MustStart()
	r.took = time.Since(began)
	r.t.Logf("%s: stopped in %s, started in %s", what, stopped.Round(time.Millisecond), r.took.Round(time.Millisecond))
	for line := range strings.Lines(r.broker.Log.String()[before:]) {
		if strings.Contains(line, "recover") {
			r.t.Logf("  it said: %s", strings.TrimSpace(line))
		}
	}
}

// measured is what a broker holds at one moment.
type measured struct {
	resident, heap, stacks  float64 // bytes
	goroutines, connections float64
	files, sockets          int // handles, and how many of them are sockets
	scrape                  time.Duration
}

func (r *run) measure(when string) (m measured) {
	r.t.Helper()
	if _, err := r.broker.Metrics(); err != nil { // the first one after a start warms up
		r.t.Fatal(err)
	}
	began := time.Now()
	samples, err := r.broker.Metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	m.scrape = time.Since(began)
	m.goroutines, m.heap, m.files = samples["go_goroutines"], samples["go_memstats_heap_inuse_bytes"], len(r.broker.Files())
	m.sockets, m.resident = r.sockets(), samples["process_resident_memory_bytes"]
	m.stacks, m.connections = samples["go_memstats_stack_inuse_bytes"], connectionCount(samples)
	r.t.Logf("%s: %.0f MiB resident, %.0f MiB of heap, %d handles, %.0f goroutines, %.0f connections, scraped in %s", when,
		m.resident/(1<<20), m.heap/(1<<20), m.files, m.goroutines, m.connections, m.scrape.Round(time.Millisecond))
	return m
}

// connectionCount is how many clients are connected, over all listeners.
func connectionCount(samples map[string]float64) (n float64) {
	for name, v := range samples {
		if strings.HasPrefix(name, "kafka_server_socket_server_metrics_connection_count{") {
			n += v
		}
	}
	return n
}
