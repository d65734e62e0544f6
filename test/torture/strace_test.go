//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	defaultFaults = 9
	// lifeLimit is how long a broker lives whose fault does not come.
	lifeLimit = 4 * time.Second
)

// fault is what strace does to the n-th call, counted for each thread.
type fault struct {
	call, effect string
	n            int
}

func (f fault) String() string { return fmt.Sprintf("%s:%s:when=%d", f.call, f.effect, f.n) }

// faults are all kinds in turn, from the first one on, each with a random n: small ones fall into the start of the broker,
// others into its work.
func faults(first, count int, random *rand.Rand) (list []fault) {
	calls := []string{"fdatasync", "pwrite64", "renameat"}
	effects := []string{"error=EIO", "error=ENOSPC", "signal=SIGKILL"}
	for i := first; i < first+count; i++ {
		f := fault{call: calls[i%3], effect: effects[(i+i/3)%3]}
		most := map[string]int{"fdatasync": 30, "pwrite64": 60, "renameat": 8}[f.call]
		f.n = 1 + random.IntN(most)
		list = append(list, f)
	}
	return list
}

// TestInjectedFaults runs lives with one fault each in both durabilities. A process that ends and a log that fails lose
// nothing that was acknowledged, in relaxed mode neither: the page cache outlives them.
func TestInjectedFaults(t *testing.T) {
	harness.Need(t, "strace")
	count, seed := defaultFaults, uint64(time.Now().UnixNano())
	if v, err := strconv.Atoi(os.Getenv("PGBROKER_TORTURE_FAULTS")); err == nil {
		count = v
	}
	if v, err := strconv.ParseUint(os.Getenv("PGBROKER_TORTURE_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("PGBROKER_TORTURE_SEED=%d", seed)
	began := time.Now()
	var totals harness.Totals
	hits, planned := map[string]int{}, 0
	for i, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			v := newVictim(t, durability, random)
			for _, f := range faults(i*(count+1)/2, (count+1-i)/2, random) {
				planned++
				if v.live(f) {
					hits[f.call+"/"+f.effect]++
				}
				if t.Failed() {
					break
				}
			}
			totals.Add(v.work.Totals)
		})
	}
	sum := 0
	for _, n := range hits {
		sum += n
	}
	t.Logf("torture: part=strace seed=%d faults_planned=%d faults_hit=%d %v seconds=%.0f", seed, planned, sum, totals, time.Since(began).Seconds())
	t.Logf("faults that hit: %v", hits)
	if sum < planned/2 {
		t.Errorf("only %d of %d faults hit", sum, planned)
	}
}

// victim is a broker that meets faults.
type victim struct {
	t      *testing.T
	broker *harness.Broker
	work   *harness.Work
	random *rand.Rand
	trace  string // strace's output
}

func newVictim(t *testing.T, durability string, random *rand.Rand) *victim {
	t.Helper()
	v := &victim{t: t, random: random, trace: filepath.Join(t.TempDir(), "trace")}
	v.broker = harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.URL(t), Set: []string{
		"durability=" + durability, "log.flush.offset.checkpoint.interval.ms=200", "auto.create.topics.enable=false"}})
	v.broker.MustStart()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	if v.work, err = harness.NewWork(ctx, v.broker.Bootstrap(), true, random); err != nil {
		t.Fatal(err)
	}
	v.broker.Kill()
	return v
}

// live runs the broker under strace until the fault has hit and a little more, kills it, and checks a start without
// strace. It says whether the fault hit.
func (v *victim) live(f fault) (hit bool) {
	ctx, cancel := context.WithTimeout(v.t.Context(), 2*time.Minute)
	defer cancel()
	_ = os.Remove(v.trace)
	v.broker.Wrap = []string{"strace", "-D", "-f", "-qq", "-o", v.trace, "-e", "trace=" + f.call, "-e", "inject=" + f.String()}
	if strings.HasPrefix(f.effect, "error=") { // much faster, but it injects no signals
		v.broker.Wrap = append(v.broker.Wrap, "--seccomp-bpf")
	}
	var refused error // a fault explains it
	if err := v.broker.Start(); err == nil {
		if refused = v.work.Begin(ctx); refused == nil {
			v.await(ctx)
			v.work.End()
		}
	} else {
		refused = err
	}
	for range 50 { // strace may be behind a process that has ended
		if hit = v.hit(); hit {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if refused != nil && !hit {
		v.t.Errorf("%v did not hit, and yet: %v\n%s", f, refused, harness.Tail(v.broker.Log.String(), 20))
	}
	v.broker.Kill()
	if found := v.broker.VerifyFiles(); strings.Contains(found, "ERROR ") {
		v.t.Errorf("%v: log verify before the start:\n%s", f, found)
	}
	v.broker.Wrap = nil
	if err := v.broker.Start(); err != nil {
		v.t.Errorf("%v: the start after it: %v\n%s", f, err, harness.Tail(v.broker.Log.String(), 20))
		return hit
	}
	for i, err := range v.work.Check(ctx) {
		if v.t.Errorf("%v: %v", f, err); i == 10 {
			break
		}
	}
	if err := v.broker.Stop(); err != nil {
		v.t.Errorf("%v: %v", f, err)
	}
	if found := v.broker.VerifyFiles(); !strings.HasSuffix(found, ", 0 findings") {
		v.t.Errorf("%v: log verify after a clean stop:\n%s", f, found)
	}
	return hit
}

// await lets clients work until the fault has hit and for a moment more, until the broker ends, or until it is clear that
// the fault does not come.
func (v *victim) await(ctx context.Context) {
	limit := time.After(lifeLimit)
	for {
		select {
		case <-v.broker.Exited():
			return
		case <-limit:
			return
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
		if v.hit() {
			time.Sleep(time.Duration(v.random.IntN(200)) * time.Millisecond) // what the broker does after a fault is part of the test
			return
		}
	}
}

// hit says whether strace has injected the fault. Of a killed process it says so too.
func (v *victim) hit() bool {
	trace, err := os.ReadFile(v.trace)
	return err == nil && (strings.Contains(string(trace), "(INJECTED)") || strings.Contains(string(trace), "killed by SIGKILL"))
}
