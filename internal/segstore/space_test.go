package segstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// logLines collects what a store says.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), part)
}

// openSpace opens a store that keeps a reserve, with one log.
func openSpace(t *testing.T, fsys vfs.FS, cfg LogConfig) (*Store, *Log, *logLines) {
	t.Helper()
	lines := &logLines{}
	s, err := Open(Options{FS: fsys, Dir: "data", Durability: Strict, Log: slog.New(slog.NewTextHandler(lines, nil)),
		Space: SpaceOptions{WarnPercent: 50, StopPercent: 95}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(false, 0) })
	if err := s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
		t.Fatal(err)
	}
	l, ok := s.Get(TopicID{1}, 0)
	if !ok {
		if l, err = s.Create(TopicID{1}, "t", 0, cfg); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.BeginTerm(l.LastTerm() + 1); err != nil {
		t.Fatal(err)
	}
	return s, l, lines
}

func TestReserveOf(t *testing.T) {
	for _, c := range []struct{ total, want int64 }{
		{10 << 20, 1 << 20},                // a tenth of a small disk
		{1 << 30, 64 << 20},                // the floor
		{100 << 30, 5 * (100 << 30 / 100)}, // five percent
	} {
		if got := reserveOf(c.total, 95); got != c.want {
			t.Errorf("reserve of %d is %d, want %d", c.total, got, c.want)
		}
	}
	if reserveOf(1<<30, 100) != 0 || reserveOf(1<<30, 0) != 0 {
		t.Error("a reserve where none is asked for")
	}
}

// TestReserve: appends stop before the reserve, at any rate and between two
// looks; markers, duplicates, reads and checkpoints go on; retention heals it;
// each level that is crossed gives one line.
func TestReserve(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.FileDeleteDelay = 1<<20, 0
	disk := vfs.NewMem()
	const capacity, reserve = 10 << 20, 1 << 20
	disk.SetCapacity(capacity)
	s, l, lines := openSpace(t, disk, cfg)
	txn := BatchHeader{ProducerID: 7, Attributes: attrTransactional}
	first := plainBatch(txn, 1, 1000, 1)
	again := bytes.Clone(first)
	mustAppend(t, l, first, l.LastTerm())
	var end int64
	for range 200 {
		b, _ := ParseBatch(plainBatch(noProducer, 1, 100_000, 1))
		a, err := l.AppendLeader(b, l.LastTerm())
		if errors.Is(err, ErrFull) && !errors.Is(err, ErrStorage) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		end = a.LastOffset + 1
	}
	// Indexes and snapshots are not counted between looks: they are small.
	if free := capacity - disk.Used(); free < reserve-50_000 || free > reserve+200_000 {
		t.Fatalf("appends stopped with %d bytes free, the reserve is %d", free, reserve)
	}
	s.space.look()
	for range 3 {
		b, _ := ParseBatch(plainBatch(noProducer, 1, 10, 1))
		if _, err := l.AppendLeader(b, l.LastTerm()); !errors.Is(err, ErrFull) {
			t.Fatalf("a small append: %v", err)
		}
	}
	if got := l.Offsets().End; got != end {
		t.Fatalf("end is %d, want %d", got, end)
	}
	if sp := s.Space(); !sp.Full || sp.Refused < 4 || sp.Reserve != reserve || sp.Total != capacity {
		t.Fatalf("%+v", sp)
	}
	if a := mustAppend(t, l, again, l.LastTerm()); !a.Duplicate || a.BaseOffset != 0 {
		t.Fatalf("a duplicate is answered %+v", a)
	}
	if ended, err := l.EndTransaction(Ending{ProducerID: 7, MarkerEpoch: 0, FirstOffset: 0, Commit: true}, l.LastTerm()); err != nil || !ended {
		t.Fatalf("the marker: %v %v", ended, err)
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, l, 0, BoundEnd); len(got) < 8<<20 {
		t.Fatalf("%d bytes are readable", len(got))
	}

	l.SetHigh(l.Offsets().End)
	free := func(segments int64) {
		t.Helper()
		if _, err := l.DeleteTo(l.list()[segments].base); err != nil {
			t.Fatal(err)
		}
		if err := l.retain(s.now()); err != nil {
			t.Fatal(err)
		}
		s.emptyTrash(s.now().Add(time.Second))
		s.space.look()
	}
	// A little above the reserve is not enough: appends would stop and go.
	disk.SetCapacity(disk.Used() + reserve + reserve/10)
	s.space.look()
	if !s.Space().Full {
		t.Fatal("healed at the very edge")
	}
	disk.SetCapacity(capacity)
	free(5)
	if a := mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), l.LastTerm()); a.BaseOffset != end+1 {
		t.Fatalf("the first offset afterwards is %d, want %d behind the marker", a.BaseOffset, end+1)
	}
	for line, want := range map[string]int{"disk is full": 1, "disk has space again": 1, "disk is filling up": 1, "below the warning": 1} {
		if n := lines.count(line); n != want {
			t.Errorf("%q is in the log %d times, want %d", line, n, want)
		}
	}
}

// TestAppendsBetweenLooksCount: what is appended between two looks counts.
func TestAppendsBetweenLooksCount(t *testing.T) {
	disk := vfs.NewMem()
	s, l, _ := openSpace(t, disk, testConfig())
	s.stop() // no look but ours
	s.running.Wait()
	disk.SetCapacity(disk.Used() + 3<<20)
	s.space.look()
	room := s.space.left.Load()
	var written int64
	for {
		raw := plainBatch(noProducer, 1, 50_000, 1)
		b, _ := ParseBatch(raw)
		if _, err := l.AppendLeader(b, l.LastTerm()); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		written += int64(len(raw))
	}
	if written > room || written < room-60_000 {
		t.Fatalf("%d bytes were written, there was room for %d", written, room)
	}
}

// TestStartInsideTheReserve: a start on a disk that is full needs no append.
func TestStartInsideTheReserve(t *testing.T) {
	disk := vfs.NewMem()
	disk.SetCapacity(10 << 20)
	s, l, _ := openSpace(t, disk, testConfig())
	mustAppend(t, l, plainBatch(noProducer, 5, 1000, 1), l.LastTerm())
	want := readAll(t, l, 0, BoundEnd)
	if err := disk.WriteFile("somebody's", make([]byte, 10<<20-disk.Used()-500_000), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(false, 0); err != nil {
		t.Fatal(err)
	}
	s, l, lines := openSpace(t, disk, testConfig())
	if lines.count("disk is full") != 1 || !s.Space().Full {
		t.Fatal("the start does not say that the disk is full")
	}
	if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
		t.Fatal("what was there is not")
	}
	b, _ := ParseBatch(plainBatch(noProducer, 1, 10, 1))
	if _, err := l.AppendLeader(b, l.LastTerm()); !errors.Is(err, ErrFull) {
		t.Fatalf("append: %v", err)
	}
	if err := s.Close(true, 1); err != nil {
		t.Fatalf("a clean stop: %v", err)
	}
}

// TestCompactionKeepsOutOfTheReserve, but for half of it.
func TestCompactionKeepsOutOfTheReserve(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes = 1 << 20
	disk := vfs.NewMem()
	disk.SetCapacity(10 << 20)
	s, l, _ := openSpace(t, disk, cfg)
	for range 11 {
		mustAppend(t, l, plainBatch(noProducer, 1, 200_000, 1), l.LastTerm())
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	segs := l.list()[:1]
	disk.SetCapacity(disk.Used() + 1<<20) // the segment needs all but a little of it
	s.space.look()
	if _, err := l.replace(segs, nil); !errors.Is(err, ErrFull) {
		t.Fatalf("rewriting %d bytes with 1 MiB free: %v", segs[0].size, err)
	}
	disk.SetCapacity(disk.Used() + 2<<20)
	s.space.look()
	w, err := l.replace(segs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.discard(); err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryVanishes: what would be written to files without a name is
// refused, with one line.
func TestDirectoryVanishes(t *testing.T) {
	disk := vfs.NewMem()
	s, l, lines := openSpace(t, disk, testConfig())
	mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), l.LastTerm())
	if err := disk.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	s.space.look()
	s.space.look()
	b, _ := ParseBatch(plainBatch(noProducer, 1, 10, 1))
	if _, err := l.AppendLeader(b, l.LastTerm()); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "vanished") {
		t.Fatalf("append: %v", err)
	}
	if n := lines.count("every log is failed"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// faultCounts counts what an observer is told.
type faultCounts struct {
	recordedCleans
	mu    sync.Mutex
	kinds map[FaultKind]int
}

func (f *faultCounts) DiskFault(k FaultKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds[k]++
}

// TestFaultsAreSaidOnce: each kind of error gives the right error, one line
// however often it is met, and a count; only those that pass leave the log.
func TestFaultsAreSaidOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     vfs.Op
		err    syscall.Errno
		kind   FaultKind
		passes bool
		want   error
	}{
		{"no space", vfs.OpWrite, syscall.ENOSPC, FaultFull, true, ErrFull},
		{"no quota", vfs.OpWrite, syscall.EDQUOT, FaultFull, true, ErrFull},
		{"read-only", vfs.OpWrite, syscall.EROFS, FaultReadOnly, false, ErrStorage},
		{"write error", vfs.OpWrite, syscall.EIO, FaultIO, false, ErrStorage},
		{"read error", vfs.OpRead, syscall.EIO, FaultIO, true, ErrStorage},
		{"no descriptors", vfs.OpOpen, syscall.EMFILE, FaultHandles, true, ErrStorage},
		{"no descriptors in the system", vfs.OpOpen, syscall.ENFILE, FaultHandles, true, ErrStorage},
	} {
		t.Run(c.name, func(t *testing.T) {
			faulty := vfs.NewFaulty(vfs.NewMem())
			lines, counts := &logLines{}, &faultCounts{kinds: map[FaultKind]int{}}
			s, err := Open(Options{FS: faulty, Dir: "data", Durability: Strict, Log: slog.New(slog.NewTextHandler(lines, nil)), Observer: counts})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(false, 0)
			if err := s.Recover(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			l, err := s.Create(TopicID{1}, "t", 0, testConfig())
			if err != nil {
				t.Fatal(err)
			}
			l.BeginTerm(1)
			mustAppend(t, l, plainBatch(noProducer, 1, 100, 1), 1)
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			call := func() error {
				b, _ := ParseBatch(plainBatch(noProducer, 1, 100, 1))
				_, err := l.AppendLeader(b, 1)
				return err
			}
			switch c.op {
			case vfs.OpOpen:
				l.rest()
				l.rest() // gives the writer's handle back; then it is closed
				s.handles.mu.Lock()
				s.handles.closeOldestLocked()
				s.handles.mu.Unlock()
			case vfs.OpRead:
				call = func() error {
					r, err := l.Read(0, 1000, BoundEnd, true)
					if err == nil {
						r.Release()
					}
					return err
				}
			}
			faulty.Fail(c.op, 1, c.err, true)
			for range 3 {
				if err := call(); !errors.Is(err, c.want) {
					t.Fatalf("%v, want %v", err, c.want)
				}
			}
			faulty.Heal()
			if err := call(); (err == nil) != c.passes {
				t.Errorf("after it healed: %v", err)
			}
			want := 3
			if !c.passes {
				want = 1 // later calls do not reach the disk
			}
			counts.mu.Lock()
			defer counts.mu.Unlock()
			if counts.kinds[c.kind] != want || len(counts.kinds) != 1 {
				t.Errorf("counted %v, want %d of %s", counts.kinds, want, c.kind)
			}
			if n := lines.count("disk error"); n != 1 {
				t.Errorf("%d lines in the log: %s", n, lines.buf.String())
			}
		})
	}
}
