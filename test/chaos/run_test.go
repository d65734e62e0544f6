package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
	"github.com/pgbroker/pgbroker/test/history"
)

const (
	transactionTimeout = 6 * time.Second
	livenessLimit      = 20 * time.Second
	settleLimit        = 60 * time.Second // for everything that must come to an end after the last fault
)

// run is one broker, one history, and what happens to both.
type run struct {
	t          *testing.T
	seed       uint64
	durability string
	recorder   *history.Recorder
	pg         *embedpg.Server
	pair       *pair         // of which pg is the primary, nil: there is no standby
	followed   time.Duration // the longest that the broker took to follow a failover
	broker     *harness.Broker
	proxy      *harness.Proxy
	topics     map[string]int32
	options    history.Options
	groups     map[history.Place][]string // who commits offsets of a partition
	faults     map[string]int             // that hit
	fault      *history.Process
	settleIn   time.Duration
	killed     []history.Span // when the broker was
	crashed    []history.Span // when Postgres was

	clientsDied        atomic.Int32
	producing, working sync.WaitGroup
}

// newRun starts a broker with a Postgres of its own, or with a pair of them.
func newRun(t *testing.T, seed uint64, durability string, p *pair, set ...string) *run {
	t.Helper()
	r := &run{t: t, seed: seed, durability: durability, recorder: history.NewRecorder(), pair: p, topics: map[string]int32{},
		groups: map[history.Place][]string{}, faults: map[string]int{}, settleIn: settleLimit}
	url := ""
	if p != nil {
		r.pg, url = p.primary, p.url()
	} else {
		r.pg = pgtest.Server(t)
		url = r.pg.URL("postgres")
	}
	r.fault = r.recorder.Process("chaos")
	r.options = history.Options{TransactionTimeout: transactionTimeout, Slack: 5 * time.Second, Liveness: livenessLimit,
		Source: map[string]string{}, Copier: map[string]string{}, Rising: map[string]bool{}}
	port := harness.FreePort(t)
	r.proxy = harness.NewProxy(t, port)
	r.broker = harness.NewBroker(t, harness.BrokerOptions{Postgres: url, Port: port, Advertised: r.proxy.Port(), Set: append([]string{
		"durability=" + durability, "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false", "group.min.session.timeout.ms=1000",
		"group.consumer.min.session.timeout.ms=1000", "group.consumer.session.timeout.ms=4000", "group.consumer.min.heartbeat.interval.ms=100",
		"group.consumer.heartbeat.interval.ms=500"}, set...)})
	r.broker.MustStart()
	return r
}

// random is a source of its own for each purpose, so that none depends on another's timing.
func (r *run) random(purpose string) *rand.Rand {
	h := r.seed
	for _, c := range purpose {
		h = h*1099511628211 ^ uint64(c)
	}
	return rand.New(rand.NewPCG(r.seed, h))
}

// client makes a franz-go client that does not live longer than the test.
func (r *run) client(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append(r.clientOpts(), opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *run) clientOpts() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(r.proxy.Bootstrap()), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.DialTimeout(2 * time.Second),
		kgo.AlwaysRetryEOF(), // a cut is not the answer of a TLS listener
	}
}

func (r *run) createTopic(name string, partitions int32) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	c := r.client()
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		r.t.Fatalf("create topic %s: %v", name, err)
	}
	r.topics[name] = partitions
}

// places are all partitions of a topic.
func (r *run) places(topic string) (all []history.Place) {
	for p := range r.topics[topic] {
		all = append(all, history.Place{Topic: topic, Partition: p})
	}
	return all
}

// commits notes that a group commits offsets of a topic, so that they are read at the end.
func (r *run) commits(group, topic string) {
	for _, p := range r.places(topic) {
		r.groups[p] = append(r.groups[p], group)
	}
}

// finish reads everything once more, whole, has the history judged and returns what was found wrong.
func (r *run) finish() []history.Violation {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.settleIn)
	defer cancel()
	var problems []history.Violation
	note := func(err error) {
		if err != nil {
			problems = append(problems, history.Violation{Rule: "settle", Text: err.Error()})
		}
	}
	for topic := range r.topics {
		for _, p := range r.places(topic) {
			note(r.readWhole(ctx, p))
		}
	}
	for place, groups := range r.groups {
		for _, g := range groups {
			note(r.lastOffset(ctx, g, place))
		}
	}
	r.options.MayStepBack = r.mayStepBack()
	return append(problems, history.Check(r.recorder.History(), r.options)...)
}

// forgetting is how long after a commit, in relaxed mode, a crash of Postgres may still take it back: three times
// wal_writer_delay, and the renewal that sees that it is settled, on a busy machine.
const forgetting = 5 * time.Second

// mayStepBack are the times at which relaxed commits may have been lost: a crash of Postgres and a kill of the broker, which
// would have put them back, close to each other.
func (r *run) mayStepBack() (spans []history.Span) {
	if r.durability != "relaxed" {
		return nil
	}
	for _, k := range r.killed {
		for _, c := range r.crashed {
			if k.From < c.To+int64(forgetting) && c.From < k.To+int64(forgetting) {
				spans = append(spans, history.Span{From: max(k.From, c.From), To: max(k.To, c.To)})
			}
		}
	}
	return spans
}

// readWhole waits until no transaction is open in a partition and reads it under both isolations.
func (r *run) readWhole(ctx context.Context, p history.Place) error {
	lister := offsetLister{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process("final-list")}
	defer lister.close()
	var stable, latest int64
	var held error // what still keeps readers of committed records back when the time is over
	for {
		var err error
		if stable, err = lister.list(p.Topic, p.Partition, history.Stable); err == nil {
			if latest, err = lister.list(p.Topic, p.Partition, history.Latest); err == nil && stable == latest {
				break
			}
		}
		if ctx.Err() != nil {
			if held = fmt.Errorf("%s: stable offset %d, latest %d, %v", p, stable, latest, err); err != nil {
				return held
			}
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, committed := range []bool{false, true} {
		if err := r.readTo(p, committed, map[bool]int64{false: latest, true: stable}[committed]); err != nil {
			return err
		}
	}
	return held
}

// readTo reads a partition from its start to an offset as one operation.
func (r *run) readTo(p history.Place, committed bool, end int64) error {
	reader := partitionReader{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process("final-read"), topic: p.Topic, partition: p.Partition, committed: committed}
	defer reader.close()
	pending := reader.process.Invoke(history.Op{Kind: history.Poll, Committed: committed, Final: true, Topic: p.Topic, Partition: p.Partition})
	var all []history.Record
	for deadline := time.Now().Add(r.settleIn); reader.next < end; {
		some, err := reader.fetch(100)
		if all = append(all, some...); time.Now().After(deadline) {
			return fmt.Errorf("%s was read to %d of %d: %v", p, reader.next, end, err)
		}
	}
	pending.Done(history.OK, func(o *history.Op) { o.Records = all })
	return nil
}

// lastOffset reads a group's offset when nothing can change it any more.
func (r *run) lastOffset(ctx context.Context, group string, p history.Place) error {
	c := offsetClient{line: line{address: r.proxy.Bootstrap()}, process: r.recorder.Process("final-offsets")}
	defer c.close()
	for {
		_, err := c.fetchOffset(group, p.Topic, p.Partition, true)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tally is what was done, seen and found in one round or in all.
type tally struct {
	rounds, violations int
	operations         map[history.Kind]map[history.Type]int
	faults             map[string]int
}

func (a *tally) add(b tally) {
	if a.operations == nil {
		a.operations, a.faults = map[history.Kind]map[history.Type]int{}, map[string]int{}
	}
	a.rounds, a.violations = a.rounds+b.rounds, a.violations+b.violations
	for kind, counts := range b.operations {
		if a.operations[kind] == nil {
			a.operations[kind] = map[history.Type]int{}
		}
		for how, n := range counts {
			a.operations[kind][how] += n
		}
	}
	for name, n := range b.faults {
		a.faults[name] += n
	}
}

func (a *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %9s %9s %9s\n", "operation", "ok", "fail", "info")
	for _, kind := range slices.Sorted(maps.Keys(a.operations)) {
		n := a.operations[kind]
		fmt.Fprintf(&b, "%-16s %9d %9d %9d\n", kind, n[history.OK], n[history.Fail], n[history.Info])
	}
	b.WriteString("faults that hit:")
	for _, name := range slices.Sorted(maps.Keys(a.faults)) {
		fmt.Fprintf(&b, " %s %d", name, a.faults[name])
	}
	fmt.Fprintf(&b, "\nviolations: %d in %d rounds", a.violations, a.rounds)
	return b.String()
}

// report prints what was done and seen, and fails the test on a violation, with the history in a file.
func (r *run) report(found []history.Violation) tally {
	r.t.Helper()
	h := r.recorder.History()
	var sum tally
	sum.add(tally{1, len(found), h.Count(), r.faults})
	r.t.Logf("durability %s, seed %d\n%s", r.durability, r.seed, &sum)
	if r.followed > 0 {
		r.t.Logf("the broker had put everything in order at most %s after a promotion", r.followed.Round(time.Millisecond))
	}
	if len(found) == 0 {
		return sum
	}
	for _, v := range found {
		r.t.Error(v)
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("pgbroker-chaos-%d-%s.history", r.seed, r.durability))
	f, err := os.Create(path)
	if err == nil {
		err = h.Write(f)
		_ = f.Close()
	}
	r.t.Logf("history: %s (%v); the broker's log beside it", path, err)
	_ = os.WriteFile(path+".log", []byte(r.broker.Log.String()), 0o600)
	if options, err := json.Marshal(r.options); err == nil {
		_ = os.WriteFile(path+".options", options, 0o600)
	}
	return sum
}

// checkCoverage wants each kind of operation to have succeeded, transactions to have ended both ways, and, in a round that
// is long enough for it, each kind of fault to have hit: a run in which nothing happens proves nothing.
func (r *run) checkCoverage(everyFault bool) (found []history.Violation) {
	h := r.recorder.History()
	counts := h.Count()
	for _, kind := range []history.Kind{history.Send, history.Poll, history.End, history.Init, history.AddPartitions, history.CommitOffset, history.FetchOffset,
		history.List, history.Assign, history.Work, history.Snapshot} {
		if counts[kind][history.OK] == 0 {
			found = append(found, history.Violation{Rule: "coverage", Text: fmt.Sprintf("no %s succeeded", kind)})
		}
	}
	ends := map[bool]int{}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == history.End && o.Type == history.OK {
			ends[o.Commit]++
		}
	}
	if ends[true] == 0 || ends[false] == 0 {
		found = append(found, history.Violation{Rule: "coverage", Text: fmt.Sprintf("%d commits, %d aborts", ends[true], ends[false])})
	}
	wanted := []string{"kill-broker", "kill-backend", "crash-postgres", "pause-broker", "pause-postgres", "cut-connections", "kill-client"}
	if r.pair != nil {
		wanted = append(wanted, r.pair.fault(false), r.pair.fault(true))
	}
	for _, name := range wanted {
		if everyFault && r.faults[name] == 0 {
			found = append(found, history.Violation{Rule: "coverage", Text: fmt.Sprintf("%s never hit", name)})
		}
	}
	return found
}

// checkProcess wants the broker alive, its log without a word of a defect, and its files good after a clean stop.
func (r *run) checkProcess() (found []history.Violation) {
	defect := func(format string, args ...any) {
		found = append(found, history.Violation{Rule: "process", Text: fmt.Sprintf(format, args...)})
	}
	if r.broker.Dead() {
		defect("the broker ended by itself")
		return found
	}
	for _, text := range []string{"panic", "UNKNOWN_SERVER_ERROR", "answered twice", `"level":"ERROR"`} {
		for _, line := range r.broker.LogLines(text) {
			if strings.Contains(line, "SEEDED BUGS") { // what a build that has some says at each start
				continue
			}
			defect("the broker's log: %s", line)
		}
	}
	if err := r.broker.Stop(); err != nil {
		defect("%v", err)
		return found
	}
	if verified := r.broker.VerifyFiles(); !strings.HasSuffix(strings.TrimSpace(verified), ", 0 findings") {
		defect("log verify after a clean stop: %s", verified)
	}
	return found
}
