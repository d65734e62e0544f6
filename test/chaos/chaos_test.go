package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
	"github.com/pgbroker/pgbroker/test/history"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests here mostly wait, so they need not wait for each other on a machine with few cores.
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = flag.Set("test.parallel", "6")
	}
	harness.Main(m)
}

const (
	shortRound = 8 * time.Second
	longRound  = 45 * time.Second
)

// TestChaos runs rounds: all workloads under all faults, then peace, then judgement. PGBROKER_CHAOS_DURATION says for how
// long, PGBROKER_CHAOS_SEED from which seed on.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) % 1_000_000_000
	if v, err := strconv.ParseUint(os.Getenv("PGBROKER_CHAOS_SEED"), 10, 64); err == nil {
		seed = v
	}
	if v := os.Getenv("PGBROKER_CHAOS_DURATION"); v != "" {
		lasts, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		longChaos(t, seed, lasts)
		return
	}
	for i, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			round(t, seed+uint64(i), durability, shortRound)
		})
	}
}

// longChaos runs rounds until the time is over and prints the sums.
func longChaos(t *testing.T, seed uint64, lasts time.Duration) {
	began := time.Now()
	var sum tally
	for i := uint64(0); time.Since(began) < lasts && !t.Failed(); i++ {
		durability := []string{"strict", "relaxed"}[i%2]
		t.Run(fmt.Sprintf("%s/seed=%d", durability, seed+i), func(t *testing.T) { sum.add(round(t, seed+i, durability, longRound)) })
	}
	t.Logf("%s from seed %d on\n%s", time.Since(began).Round(time.Second), seed, &sum)
}

// round is one broker's life under faults, judged. A long one has a standby of Postgres, synchronous in every other pair of
// rounds.
func round(t *testing.T, seed uint64, durability string, lasts time.Duration) tally {
	var p *pair
	if lasts >= longRound {
		p = newPair(t, seed/2%2 == 0)
	}
	r := newRun(t, seed, durability, p)
	r.createTopic("log", 2)
	r.createTopic("in", 3)
	r.createTopic("money", 1)
	r.createTopic("transfers", 2)
	r.options.Money = []string{"money", "transfers"}
	pipelines := r.pipelines()

	working, endWork := context.WithCancel(t.Context())
	producing, endProducing := context.WithCancel(working)
	defer endWork()
	defer endProducing()
	r.startLog(producing, working)
	r.startMoney(producing, working)
	for i, p := range pipelines {
		for instance := range 2 {
			r.working.Go(func() { r.copyRecords(working, p, instance, int32(100+10*i+instance)) })
		}
	}

	wrecking, endWrecking := context.WithTimeout(t.Context(), lasts)
	defer endWrecking()
	r.wreck(wrecking)
	r.heal()
	time.Sleep(2 * time.Second) // the workloads go on in peace
	endProducing()
	r.producing.Wait()
	found := r.settle(pipelines)
	endWork()
	r.working.Wait()
	found = append(found, r.finish()...)
	found = append(found, r.checkCoverage(lasts >= longRound)...)
	found = append(found, r.checkProcess()...)
	return r.report(found)
}

// pipelines are two of the four kinds, chosen by the seed.
func (r *run) pipelines() (chosen []pipeline) {
	for i := range uint64(2) {
		kind := (r.seed/2 + i*3) % 4
		p := pipeline{in: "in", protocol: []string{history.Classic, history.Consumer}[kind%2], oldTxns: kind >= 2}
		p.out, p.group = fmt.Sprintf("out-%d", kind), fmt.Sprintf("copiers-%d", kind)
		r.createTopic(p.out, 2)
		r.commits(p.group, "in")
		r.options.Source[p.out], r.options.Copier[p.out], r.options.Rising[p.group] = "in", p.group, true
		r.t.Logf("%s: %s", p.group, p)
		chosen = append(chosen, p)
	}
	return chosen
}

// startLog starts plain producers, readers, watchers of offsets, and groups that consume.
func (r *run) startLog(producing, working context.Context) {
	for i := range int32(2) {
		r.producing.Go(func() { r.produce(producing, fmt.Sprintf("producer-%d", i), "log", 1+i, 12*time.Millisecond) })
		r.producing.Go(func() { r.produce(producing, fmt.Sprintf("source-%d", i), "in", 11+i, 16*time.Millisecond) })
	}
	for _, p := range r.places("log") {
		r.working.Go(func() { r.follow(working, "reader-"+p.String(), p, p.Partition == 0) })
	}
	r.working.Go(func() { r.watchOffsets(working, "watcher-of-log", "log") })
	r.working.Go(func() { r.watchOffsets(working, "watcher-of-transfers", "transfers") })
	for _, protocol := range []string{history.Classic, history.Consumer} {
		group := "workers-" + protocol
		r.commits(group, "log")
		for instance := range 2 {
			r.working.Go(func() { r.consume(working, group, protocol, "log", instance) })
		}
	}
	for i := range 2 {
		group := fmt.Sprintf("register-%d", i)
		for j := range 2 {
			r.producing.Go(func() {
				r.access(producing, fmt.Sprintf("%s-client-%d", group, j), group, history.Place{Topic: "log", Partition: int32(i)})
			})
		}
		r.groups[history.Place{Topic: "log", Partition: int32(i)}] = append(r.groups[history.Place{Topic: "log", Partition: int32(i)}], group)
	}
}

// startMoney starts transfers under both generations of transactions, and those who look.
func (r *run) startMoney(producing, working context.Context) {
	for i, topic := range []string{"money", "transfers"} {
		for j, old := range []bool{false, true} {
			r.producing.Go(func() { r.transfer(producing, fmt.Sprintf("%s-teller-%d", topic, j), topic, int32(21+2*i+j), old) })
		}
		r.commits("bank-of-"+topic, topic)
	}
	for _, p := range r.places("transfers") {
		r.working.Go(func() { r.follow(working, "reader-"+p.String(), p, p.Partition == 0) })
	}
	r.working.Go(func() { r.audit(working, "auditor", history.Place{Topic: "money"}) })
}

// settle waits until each pipeline and each group of workers has come to the end of its topic.
func (r *run) settle(pipelines []pipeline) (found []history.Violation) {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	groups := map[string]string{"workers-" + history.Classic: "log", "workers-" + history.Consumer: "log"}
	for _, p := range pipelines {
		groups[p.group] = p.in
	}
	var all sync.WaitGroup
	var mu sync.Mutex // guards found
	for group, topic := range groups {
		for _, p := range r.places(topic) {
			all.Go(func() {
				if err := r.awaitEnd(ctx, group, p); err != nil {
					mu.Lock()
					defer mu.Unlock()
					found = append(found, history.Violation{Rule: "settle", Text: err.Error()})
				}
			})
		}
	}
	all.Wait()
	return found
}

// awaitEnd waits until a group has committed the end of a partition.
func (r *run) awaitEnd(ctx context.Context, group string, p history.Place) error {
	lister := offsetLister{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process("settle-list")}
	offsets := offsetClient{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process("settle-offsets")}
	defer func() { lister.close(); offsets.close() }()
	for {
		end, err := lister.list(p.Topic, p.Partition, history.Latest)
		at := int64(-1)
		if err == nil {
			if at, err = offsets.fetchOffset(group, p.Topic, p.Partition, false); err == nil && (at >= end || end == 0) {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s is at %d of %d in %s, %s after the last fault (%v)", group, at, end, p, settleLimit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
