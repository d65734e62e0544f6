package segstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestCompactionUnderReaders: the cleaner runs by itself while a producer
// writes, retention and checkpoints run, and readers follow from the start
// again and again. Nobody sees an error, an offset twice, or an old value
// after a newer one; files that nobody needs go.
func TestCompactionUnderReaders(t *testing.T) {
	cfg := compactConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.FileDeleteDelay, cfg.MinDirtyRatio = 8000, 500, 0, 0.1
	disk := vfs.NewMem()
	s, err := Open(Options{FS: disk, Dir: "data", Durability: Relaxed,
		Cleaner: CleanerOptions{Enable: true, BufferBytes: 1 << 20, Backoff: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(true, 0)
	if err := s.Recover(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	const writes = 4000
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				followCompacted(t, l)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := s.checkpoint(ctx); err != nil {
				t.Error(err)
			}
			s.retain(ctx)
			s.emptyTrash(s.now())
			time.Sleep(time.Millisecond)
		}
	})
	for i := range writes {
		mustAppend(t, l, keyedBatch(t, noProducer, i%5, s.now().UnixMilli(), kv{fmt.Sprint(i % 40), fmt.Sprint(i)}, kv{"pad", strings.Repeat("x", 50)}), 1)
		l.SetHigh(l.Offsets().End)
		if i%500 == 499 {
			l.FlushTo(l.Offsets().End)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; l.Segments() > 6 && time.Now().Before(deadline); i++ { // a round puts small segments together
		mustAppend(t, l, keyedBatch(t, noProducer, 0, s.now().UnixMilli(), kv{fmt.Sprint(i % 40), fmt.Sprint(writes + i)}), 1)
		l.SetHigh(l.Offsets().End)
		l.FlushTo(l.Offsets().End)
		time.Sleep(time.Millisecond)
	}
	stop()
	wg.Wait()
	if n := l.Segments(); n > 6 {
		t.Errorf("%d segments are left", n)
	}
	s.emptyTrash(s.now().Add(time.Hour))
	entries, _ := disk.ReadDir(l.dir)
	if len(entries) > 6*5+3 {
		t.Errorf("%d files are left", len(entries))
	}
}

// followCompacted reads from the start to the end.
func followCompacted(t *testing.T, l *Log) {
	newest := map[string]int{}
	end := l.Offsets().High
	for next := int64(0); next < end; {
		r, err := l.Read(next, 3000, BoundHigh, true)
		if err != nil {
			t.Errorf("read at %d: %v", next, err)
			return
		}
		data, err := r.AppendTo(nil)
		r.Release()
		if err != nil || len(data) == 0 {
			t.Errorf("%d bytes at %d: %v", len(data), next, err)
			return
		}
		for len(data) > 0 {
			h := decodeHeader(data)
			if h.LastOffset() < next || !crcGood(data[:h.Size()]) {
				t.Errorf("batch %d-%d at %d", h.BaseOffset, h.LastOffset(), next)
				return
			}
			next = h.LastOffset() + 1
			err := inflate(h.Codec(), data[batchOverhead:h.Size()], inflateLimit, func(plain []byte) error {
				it := recordIter{buf: plain, left: h.Records}
				for it.next() {
					var n int
					fmt.Sscan(string(it.value), &n)
					if old := newest[string(it.key)]; n < old {
						return fmt.Errorf("key %s is %d after %d", it.key, n, old)
					}
					newest[string(it.key)] = n
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			data = data[h.Size():]
		}
	}
	if _, err := l.Aborted(0, end); err != nil {
		t.Error(err)
	}
	if _, _, err := l.OffsetForTime(1, BoundHigh); err != nil {
		t.Error(err)
	}
}

// TestKafkasUnfinishedCompaction: a folder that a Kafka left between two steps
// of a compaction is finished or undone as its LogLoader does.
func TestKafkasUnfinishedCompaction(t *testing.T) {
	// Segments at 0, 10, 20 and 30, ten records each; new holds offsets 3, 17 and 19, in one segment at 0.
	story := func(t *testing.T, change func(dir string, disk *vfs.Mem, new string)) []string {
		t.Helper()
		disk := vfs.NewMem()
		c := newCompactLog(t, disk, compactConfig())
		var twin []byte
		for i := range 40 {
			raw := keyedBatch(t, noProducer, codecNone, compactEpoch, kv{fmt.Sprint(i), "v"})
			a := mustAppend(t, c.Log, raw, 1)
			if slices.Contains([]int64{3, 17, 19}, a.BaseOffset) {
				twin = append(twin, raw...)
			}
			if i%10 == 9 && i < 39 {
				c.roll()
			}
		}
		if err := c.s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		change(c.dir, disk, string(twin))
		c.reopen()
		var offsets []string
		for _, line := range c.story() {
			offsets = append(offsets, strings.SplitN(line, "-", 2)[0])
		}
		entries, _ := disk.ReadDir(c.dir)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), swapSuffix) || strings.HasSuffix(e.Name(), cleanedSuffix) {
				t.Errorf("left behind: %s", e.Name())
			}
		}
		return offsets
	}
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprint(i))
	}
	done := append([]string{"3", "17", "19"}, all[20:]...)
	put := func(disk *vfs.Mem, dir string, base int64, suffix, data string) {
		if err := disk.WriteFile(segmentFile(dir, base, suffix), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(dir string, disk *vfs.Mem, new string)
		want   []string
	}{
		"being written": {func(dir string, disk *vfs.Mem, new string) {
			put(disk, dir, 0, ".log.cleaned", new[:100])
			put(disk, dir, 0, ".index.cleaned", "")
		}, all},
		"being renamed": {func(dir string, disk *vfs.Mem, new string) {
			put(disk, dir, 0, ".log.swap", new)
			put(disk, dir, 0, ".index.cleaned", "")
		}, all},
		"a split undone": {func(dir string, disk *vfs.Mem, new string) {
			put(disk, dir, 0, ".log.cleaned", new)
			put(disk, dir, 10, ".log.swap", "")
		}, all},
		"committed": {func(dir string, disk *vfs.Mem, new string) {
			put(disk, dir, 0, ".log.swap", new)
			put(disk, dir, 0, ".index.swap", "")
			put(disk, dir, 0, ".timeindex.swap", "")
		}, done},
		"old ones half gone": {func(dir string, disk *vfs.Mem, new string) {
			put(disk, dir, 0, ".log.swap", new)
			disk.Rename(segmentFile(dir, 0, logSuffix), segmentFile(dir, 0, logSuffix+deletedSuffix))
			disk.Rename(segmentFile(dir, 10, indexSuffix), segmentFile(dir, 10, indexSuffix+deletedSuffix))
		}, done},
		"an index still to be renamed": {func(dir string, disk *vfs.Mem, new string) {
			put(disk, dir, 0, logSuffix, new)
			for _, suffix := range segmentSuffixes {
				disk.Remove(segmentFile(dir, 10, suffix))
			}
			disk.Remove(segmentFile(dir, 0, indexSuffix))
			put(disk, dir, 0, ".index.swap", "")
		}, done},
	} {
		t.Run(name, func(t *testing.T) {
			if got := story(t, c.change); !slices.Equal(got, c.want) {
				t.Errorf("offsets %v, want %v", got, c.want)
			}
		})
	}
	t.Run("bad swap", func(t *testing.T) {
		disk := vfs.NewMem()
		c := newCompactLog(t, disk, compactConfig())
		c.put(noProducer, kv{"a", "1"})
		c.roll()
		put(disk, c.dir, 0, ".log.swap", strings.Repeat("bad", 50))
		stopTest(t, c.s, false)
		c.open(compactConfig())
		l, _ := c.s.Get(TopicID{1}, 0)
		if !errors.Is(l.Err(), ErrCorrupt) {
			t.Errorf("the log: %v", l.Err())
		}
		if _, err := disk.Stat(segmentFile(c.dir, 0, logSuffix)); err != nil {
			t.Error(err)
		}
	})
}

// TestKafkasGapsBetweenSegments: a Kafka leaves nothing at the end of a
// compacted segment. Below its cleaner-offset-checkpoint that is no loss, also
// above the recovery point.
func TestKafkasGapsBetweenSegments(t *testing.T) {
	for _, cleaned := range []bool{true, false} {
		disk := vfs.NewMem()
		c := newCompactLog(t, disk, compactConfig())
		for i := range 30 {
			c.put(noProducer, kv{fmt.Sprint(i), "v"})
			if i%10 == 9 {
				c.roll()
			}
		}
		path := segmentFile(c.dir, 10, logSuffix)
		data, err := disk.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(path, data[:len(data)/2], 0o644); err != nil { // offsets 10-14
			t.Fatal(err)
		}
		top := filepath.Dir(c.dir)
		disk.Remove(filepath.Join(top, recoveryPointFile))
		want := 15
		if cleaned {
			want = 25
			if err := disk.WriteFile(filepath.Join(top, cleanerFile), []byte("0\n1\nt 0 20\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c.reopen()
		if got := len(c.story()); got != want {
			t.Errorf("cleaned %v: %d batches, want %d", cleaned, got, want)
		}
	}
}

// TestPace: bytes are spread over time, and an end of the context ends a wait.
func TestPace(t *testing.T) {
	p := pace{rate: 1 << 20}
	began := time.Now()
	for range 10 {
		if err := p.wait(t.Context(), 10<<10); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 80*time.Millisecond || took > 5*time.Second {
		t.Errorf("100 KiB at 1 MiB/s took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var woken atomic.Bool
	time.AfterFunc(10*time.Millisecond, func() { woken.Store(true); cancel() })
	if err := p.wait(ctx, 1<<30); !errors.Is(err, context.Canceled) || !woken.Load() {
		t.Errorf("wait: %v", err)
	}
}

// TestCompactAndDelete: both policies at once, and what the cleaner reports.
func TestCompactAndDelete(t *testing.T) {
	cfg := compactConfig()
	cfg.Delete, cfg.RetentionAge = true, time.Hour
	c := newCompactLog(t, vfs.NewMem(), cfg)
	seen := new(recordedCleans)
	c.s.observer = seen
	fill := func(value string) {
		for i := range 10 {
			c.put(noProducer, kv{fmt.Sprint(i % 3), value}, kv{fmt.Sprint(value, i), value})
		}
		c.roll()
	}
	fill("old")
	c.compact()
	c.clock.Add(50 * 60_000)
	fill("new")
	c.clock.Add(20 * 60_000)
	if err := c.retain(c.s.now()); err != nil {
		t.Fatal(err)
	}
	if o := c.Offsets(); o.Start != 20 {
		t.Fatalf("starts at %d: the first segment is 70 minutes old", o.Start)
	}
	c.compact()
	if got := c.story(); len(got) != 10 || c.s.cleanedTo(c.Log) != 40 {
		t.Fatalf("clean to %d:\n%s", c.s.cleanedTo(c.Log), strings.Join(got, "\n"))
	}
	if len(seen.list) != 2 || seen.list[1].From != 20 || seen.list[1].To != 40 || seen.list[1].Records != 20 || seen.list[1].Kept != 13 ||
		seen.list[1].Read == 0 || seen.list[1].Written == 0 || seen.list[1].Err != nil || seen.dirtiest != 0 {
		t.Errorf("reported %+v, dirtiest %v", seen.list, seen.dirtiest)
	}
	if _, err := c.DeleteTo(30); err != nil {
		t.Errorf("delete records: %v", err)
	}
	cfg.Delete = false
	c.SetConfig(cfg)
	if _, err := c.DeleteTo(35); !errors.Is(err, ErrPolicy) {
		t.Errorf("delete records of a topic that is only compacted: %v", err)
	}
}

// recordedCleans is an Observer of the cleaner.
type recordedCleans struct {
	list     []CleanResult
	dirtiest float64
}

func (*recordedCleans) DiskFault(FaultKind) {}

func (*recordedCleans) Flushed(time.Duration, error)    {}
func (*recordedCleans) Failed(string, int32, error)     {}
func (r *recordedCleans) Cleaned(c CleanResult)         { r.list = append(r.list, c) }
func (r *recordedCleans) Dirtiest(ratio float64, _ int) { r.dirtiest = ratio }
