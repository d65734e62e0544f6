package segstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestTruncateEqualsNeverWritten: a log that was cut at an offset is the log
// that never went further, live and after a power cut.
func TestTruncateEqualsNeverWritten(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 8<<10, 500
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		disk := vfs.NewMem()
		s := openTest(t, disk, "data", Strict, cfg)
		l, err := s.Create(TopicID{1}, "t", 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(0)
		clients := newClients(seed, l)
		for range 40 {
			clients.step(t)
		}
		mustAppend(t, l, plainBatch(noProducer, 1, 1, 1), l.LastTerm()) // a term without a batch goes
		want := stateOf(t, l)
		delete(want, "segments") // an empty one may stay
		offset := l.Offsets().End
		kept := readAll(t, l, 0, BoundEnd)
		for range 80 {
			clients.step(t)
		}
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.TruncateTo(offset); err != nil {
			t.Fatal(err)
		}
		sameState(t, fmt.Sprintf("seed %d, live", seed), stateOf(t, l), want)
		if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, kept) {
			t.Fatalf("seed %d: %d bytes after truncation, want %d", seed, len(got), len(kept))
		}
		crashed := disk.CrashCopy(rng)
		s2 := openTest(t, crashed, "data", Strict, cfg)
		l2, _ := s2.Get(TopicID{1}, 0)
		if err := l2.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sameState(t, fmt.Sprintf("seed %d, after a power cut", seed), stateOf(t, l2), want)
		l.BeginTerm(l.LastTerm() + 1)
		mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), l.LastTerm())
		stopTest(t, s, true)
		s = openTest(t, disk, "data", Strict, cfg)
		l, _ = s.Get(TopicID{1}, 0)
		if o := l.Offsets(); l.Err() != nil || o.End != offset+1 {
			t.Fatalf("seed %d: %+v %v", seed, o, l.Err())
		}
		stopTest(t, s, true)
		stopTest(t, s2, true)
	}
}

// TestTruncateSurvivesAnyCrash: a power cut, or a failed call, during
// truncation or restart leaves a log that opens and holds at least what the
// change keeps.
func TestTruncateSurvivesAnyCrash(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes = 4 << 10
	changes := map[string]struct {
		do         func(*Log) error
		start, end int64 // the log covers at least [start, end)
	}{
		"truncate": {func(l *Log) error { return l.TruncateTo(11) }, 0, 11},
		"restart":  {func(l *Log) error { return l.RestartAt(500) }, 500, 500},
		"delete":   {func(l *Log) error { _, err := l.DeleteTo(11); return err }, 11, 40},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				disk := vfs.NewMem()
				faulty := vfs.NewFaulty(disk)
				s := openTest(t, faulty, "data", Strict, cfg)
				l, err := s.Create(TopicID{1}, "t", 0, cfg)
				if err != nil {
					t.Fatal(err)
				}
				l.BeginTerm(0)
				for range 40 {
					mustAppend(t, l, plainBatch(noProducer, 1, 500, 1), 0)
				}
				l.SetHigh(40)
				if err := s.checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				faulty.Fail(vfs.OpAny, n, errors.New("power cut"), true)
				err = c.do(l)
				hits := faulty.Hits()
				for seed := range uint64(4) {
					copied := disk.CrashCopy(rand.New(rand.NewPCG(seed, uint64(n))))
					s := openTest(t, copied, "data", Strict, cfg)
					l, ok := s.Get(TopicID{1}, 0)
					if !ok || l.Err() != nil {
						t.Fatalf("call %d: %v", n, l.Err())
					}
					o := l.Offsets()
					if untouched := o.Start == 0 && o.End == 40; untouched && hits > 0 {
						stopTest(t, s, true)
						continue
					}
					if o.End < c.end || o.Start > c.start || (hits == 0 && name != "delete" && (o.End != c.end || o.Start != c.start)) ||
						(hits == 0 && name == "delete" && o.Start != c.start) {
						t.Fatalf("call %d: offsets %+v", n, o)
					}
					stopTest(t, s, true)
				}
				stopTest(t, s, false)
				if hits == 0 {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
			}
		})
	}
}

func TestDeleteToLimits(t *testing.T) {
	cfg := testConfig()
	l := newTestLog(t, Relaxed, cfg)
	mustAppend(t, l, plainBatch(noProducer, 10, 1, 1), 1)
	l.SetHigh(8)
	for _, off := range []int64{9, -1} {
		if _, err := l.DeleteTo(off); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("delete to %d: %v", off, err)
		}
	}
	for _, c := range []struct{ to, start int64 }{{5, 5}, {3, 5}, {8, 8}} {
		if start, err := l.DeleteTo(c.to); err != nil || start != c.start {
			t.Fatal(start, err)
		}
	}
	if _, err := l.Read(7, 100, BoundHigh, true); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatal(err)
	}
	cfg.Compact, cfg.Delete = true, false
	l.SetConfig(cfg)
	if _, err := l.DeleteTo(8); !errors.Is(err, ErrPolicy) {
		t.Fatal(err)
	}
}

// TestRetention: by size, by time, by start; never above high; a reader keeps
// what it holds.
func TestRetention(t *testing.T) {
	const n = 60
	now := time.Now().UnixMilli()
	fill := func(t *testing.T, cfg LogConfig, ts func(i int) int64) *Log {
		l := newTestLog(t, Relaxed, cfg)
		for i := range n {
			mustAppend(t, l, plainBatch(noProducer, 1, 400, ts(i)), 1)
		}
		l.SetHigh(n)
		return l
	}
	cfg := testConfig()
	cfg.SegmentBytes, cfg.FileDeleteDelay = 5000, time.Minute
	fresh := func(int) int64 { return now }
	t.Run("size", func(t *testing.T) {
		cfg.RetentionBytes = 12000
		l := fill(t, cfg, fresh)
		held, err := l.Read(0, 1<<20, BoundHigh, true)
		if err != nil {
			t.Fatal(err)
		}
		want := readAll(t, l, 0, BoundHigh)
		if err := l.retain(time.Now()); err != nil {
			t.Fatal(err)
		}
		if size := l.Size(); size < 12000 || size > 17000 {
			t.Fatalf("%d bytes kept", size)
		}
		o := l.Offsets()
		if _, err := l.Read(o.Start-1, 100, BoundHigh, true); o.Start == 0 || !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("%+v %v", o, err)
		}
		l.store.emptyTrash(time.Now().Add(time.Hour))
		got, err := held.AppendTo(nil)
		if err != nil || !bytes.Equal(got, want[:len(got)]) {
			t.Fatalf("the reader got %d bytes, %v", len(got), err)
		}
		held.Release()
		entries, _ := l.store.fs.ReadDir(l.dir)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), deletedSuffix) || strings.HasPrefix(e.Name(), "00000000000000000000.") {
				t.Errorf("%s is still there", e.Name())
			}
		}
	})
	cfg.RetentionBytes = -1
	t.Run("time", func(t *testing.T) {
		cfg.RetentionAge = time.Hour
		l := fill(t, cfg, func(i int) int64 { return now - 2*3600e3 + int64(i)*3*60e3 })
		if err := l.retain(time.Now()); err != nil {
			t.Fatal(err)
		}
		if o := l.Offsets(); o.Start < 10 || o.Start > 21 {
			t.Fatalf("%+v", o)
		}
		if err := l.retain(time.Now().Add(5 * time.Hour)); err != nil {
			t.Fatal(err)
		}
		if o := l.Offsets(); o.Start != n || o.End != n || l.Segments() != 1 || l.Size() != 0 {
			t.Fatalf("all is old: %+v, %d segments", o, l.Segments())
		}
		if a := mustAppend(t, l, plainBatch(noProducer, 1, 4, now), 1); a.BaseOffset != n {
			t.Fatal(a)
		}
	})
	cfg.RetentionAge = -1
	t.Run("start and high", func(t *testing.T) {
		l := newTestLog(t, Relaxed, cfg)
		for range n {
			mustAppend(t, l, plainBatch(noProducer, 1, 400, now), 1)
		}
		l.SetHigh(25)
		if _, err := l.DeleteTo(25); err != nil {
			t.Fatal(err)
		}
		cfg.RetentionBytes = 1
		l.SetConfig(cfg)
		if err := l.retain(time.Now()); err != nil {
			t.Fatal(err)
		}
		if o := l.Offsets(); o.Start != 25 || l.list()[0].base > 25 || l.list()[0].base < 15 {
			t.Fatalf("%+v, first segment %d", o, l.list()[0].base)
		}
	})
}

// TestDeleteAndCreateAgain: a new log of the same name starts empty, whatever
// the files said of the old one.
func TestDeleteAndCreateAgain(t *testing.T) {
	cfg := testConfig()
	disk := vfs.NewMem()
	s := openTest(t, disk, "data", Strict, cfg)
	name := strings.Repeat("n", 249)
	l, err := s.Create(TopicID{1}, name, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(0)
	for range 10 {
		mustAppend(t, l, plainBatch(noProducer, 5, 10, 1), 0)
	}
	l.SetHigh(50)
	l.DeleteTo(20)
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []TopicID{{1}, {2}} {
		if _, err := s.Create(id, name, 0, cfg); !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
	}
	if err := s.Delete(TopicID{1}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := tryAppend(t, l, plainBatch(noProducer, 1, 1, 1)); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, ok := s.Get(TopicID{1}, 0); ok {
		t.Fatal("still there")
	}
	if _, err := s.Create(TopicID{2}, name, 0, cfg); err != nil {
		t.Fatal(err)
	}
	copied := disk.CrashCopy(rand.New(rand.NewPCG(1, 1)))
	s2 := openTest(t, copied, "data", Strict, cfg)
	l2, ok := s2.Get(TopicID{2}, 0)
	if !ok || l2.Err() != nil || l2.Offsets() != (Offsets{}) {
		t.Fatalf("%v %v %+v", ok, l2.Err(), l2.Offsets())
	}
	s2.emptyTrash(time.Now().Add(time.Second))
	if err := s2.Stray(TopicID{2}, 0); err != nil {
		t.Fatal(err)
	}
	stopTest(t, s2, true)
	s2 = openTest(t, copied, "data", Strict, cfg)
	if n := len(s2.Logs()); n != 0 {
		t.Fatalf("%d logs", n)
	}
	entries, _ := copied.ReadDir("data")
	stray, deleted := 0, 0
	for _, e := range entries {
		if len(e.Name()) > 255 {
			t.Errorf("name of %d bytes", len(e.Name()))
		}
		if strings.HasSuffix(e.Name(), "-stray") {
			stray++
		}
		if strings.HasSuffix(e.Name(), "-delete") {
			deleted++
		}
	}
	if stray != 1 || deleted != 0 {
		t.Fatalf("%d strays, %d deleted", stray, deleted)
	}
	stopTest(t, s2, true)
	stopTest(t, s, true)
}

func TestSecondOpenIsRefused(t *testing.T) {
	for _, fsys := range []vfs.FS{vfs.NewMem(), vfs.OS{}} {
		dir := t.TempDir()
		s := openTest(t, fsys, dir, Strict, testConfig())
		if _, err := Open(Options{FS: fsys, Dir: dir}); !errors.Is(err, ErrDirInUse) {
			t.Fatal(err)
		}
		m := MetaProperties{ClusterID: "c", NodeID: 3, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA"}
		if err := s.WriteMeta(m); err != nil {
			t.Fatal(err)
		}
		stopTest(t, s, true)
		s = openTest(t, fsys, dir, Strict, testConfig())
		if got, ok := s.Meta(); !ok || got != m {
			t.Fatal(got, ok)
		}
		stopTest(t, s, true)
	}
}

// TestCorruptionBelowTheRecoveryPointIsNotCut: it fails that log, says where,
// and leaves the bytes and the other logs alone.
func TestCorruptionBelowTheRecoveryPointIsNotCut(t *testing.T) {
	cfg := testConfig()
	disk := vfs.NewMem()
	s := openTest(t, disk, "data", Strict, cfg)
	for i := range 2 {
		l, err := s.Create(TopicID{byte(i)}, "t", int32(i), cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(0)
		for range 10 {
			mustAppend(t, l, plainBatch(noProducer, 1, 100, 1), 0)
		}
	}
	if err := s.checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	l, _ := s.Get(TopicID{0}, 0)
	for range 10 { // above the recovery point
		mustAppend(t, l, plainBatch(noProducer, 1, 100, 1), 0)
	}
	stopTest(t, s, false)
	path := segmentFile(l.dir, 0, logSuffix)
	size := l.Size()
	flip := func(at int64) {
		f, err := disk.OpenReadWrite(path, false)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		f.ReadAt(b[:], at)
		b[0] ^= 0x10
		f.WriteAt(b[:], at)
	}
	reopen := func() (*Store, *Log) {
		s := openTest(t, disk, "data", Strict, cfg)
		l, _ := s.Get(TopicID{0}, 0)
		if other, _ := s.Get(TopicID{1}, 1); other.Err() != nil || other.Offsets().End != 10 {
			t.Fatalf("the other log: %v", other.Err())
		}
		return s, l
	}
	flip(size/4 + 70)
	s, l = reopen()
	if err := l.Err(); !errors.Is(err, ErrStorage) || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("corruption below the recovery point: %v", err)
	}
	if _, err := l.Read(0, 100, BoundEnd, true); !errors.Is(err, ErrStorage) {
		t.Fatal(err)
	}
	stopTest(t, s, false)
	if info, _ := disk.Stat(path); info.Size() != size {
		t.Fatalf("%d bytes left of %d", info.Size(), size)
	}
	flip(size/4 + 70) // whole again
	flip(size - 5)
	s, l = reopen()
	if o := l.Offsets(); l.Err() != nil || o.End != 19 {
		t.Fatalf("a bad tail above the recovery point: %+v %v", o, l.Err())
	}
	stopTest(t, s, true)
}
