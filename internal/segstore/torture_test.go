package segstore

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// tortureSettings are those of make test, or of make torture by the environment.
func tortureSettings(t *testing.T) (seed uint64, lasts time.Duration, runs int64) {
	t.Helper()
	seed, lasts, runs = uint64(time.Now().UnixNano()), 8*time.Second, 1<<62
	number := func(name string, to func(uint64)) {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s=%q is not a number", name, text)
			}
			to(v)
		}
	}
	number("PGBROKER_TORTURE_SEED", func(v uint64) { seed = v })
	number("PGBROKER_TORTURE_SECONDS", func(v uint64) { lasts = time.Duration(v) * time.Second })
	number("PGBROKER_TORTURE_RUNS", func(v uint64) { runs = int64(v) })
	return seed, lasts, runs
}

// TestTorture tells random stories of three logs, among them a compacted one, in both durabilities, half of them with a
// fault of the disk, and cuts the power at random sync points: of the script, of the recovery that follows, and of the
// next life on what was recovered. PGBROKER_TORTURE_SEED begins with that story: the n-th one has the seed + n.
func TestTorture(t *testing.T) {
	seed, lasts, runs := tortureSettings(t)
	t.Logf("PGBROKER_TORTURE_SEED=%d", seed)
	began := time.Now()
	var next atomic.Int64
	var mu sync.Mutex
	var sum tortureStats
	var lost, wrong int
	var working sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		working.Go(func() {
			for time.Since(began) < lasts {
				n := next.Add(1) - 1
				if n >= runs {
					return
				}
				w := newTortureWorld(seed+uint64(n), []Durability{Strict, Relaxed}[(seed+uint64(n))%2])
				err := w.run((seed+uint64(n))/2%2 == 1)
				mu.Lock()
				sum.add(w.stats)
				if err != nil {
					if errors.Is(err, errLost) {
						lost++
					} else {
						wrong++
					}
					t.Errorf("PGBROKER_TORTURE_SEED=%d PGBROKER_TORTURE_RUNS=1: %v", seed+uint64(n), err)
				}
				stop := lost+wrong > 5
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	working.Wait()
	took := time.Since(began).Seconds()
	t.Logf("torture: part=memory seed=%d runs=%d runs_per_second=%.0f lives=%d ops=%d cuts=%d faults_hit=%d records_acknowledged=%d lost=%d wrong=%d seconds=%.1f",
		seed, sum.Runs, float64(sum.Runs)/took, sum.Lives, sum.Ops, sum.Cuts, sum.Faults, sum.Records, lost, wrong, took)
	if sum.Cuts < sum.Runs || sum.Records == 0 || (sum.Runs > 100 && sum.Faults == 0) {
		t.Errorf("this run shows nothing: %+v", sum)
	}
}

// TestTortureFindsMissingFsyncs: the same stories without fsync are caught.
func TestTortureFindsMissingFsyncs(t *testing.T) {
	for seed := range uint64(5) {
		w := newTortureWorld(seed, Strict)
		w.skipFlush = true
		if err := w.run(false); !errors.Is(err, errLost) && !errors.Is(err, errWrong) {
			t.Errorf("seed %d: nothing was lost without fsync: %v", seed, err)
		}
	}
}

// TestTortureEveryFault tells three stories again and again, with the n-th call of each kind failing for n = 1, 2, … until
// none fails: with EIO, a full disk and a write that stops halfway, once and from then on, which is also how the disk
// looks to a process that dies at that call. Each ends with the power, and with a look at what is left.
func TestTortureEveryFault(t *testing.T) {
	kinds := map[string]vfs.Op{"open": vfs.OpOpen, "create": vfs.OpCreate, "read": vfs.OpRead, "write": vfs.OpWrite, "truncate": vfs.OpTruncate,
		"sync": vfs.OpSync, "syncdir": vfs.OpSyncDir, "rename": vfs.OpRename, "remove": vfs.OpRemove, "readdir": vfs.OpReadDir, "any": vfs.OpAny}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := []error{syscall.EIO}
			if kind == vfs.OpWrite || kind == vfs.OpCreate || kind == vfs.OpSync {
				errs = append(errs, syscall.ENOSPC)
			}
			if kind == vfs.OpWrite {
				errs = append(errs, io.ErrShortWrite)
			}
			hit := 0
			for _, fault := range errs {
				for _, sticky := range []bool{false, true} {
					for seed := range uint64(3) {
						hit += everyFault(t, seed, plannedFault{kind: kind, err: fault, sticky: sticky})
					}
				}
			}
			t.Logf("%d faults hit", hit)
		})
	}
}

func everyFault(t *testing.T, seed uint64, f plannedFault) (hit int) {
	step := 1
	if f.kind == vfs.OpAny {
		step = 3 // each is among those of another kind too
	}
	for f.n = 1; f.n < 3000; f.n += step {
		w := newTortureWorld(seed, Strict)
		w.usual = 0
		if err := w.lifeAndDeath(true, &f); err != nil {
			t.Fatalf("seed %d, call %d, %v, sticky %v: %v", seed, f.n, f.err, f.sticky, err)
		}
		if w.stats.Faults == 0 {
			return hit
		}
		hit++
	}
	t.Fatal("no end of calls")
	return hit
}
