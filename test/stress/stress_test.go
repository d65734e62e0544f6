package stress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

const (
	defaultStorm = 8 * time.Second
	checkLimit   = 60 * time.Second
	producers    = 3
	members      = 2 // of each group
)

// TestStorm runs all at once and then checks what was promised; after that it has connections die by the thousand and
// wants every limit, goroutine and file back.
func TestStorm(t *testing.T) {
	for _, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			if v, err := strconv.ParseUint(os.Getenv("PGBROKER_STRESS_SEED"), 10, 64); err == nil {
				seed = v
			}
			t.Logf("PGBROKER_STRESS_SEED=%d", seed)
			newStorm(t, seed, durability).run()
		})
	}
}

// storm is one broker and everything around it.
type storm struct {
	t       *testing.T
	seed    uint64
	lasts   time.Duration
	pg      *embedpg.Server
	broker  *harness.Broker
	proxy   *harness.Proxy
	ledger  *ledger
	admin   *administrator
	keep    []string // topics that lose nothing
	trim    []string // topics that lose records from their front
	passing []string // topics that come and go
	groups  []string
}

func newStorm(t *testing.T, seed uint64, durability string) *storm {
	s := &storm{t: t, seed: seed, lasts: defaultStorm, ledger: newLedger(), groups: []string{"first", "second"}}
	if v, err := strconv.Atoi(os.Getenv("PGBROKER_STRESS_SECONDS")); err == nil {
		s.lasts = time.Duration(v) * time.Second
	}
	s.pg = pgtest.Server(t)
	port := harness.FreePort(t)
	s.proxy = harness.NewProxy(t, port)
	s.broker = harness.NewBroker(t, harness.BrokerOptions{Postgres: s.pg.URL("postgres"), Port: port, Advertised: s.proxy.Port(), Set: []string{"durability=" + durability, "group.initial.rebalance.delay.ms=0",
		"log.retention.check.interval.ms=1000", "log.flush.offset.checkpoint.interval.ms=1000", "auto.create.topics.enable=false",
		"group.min.session.timeout.ms=500"}})
	s.broker.MustStart()
	for i := range 4 {
		s.passing = append(s.passing, fmt.Sprintf("passing-%d", i))
	}
	s.admin = &administrator{client: kadm.NewClient(newClient(t, s.bootstrap())), ledger: s.ledger, random: s.random(1), done: map[string]int{}}
	s.create()
	s.admin.grow, s.admin.trim, s.admin.passing = s.keep, s.trim, s.passing
	return s
}

// bootstrap is where clients connect: the proxy.
func (s *storm) bootstrap() string { return "127.0.0.1:" + strconv.Itoa(s.proxy.Port()) }

// random is a source of its own for each purpose, so that none depends on another's timing.
func (s *storm) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, purpose)) }

func (s *storm) create() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	value := func(v string) *string { return &v }
	for i := range 2 {
		keep, trim := fmt.Sprintf("keep-%d", i), fmt.Sprintf("trim-%d", i)
		s.keep, s.trim = append(s.keep, keep), append(s.trim, trim)
		if _, err := s.admin.client.CreateTopic(ctx, 3, 1, map[string]*string{"segment.bytes": value("1048576")}, keep); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.admin.client.CreateTopic(ctx, 2, 1, map[string]*string{"segment.bytes": value("1048576"), "retention.bytes": value("2097152"),
			"file.delete.delay.ms": value("500")}, trim); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *storm) run() {
	ctx, end := context.WithTimeout(s.t.Context(), s.lasts)
	defer end()
	var writing, reading, rest sync.WaitGroup
	for i := range producers {
		writing.Go(func() {
			produce(ctx, s.t, s.bootstrap(), s.ledger, i, append(append([]string{}, s.keep...), s.trim...), s.random(uint64(10+i)))
		})
	}
	reads, endReads := context.WithCancel(s.t.Context())
	defer endReads()
	for _, group := range s.groups {
		for range members {
			reading.Go(func() { consume(reads, s.t, s.bootstrap(), s.ledger, group, s.keep) })
		}
	}
	reading.Go(func() { watchCommits(reads, s.t, s.bootstrap(), s.ledger, s.groups) })
	rest.Go(func() { produceAnywhere(ctx, s.t, s.bootstrap(), s.passing, s.random(2)) })
	rest.Go(func() { s.admin.run(ctx) })
	s.t.Logf("storm: %v", s.wreck(ctx))
	writing.Wait()
	rest.Wait()
	s.awaitGroups()
	endReads()
	reading.Wait()
	s.admin.mu.Lock()
	s.t.Logf("administrator: %v", s.admin.done)
	s.admin.mu.Unlock()

	checking, cancel := context.WithTimeout(s.t.Context(), checkLimit)
	defer cancel()
	s.ledger.verify(checking, s.t, s.bootstrap(), append(append([]string{}, s.keep...), s.trim...), map[string]bool{s.trim[0]: true, s.trim[1]: true})
	for i, err := range s.ledger.Failed() {
		if s.t.Error(err); i == 10 {
			break
		}
	}
	s.admin.client.Close()
	s.checkLog()
	s.checkLeaks()
	s.checkFiles()
}

// wreck breaks things at random until ctx ends, each kind at least once, and leaves all of them running.
func (s *storm) wreck(ctx context.Context) map[string]int {
	random, done := s.random(3), map[string]int{}
	kinds := []string{"cut", "kill", "cut", "crash", "cut", "kill"}
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-time.After(time.Duration(200+random.IntN(800)) * time.Millisecond):
		case <-ctx.Done():
			return done
		}
		kind := kinds[i%len(kinds)]
		switch kind {
		case "cut":
			done["connections"] += s.proxy.CutShare(random, 0.5)
		case "kill":
			s.broker.Kill()
			s.broker.MustStart()
		case "crash":
			s.crashPostgres(time.Duration(random.IntN(1500)) * time.Millisecond)
		}
		done[kind]++
		if s.broker.Dead() {
			s.t.Fatalf("the broker ended after a %s\n%s", kind, harness.Tail(s.broker.Log.String(), 30))
		}
	}
	return done
}

func (s *storm) crashPostgres(away time.Duration) {
	restarting, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := s.pg.Immediate()
	time.Sleep(away)
	if err == nil {
		err = s.pg.Restart(restarting)
	}
	if err != nil {
		s.t.Fatalf("crash and restart Postgres: %v", err)
	}
}

// awaitGroups waits until the groups have committed all that was acknowledged.
func (s *storm) awaitGroups() {
	want := map[harness.Partition]int64{}
	for at := range s.ledger.Acked() {
		if strings.HasPrefix(at.Topic, "keep-") {
			want[at.Partition] = max(want[at.Partition], at.Offset+1)
		}
	}
	deadline := time.Now().Add(checkLimit)
	for time.Now().Before(deadline) {
		behind := 0
		commits := s.ledger.commitsNow()
		for p, end := range want {
			for _, g := range s.groups {
				if commits[groupPartition{g, p}] < end {
					behind++
				}
			}
		}
		if behind == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Errorf("the groups did not come to the end within %s", checkLimit)
}

// checkLog wants no line in the broker's log that speaks of a defect.
func (s *storm) checkLog() {
	for _, text := range []string{"panic", "UNKNOWN_SERVER_ERROR", "answered twice", `"level":"ERROR"`} {
		for _, line := range s.broker.LogLines(text) {
			s.t.Errorf("the broker's log: %s", line)
		}
	}
}

// checkLeaks has connections die at random bytes, twice, and wants as much in use after the second time as after the
// first.
func (s *storm) checkLeaks() {
	random := s.random(4)
	s.dyingConnections(random, 300)
	before := s.settled()
	s.dyingConnections(random, 1000)
	after := s.settled()
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if after[name] > before[name]+3 {
			s.t.Errorf("%s grew from %v to %v", name, before[name], after[name])
		}
	}
	for name, v := range after {
		if v != 0 && (strings.HasPrefix(name, "pgbroker_limit_used") || strings.HasPrefix(name, "kafka_server_socket_server_metrics_connection_count")) {
			s.t.Errorf("%s is %v when nobody is connected", name, v)
		}
	}
	if held := s.broker.DeletedFiles(); len(held) > 0 {
		s.t.Errorf("deleted files are held open: %v", held)
	}
	s.t.Logf("goroutines %v, files %v", after["go_goroutines"], after["process_open_fds"])
}

// settled are the metrics once nobody is connected any more, and deleted files have gone.
func (s *storm) settled() map[string]float64 {
	deadline := time.Now().Add(10 * time.Second)
	for {
		m, err := s.broker.Metrics()
		if err != nil {
			s.t.Fatal(err)
		}
		busy := false
		for name, v := range m {
			busy = busy || v != 0 && strings.HasPrefix(name, "pgbroker_limit_used")
		}
		if (!busy && len(s.broker.DeletedFiles()) == 0) || time.Now().After(deadline) {
			return m
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// dyingConnections sends true and damaged beginnings of requests and closes at a random byte, half of them by a reset.
func (s *storm) dyingConnections(random *rand.Rand, n int) {
	address := s.bootstrap()
	requests := sampleRequests(s.keep[0])
	slots := make(chan struct{}, 32)
	var all sync.WaitGroup
	for range n {
		request := requests[random.IntN(len(requests))]
		cut, reset, wait := 1+random.IntN(len(request)), random.IntN(2) == 0, time.Duration(random.IntN(5))*time.Millisecond
		if random.IntN(3) == 0 {
			cut = len(request) // whole: the answer finds nobody
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			c, err := net.DialTimeout("tcp", address, 5*time.Second)
			if err != nil {
				s.t.Error(err)
				return
			}
			_, _ = c.Write(request[:cut])
			time.Sleep(wait)
			if reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			_ = c.Close()
		})
	}
	all.Wait()
}
