//go:build linux

package many

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

const (
	sweepTopics   = 1000
	sweepGroups   = 200
	topicsOfGroup = 5
	// connectionMemory is what an idle connection may cost the broker: resident memory, heap with what the collector
	// leaves between its rounds, and the stack of its goroutine.
	connectionMemory = 20 << 10
	sweepMemory      = 256 << 20 // what 1,000 topics and the answers to a web console may need beside, 10 MB of properties among them
	spareConnections = 90        // below max.connections when the crowd is there
	spareByAddress   = 20        // below max.connections.per.ip
)

// crowdSize is how many clients there are, how many of them work at least, and the partitions of a topic: few enough for the
// short form, or by PGBROKER_MANY_CONNECTIONS.
func crowdSize(t *testing.T) (clients, workers, partitions int) {
	clients, workers, partitions = 2000, 500, 1
	if s := os.Getenv("PGBROKER_MANY_CONNECTIONS"); s != "" {
		if n, err := fmt.Sscan(s, &clients); n != 1 || err != nil || clients%crowdAddresses != 0 || clients <= 0 {
			t.Fatalf("PGBROKER_MANY_CONNECTIONS=%q is no multiple of %d", s, crowdAddresses)
		}
		workers, partitions = clients, 3
	}
	return clients, workers, partitions
}

// needFiles raises the soft limit of descriptors of this process, which holds the clients' ends; where the hard one is too
// low the test is skipped, or fails under PGBROKER_TEST_REQUIRE=all. The broker's limit is its own.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < n {
		if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
			t.Fatalf("ulimit -Hn is %d, this needs %d", limit.Max, n)
		}
		t.Skipf("ulimit -Hn is %d, this needs %d", limit.Max, n)
	}
	limit.Cur = max(limit.Cur, n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// TestManyConnections (K-13): ten thousand clients that are idle but for a few, slow readers among them, cost the broker
// little memory each and nobody else time: every answer that a web console with 1,000 topics and 200 groups waits for
// comes within two seconds. The limits on connections hold at that size, and when all have gone so has what they cost.
func TestManyConnections(t *testing.T) {
	clients, workers, partitions := crowdSize(t)
	maxFiles := uint64(clients)*5/4 + 2000 // a quarter of a broker's descriptors are for files of the log
	needFiles(t, maxFiles)
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"), Set: []string{
		"durability=relaxed", "auto.create.topics.enable=false",
		fmt.Sprintf("max.connections=%d", clients+spareConnections),
		fmt.Sprintf("max.connections.per.ip=%d", clients/crowdAddresses+spareByAddress),
	}})
	b.Wrap = []string{"bash", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, maxFiles)}
	b.MustStart()
	r := &run{t: t, broker: b}
	before := r.measure("before") // a fresh process, whose memory nothing has grown yet
	began := time.Now()
	c := newCrowd(t, b.Bootstrap(), clients)
	t.Logf("%d clients connected in %s", clients, time.Since(began).Round(time.Millisecond))
	r.crowdCosts(before, r.measure("all idle"), clients)
	r.limits(c)

	s := &sweep{partitions: partitions, took: map[string]time.Duration{}}
	s.client = r.dial()
	defer s.client.Close()
	r.prepare(s)
	slow := r.slowReaders()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	wait := c.work(ctx, s.topics)
	sweep := r.sweeps(s, func(n int) bool { return ctx.Err() == nil && (n < 5 || c.asked.Load() < int64(workers)) })
	stop()
	wait()
	busy := r.measure("after the work")
	t.Logf("a whole sweep took at most %s; meanwhile %d produces and fetches of the crowd, the slowest pair took %s; %.1f KiB of stacks for each connection",
		sweep.Round(time.Millisecond), c.asked.Load(), time.Duration(c.worst.Load()).Round(time.Millisecond), (busy.stacks-before.stacks)/float64(clients)/1024)
	if c.asked.Load() < int64(workers) {
		t.Errorf("%d of %d clients have worked", c.asked.Load(), workers)
	}
	if most := before.resident + float64(clients*connectionMemory+sweepMemory); busy.resident > most {
		t.Errorf("%.0f MiB resident, more than %.0f", busy.resident/(1<<20), most/(1<<20))
	}
	if worst := time.Duration(c.worst.Load()); worst > sweepLimit {
		t.Errorf("a produce and a fetch took %s", worst)
	}

	s.client.Close()
	for _, conn := range append(slow, c.conns...) {
		_ = conn.Close()
	}
	r.gone(before)
}

// crowdCosts judges what so many idle clients have added.
func (r *run) crowdCosts(before, idle measured, clients int) {
	r.t.Helper()
	each := (idle.resident - before.resident) / float64(clients)
	r.t.Logf("an idle connection costs %.1f KiB resident: %.1f KiB of heap in use, %.1f KiB of stacks", each/1024,
		(idle.heap-before.heap)/float64(clients)/1024, (idle.stacks-before.stacks)/float64(clients)/1024)
	if each > connectionMemory {
		r.t.Errorf("an idle connection costs %.1f KiB", each/1024)
	}
	if idle.connections != float64(clients) {
		r.t.Errorf("%.0f connections, not %d", idle.connections, clients)
	}
	if more := idle.sockets - before.sockets - clients; more < -20 || more > 20 { // Postgres and scrapes
		r.t.Errorf("%d handles of sockets beside those of %d connections", more, clients)
	}
	if more := idle.goroutines - before.goroutines; more > float64(clients+50) {
		r.t.Errorf("%d connections bring %.0f goroutines", clients, more)
	}
}

// prepare makes the topics, some records and the groups.
func (r *run) prepare(s *sweep) {
	r.t.Helper()
	began := time.Now()
	admin := kadm.NewClient(s.client)
	admin.SetTimeoutMillis(60_000)
	for i := range sweepTopics {
		s.topics = append(s.topics, fmt.Sprintf("topic-%04d", i))
	}
	answers, err := admin.CreateTopics(r.t.Context(), int32(s.partitions), 1, nil, s.topics...)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	var records []*kgo.Record
	for _, topic := range s.topics {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte("a")}, &kgo.Record{Topic: topic, Value: []byte("b")})
	}
	if err := s.client.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
	for i := range sweepGroups {
		s.groups = append(s.groups, fmt.Sprintf("group-%03d", i))
		committed := kadm.Offsets{}
		for n := range topicsOfGroup {
			committed.AddOffset(s.topics[(i*topicsOfGroup+n)%len(s.topics)], 0, 1, -1)
		}
		if err := admin.CommitAllOffsets(r.t.Context(), s.groups[i], committed); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Logf("made %d topics of %d partitions and %d groups in %s", len(s.topics), s.partitions, len(s.groups), time.Since(began).Round(time.Millisecond))
}

// sweeps runs them while another is wanted after n, and returns how long the longest took.
func (r *run) sweeps(s *sweep, more func(n int) bool) (longest time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 90*time.Second)
	defer cancel()
	n := 0
	for ; more(n) && !r.t.Failed(); n++ {
		began := time.Now()
		if err := s.all(ctx); err != nil {
			r.t.Errorf("sweep: %v", err)
		}
		longest = max(longest, time.Since(began))
	}
	r.t.Logf("the slowest of %d sweeps:%s", n, s)
	return longest
}

// limits fills what is left of max.connections.per.ip for one address after the other until max.connections is reached: the
// next client is turned away at once and counted, and those who are connected do not notice. When the guests have left
// there is room again.
func (r *run) limits(c *crowd) {
	r.t.Helper()
	var guests []net.Conn
	join := func(from string) bool {
		conn, err := dialFrom(r.t.Context(), from, r.broker.Bootstrap())
		if err != nil {
			r.t.Fatal(err)
		}
		guests = append(guests, conn)
		return greet(conn) == nil
	}
	full, let := 0, 0 // addresses that have all they may have; guests of the one that has not
	for ; full < crowdAddresses; full++ {
		for let = 0; let <= spareByAddress && join(address(full)); {
			let++
		}
		if let != spareByAddress {
			break
		}
	}
	samples, err := r.broker.Metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	used, most := samples[`pgbroker_limit_used{limit="max.connections"}`], samples[`pgbroker_limit_max{limit="max.connections"}`]
	byAddress, byAll := samples[`pgbroker_limit_rejections_total{limit="max.connections.per.ip"}`], samples[`pgbroker_limit_rejections_total{limit="max.connections"}`]
	if full == 0 || let > spareByAddress || used != most || byAddress != float64(full) || byAll != 1 {
		r.t.Errorf("%d addresses were filled and another let %d in: %.0f of %.0f connections, %.0f turned away for their address and %.0f for all",
			full, let, used, most, byAddress, byAll)
	}
	for _, i := range []int{0, len(c.conns) / 2, len(c.conns) - 1} {
		if err := greet(c.conns[i]); err != nil {
			r.t.Errorf("client %d after others were turned away: %v", i, err)
		}
	}
	for _, conn := range guests {
		_ = conn.Close()
	}
	r.await("the guests have left", func() bool { return r.connections() <= most-float64(full*spareByAddress+let) })
}

// slowReaders ask for the metadata of all topics again and again, some 10 MB each, and read none of it.
func (r *run) slowReaders() (readers []net.Conn) {
	r.t.Helper()
	for range 20 {
		conn := dialSmall(r.t, r.broker.Bootstrap())
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("slow")).AppendRequest(nil, req, 7)
		for range 100 {
			if _, err := conn.Write(frame); err != nil {
				r.t.Fatal(err)
			}
		}
		readers = append(readers, conn)
	}
	return readers
}

// gone waits until what the crowd held is given back.
func (r *run) gone(before measured) {
	r.t.Helper()
	began := time.Now()
	r.await("all connections are gone", func() bool {
		return r.connections() == 0
	})
	r.await("their goroutines and sockets are gone", func() bool {
		return r.sample("go_goroutines") <= before.goroutines+50 && r.sockets() <= before.sockets+20
	})
	r.t.Logf("all was closed within %s", time.Since(began).Round(time.Millisecond))
	after := r.measure("after") // heap and stacks are the collector's to take back, in its own time; topics are there now
	if more := after.heap + after.stacks - before.heap - before.stacks; more > sweepMemory {
		r.t.Errorf("%.0f MiB stay in use", more/(1<<20))
	}
}

// TestIdleConnectionsAreClosed: after connections.max.idle.ms a connection without requests is closed, also when there are
// many and they fall due together; one that asks in time stays.
func TestIdleConnectionsAreClosed(t *testing.T) {
	const maxIdle = 2 * time.Second
	clients, _, _ := crowdSize(t)
	clients /= 2
	needFiles(t, uint64(clients)+1000)
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"), Set: []string{
		fmt.Sprintf("connections.max.idle.ms=%d", maxIdle.Milliseconds())}})
	b.MustStart()
	r := &run{t: t, broker: b}
	const faithful = 20
	kept := newCrowd(t, b.Bootstrap(), faithful)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stayed := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			for _, conn := range kept.conns {
				if err := greet(conn); err != nil {
					stayed <- err
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(maxIdle / 6):
			}
		}
		stayed <- nil
	}()
	c := newCrowd(t, b.Bootstrap(), clients)
	began := time.Now() // the last of them has just asked
	var first, last time.Duration
	for i, conn := range c.conns {
		_ = conn.SetReadDeadline(began.Add(maxIdle + 10*time.Second))
		if n, err := conn.Read(make([]byte, 1)); err != io.EOF || n != 0 {
			t.Fatalf("client %d: %d bytes, %v", i, n, err)
		}
		last = time.Since(began)
		if i == 0 {
			first = last
		}
	}
	r.await("they are not counted any more", func() bool { return r.connections() == faithful })
	stop()
	if err := <-stayed; err != nil {
		t.Errorf("a client that asked in time: %v", err)
	}
	t.Logf("%d clients were closed between %s and %s after the last one asked, %d that went on asking stayed", clients,
		first.Round(time.Millisecond), last.Round(time.Millisecond), faithful)
	if closed := r.sample(`pgbroker_limit_rejections_total{limit="connections.max.idle.ms"}`); closed != float64(clients) {
		t.Errorf("%.0f counted as idle, not %d", closed, clients)
	}
}

// await waits until ok, for half a minute.
func (r *run) await(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited for: %s", what)
		}
	}
}

// sample is one series; 0 if it is absent.
func (r *run) sample(series string) float64 {
	r.t.Helper()
	samples, err := r.broker.Metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	return samples[series]
}

// sockets is how many handles of the broker are sockets.
func (r *run) sockets() (n int) {
	for _, target := range r.broker.Files() {
		if strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// connections is how many clients the broker counts.
func (r *run) connections() float64 {
	r.t.Helper()
	samples, err := r.broker.Metrics()
	if err != nil {
		r.t.Fatal(err)
	}
	return connectionCount(samples)
}
