package segstore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// liveClients appends as idempotent and transactional clients do and keeps
// their sequences.
type liveClients struct {
	rng  *rand.Rand
	log  *Log
	next map[int64]int32
	open map[int64]bool
	now  int64
}

func newClients(seed uint64, l *Log) *liveClients {
	return &liveClients{rng: rand.New(rand.NewPCG(seed, 2)), log: l, next: map[int64]int32{}, open: map[int64]bool{},
		now: time.Now().UnixMilli() - 1e6}
}

func (c *liveClients) step(t *testing.T) {
	t.Helper()
	c.now += int64(c.rng.IntN(3000)) - 1000
	term := c.log.LastTerm()
	id := int64(c.rng.IntN(6))
	switch k := c.rng.IntN(20); {
	case k == 0:
		if _, err := c.log.BeginTerm(term + 1); err != nil {
			t.Fatal(err)
		}
	case k < 4:
		mustAppend(t, c.log, plainBatch(noProducer, 1+c.rng.IntN(4), c.rng.IntN(800), c.now), term)
	case k < 8 && c.open[id]:
		if _, err := c.log.AppendMarker(id, 0, c.rng.IntN(2) == 0, 3, term); err != nil {
			t.Fatal(err)
		}
		c.open[id] = false
	default:
		h := BatchHeader{ProducerID: id, BaseSequence: c.next[id]}
		n := 1 + c.rng.IntN(4)
		if id >= 3 {
			h.Attributes, c.open[id] = attrTransactional, true
		}
		mustAppend(t, c.log, plainBatch(h, n, c.rng.IntN(800), c.now), term)
		c.next[id] += int32(n)
	}
	c.log.SetHigh(c.log.Offsets().End)
}

// stateOf is everything about a log that a restart must not change.
func stateOf(t *testing.T, l *Log) map[string]any {
	t.Helper()
	o := l.Offsets()
	aborted, err := l.Aborted(0, o.End)
	if err != nil {
		t.Fatal(err)
	}
	s := map[string]any{"end": o.End, "start": o.Start, "size": l.Size(), "segments": l.Segments(), "aborted": aborted}
	ps := l.Producers()
	slices.SortFunc(ps, func(a, b ProducerState) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	s["producers"] = ps
	l.pos.Lock()
	s["terms"] = slices.Clone(l.terms)
	for id, p := range l.producers.byID {
		s[fmt.Sprintf("window of %d", id)] = slices.Clone(p.window[:p.n])
	}
	s["open"] = l.producers.firstOpen(-1)
	l.pos.Unlock()
	l.SetHigh(o.End)
	s["stable"] = l.Offsets().Stable
	top, _, err := l.MaxTimestamp(BoundEnd)
	if err != nil {
		t.Fatal(err)
	}
	s["max timestamp"] = top
	for _, back := range []int64{0, 1000, 5000, 20000, 1e6} {
		at, found, err := l.OffsetForTime(top.TimestampMs-back, BoundEnd)
		if err != nil {
			t.Fatal(err)
		}
		s[fmt.Sprintf("time -%d", back)] = fmt.Sprint(at, found)
	}
	return s
}

func sameState(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	for k := range want {
		if !reflect.DeepEqual(got[k], want[k]) {
			t.Errorf("%s: %s is %v, was %v", what, k, got[k], want[k])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestReopenEqualsLive: offsets, duplicate windows, transactions, terms and
// lookups by time are the same after a clean stop, after none, and after the
// loss of every kind of file that can be rebuilt.
func TestReopenEqualsLive(t *testing.T) {
	damage := map[string]func(dir, name string) bool{
		"nothing":     func(_, _ string) bool { return false },
		"indexes":     func(_, n string) bool { return strings.HasSuffix(n, indexSuffix) },
		"timeindexes": func(_, n string) bool { return strings.HasSuffix(n, timeSuffix) },
		"snapshots":   func(_, n string) bool { return strings.HasSuffix(n, snapshotSuffix) },
		"terms":       func(_, n string) bool { return n == termFile },
	}
	for what, lose := range damage {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("lose %s/clean=%v", what, clean), func(t *testing.T) {
				for seed := range uint64(4) {
					disk, dir := vfs.NewMem(), "data"
					cfg := testConfig()
					cfg.SegmentBytes, cfg.IndexIntervalBytes = 20<<10, 1000
					s := openTest(t, disk, dir, Relaxed, cfg)
					l, err := s.Create(TopicID{9}, "t-x", 3, cfg)
					if err != nil {
						t.Fatal(err)
					}
					l.BeginTerm(0)
					clients := newClients(seed, l)
					for i := range 150 {
						clients.step(t)
						if i == 80 {
							if err := s.checkpoint(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
					}
					want := stateOf(t, l)
					stopTest(t, s, clean)
					if clean { // a power cut after it takes nothing
						disk = disk.CrashCopy(rand.New(rand.NewPCG(seed, 6)))
					}
					loseFiles(t, disk, l.dir, lose)
					s = openTest(t, disk, dir, Relaxed, cfg)
					l, _ = s.Get(TopicID{9}, 3)
					if err := l.Err(); err != nil {
						t.Fatal(err)
					}
					if _, ok := s.CleanIncarnation(); ok != clean {
						t.Fatalf("clean stop found: %v", ok)
					}
					sameState(t, fmt.Sprintf("seed %d", seed), stateOf(t, l), want)
					stopTest(t, s, true)
				}
			})
		}
	}
}

// stopTest closes cleanly, or leaves the store as kill -9 would.
func stopTest(t *testing.T, s *Store, clean bool) {
	t.Helper()
	if clean {
		if err := s.Close(true, 1); err != nil {
			t.Fatal(err)
		}
		return
	}
	s.stop()
	s.running.Wait()
	s.lock.Close()
}

func loseFiles(t *testing.T, fsys vfs.FS, dir string, lose func(dir, name string) bool) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if lose(dir, e.Name()) {
			if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWriteFolderForKafka leaves a folder in PGBROKER_SEGMENT_FOLDER, if set,
// for Kafka's DumpLogSegments.
func TestWriteFolderForKafka(t *testing.T) {
	dir := os.Getenv("PGBROKER_SEGMENT_FOLDER")
	if dir == "" {
		dir = t.TempDir()
	}
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 20<<10, 1000
	s := openTest(t, vfs.OS{}, dir, Strict, cfg)
	l, err := s.Create(TopicID{9}, "kafka", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(0)
	clients := newClients(1, l)
	for range 300 {
		clients.step(t)
	}
	if l.Segments() < 3 {
		t.Fatalf("%d segments", l.Segments())
	}
	stopTest(t, s, true)
}
