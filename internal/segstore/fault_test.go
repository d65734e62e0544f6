package segstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// faultStory is a short life of a store: create, append over several
// segments, wait for durability, checkpoint, delete records, retention, close.
// It goes on after errors, as a broker would, and gives what was acknowledged.
type faultStory struct {
	written []byte
	acked   int
	start   int64
}

func (f *faultStory) run(fsys vfs.FS, cfg LogConfig) error {
	s, err := Open(Options{FS: fsys, Dir: "data"})
	if err != nil {
		return err
	}
	defer s.Close(true, 1)
	if err := s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
		return err
	}
	var errs error
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		return err
	}
	if _, err := l.BeginTerm(1); err != nil {
		return err
	}
	for i := range 12 {
		raw := plainBatch(noProducer, 1, 900, time.Now().UnixMilli())
		b, _ := ParseBatch(raw)
		a, err := l.AppendLeader(b, 1)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		f.written = append(f.written, raw...)
		done := make(chan struct{})
		l.Watch(BoundDurable, a.LastOffset+1, func() { close(done) })
		<-done
		if l.Offsets().Durable > a.LastOffset {
			f.acked = len(f.written)
		}
		l.SetHigh(l.Offsets().Durable)
		switch i {
		case 5:
			errs = errors.Join(errs, s.checkpoint(context.Background()))
		case 9:
			start, err := l.DeleteTo(min(4, l.Offsets().High))
			errs = errors.Join(errs, err)
			if err == nil {
				f.start = start
			}
			errs = errors.Join(errs, l.retain(s.now()))
			s.emptyTrash(s.now().Add(time.Hour))
		}
	}
	return errs
}

// check reopens the disk and compares.
func (f *faultStory) check(disk *vfs.Mem, cfg LogConfig) error {
	s, err := Open(Options{FS: disk, Dir: "data"})
	if err != nil {
		return err
	}
	defer s.Close(true, 2)
	if err := s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
		return err
	}
	l, ok := s.Get(TopicID{1}, 0)
	if !ok {
		if f.acked > 0 {
			return errors.New("the log is gone")
		}
		return nil
	}
	if err := l.Err(); err != nil {
		return err
	}
	o := l.Offsets()
	if o.Start > max(f.start, 4) {
		return fmt.Errorf("offsets %+v, start was %d", o, f.start)
	}
	r, err := l.Read(o.Start, 1<<30, BoundEnd, true)
	if err != nil {
		return err
	}
	defer r.Release()
	got, _ := r.AppendTo(nil)
	one := len(plainBatch(noProducer, 1, 900, 0))
	from := int(o.Start) * one
	if from > len(f.written) || !bytes.HasPrefix(got, f.written[from:max(from, f.acked)]) {
		return fmt.Errorf("offsets %+v: %d bytes from %d are not what was acknowledged (%d)", o, len(got), from, f.acked)
	}
	if _, err := l.BeginTerm(l.LastTerm() + 1); err != nil {
		return err
	}
	b, _ := ParseBatch(plainBatch(noProducer, 1, 10, 0))
	_, err = l.AppendLeader(b, l.LastTerm())
	return err
}

// TestEveryFault fails the n-th call of each kind for n = 1, 2, … until none
// fails any more; what was acknowledged must be there afterwards.
func TestEveryFault(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.FileDeleteDelay = 2500, 0
	kinds := map[string]vfs.Op{"open": vfs.OpOpen, "create": vfs.OpCreate, "read": vfs.OpRead, "write": vfs.OpWrite,
		"truncate": vfs.OpTruncate, "sync": vfs.OpSync, "syncdir": vfs.OpSyncDir, "rename": vfs.OpRename,
		"remove": vfs.OpRemove, "mkdir": vfs.OpMkdir, "readdir": vfs.OpReadDir}
	for name, kind := range kinds {
		for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
			for _, sticky := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/sticky=%v", name, fault, sticky), func(t *testing.T) {
					hits := 0
					for n := 1; ; n++ {
						disk := vfs.NewMem()
						faulty := vfs.NewFaulty(disk)
						faulty.Fail(kind, n, fault, sticky)
						var story faultStory
						err := story.run(faulty, cfg)
						if faulty.Hits() == 0 {
							if err != nil {
								t.Fatalf("without a fault: %v", err)
							}
							break
						}
						hits++
						if err := story.check(disk, cfg); err != nil {
							t.Fatalf("call %d: %v (the story saw: %v)", n, err, err)
						}
						if n > 400 {
							t.Fatal("no end of calls")
						}
					}
					t.Logf("%d faults", hits)
				})
			}
		}
	}
}

// TestFullDiskHeals: a full disk refuses appends, uses no offset, leaves no
// half batch, keeps reads going and heals when space is back.
func TestFullDiskHeals(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes = 64 << 10
	disk := vfs.NewMem()
	s := openTest(t, disk, "data", Strict, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	for range 10 {
		mustAppend(t, l, plainBatch(noProducer, 3, 1000, 1), 1)
	}
	before := l.Offsets().End
	want := readAll(t, l, 0, BoundEnd)
	disk.SetCapacity(disk.Used() + 1500)
	for range 3 {
		b, _ := ParseBatch(plainBatch(noProducer, 3, 1000, 1))
		if _, err := l.AppendLeader(b, 1); !errors.Is(err, ErrFull) || errors.Is(err, ErrStorage) {
			t.Fatalf("append on a full disk: %v", err)
		}
	}
	if o := l.Offsets(); o.End != before || l.Err() != nil {
		t.Fatalf("offsets %+v, err %v", o, l.Err())
	}
	if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
		t.Fatal("a full disk changed what is read")
	}
	disk.SetCapacity(1 << 30)
	a := mustAppend(t, l, plainBatch(noProducer, 3, 1000, 1), 1)
	if a.BaseOffset != before {
		t.Fatalf("first offset after the disk healed is %d, want %d", a.BaseOffset, before)
	}
	if err := s.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, disk, "data", Strict, cfg)
	defer s.Close(true, 2)
	l, _ = s.Get(TopicID{1}, 0)
	if o := l.Offsets(); l.Err() != nil || o.End != before+3 {
		t.Fatalf("after reopen: %+v %v", o, l.Err())
	}
}

// TestFailedFsyncIsFinal: no later fsync can undo that one failed.
func TestFailedFsyncIsFinal(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	s := openTest(t, faulty, "data", Strict, testConfig())
	defer s.Close(false, 0)
	l, err := s.Create(TopicID{1}, "t", 0, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	faulty.Fail(vfs.OpSync, 1, syscall.EIO, false)
	a := mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), 1)
	woken := make(chan struct{})
	l.Watch(BoundDurable, a.LastOffset+1, func() { close(woken) })
	<-woken
	if err := l.Err(); !errors.Is(err, ErrStorage) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("log error after a failed fsync: %v", err)
	}
	if d := l.Offsets().Durable; d != 0 {
		t.Fatalf("durable moved to %d", d)
	}
	b, _ := ParseBatch(plainBatch(noProducer, 1, 10, 1))
	if _, err := l.AppendLeader(b, 1); !errors.Is(err, ErrStorage) {
		t.Fatalf("append after a failed fsync: %v", err)
	}
	if _, err := l.Read(0, 100, BoundEnd, true); !errors.Is(err, ErrStorage) {
		t.Fatalf("read after a failed fsync: %v", err)
	}
	if err := s.FlushAll(); !errors.Is(err, ErrStorage) {
		t.Fatalf("flush after a failed fsync: %v", err)
	}
}

// TestEveryFaultInRecovery: an unclean directory is recovered with the n-th
// call failing, then a power cut, then a good recovery: nothing acknowledged
// is lost by any of it.
func TestEveryFaultInRecovery(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.FileDeleteDelay = 2500, 0
	disk := vfs.NewMem()
	var story faultStory
	s := openTest(t, disk, "data", Strict, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	for i := range 12 {
		raw := plainBatch(BatchHeader{ProducerID: 1, BaseSequence: int32(i)}, 1, 900, 1)
		mustAppend(t, l, raw, 1)
		story.written = append(story.written, raw...)
		if i == 5 {
			if err := s.checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	story.acked = len(story.written)
	mustAppend(t, l, plainBatch(noProducer, 1, 2300, 1), 1) // may be torn
	stopTest(t, s, false)
	for n := 1; n < 500; n++ {
		faulty := vfs.NewFaulty(disk.CrashCopy(rand.New(rand.NewPCG(uint64(n), 4))))
		torn := faulty.FS.(*vfs.Mem)
		s, err := Open(Options{FS: faulty, Dir: "data", Durability: Strict})
		if err != nil {
			t.Fatal(err)
		}
		faulty.Fail(vfs.OpAny, n, syscall.EIO, n%2 == 0)
		err = s.Recover(t.Context(), func(string, TopicID) LogConfig { return cfg }, nil)
		if l, ok := s.Get(TopicID{1}, 0); err == nil && (!ok || faulty.Hits() == 0 && l.Err() != nil) {
			t.Fatalf("call %d: recovered without the log, or it failed without a fault", n)
		}
		hits := faulty.Hits()
		stopTest(t, s, false)
		again := torn.CrashCopy(rand.New(rand.NewPCG(uint64(n), 5)))
		if err := story.check(again, cfg); err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		if hits == 0 {
			t.Logf("%d faults", n-1)
			return
		}
	}
	t.Fatal("no end of calls")
}

// TestStartsOnAFullDisk: after a kill on a full disk all is readable; when
// space is back appends work and a checkpoint makes up for what was not written.
func TestStartsOnAFullDisk(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 8<<10, 500
	disk := vfs.NewMem()
	s := openTest(t, disk, "data", Strict, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(0)
	clients := newClients(1, l)
	for range 100 {
		clients.step(t)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	want := stateOf(t, l)
	stopTest(t, s, false)
	loseFiles(t, disk, l.dir, func(_, n string) bool { return !strings.HasSuffix(n, logSuffix) && n != partitionFile })
	disk.SetCapacity(disk.Used())
	for _, full := range []bool{true, false} {
		s = openTest(t, disk, "data", Strict, cfg)
		l, _ = s.Get(TopicID{1}, 0)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		sameState(t, fmt.Sprintf("disk full: %v", full), stateOf(t, l), want)
		err := s.checkpoint(t.Context())
		b, _ := ParseBatch(plainBatch(noProducer, 1, 900, 1))
		if full {
			l.BeginTerm(l.LastTerm() + 1)
			if _, err := l.AppendLeader(b, l.LastTerm()); !errors.Is(err, ErrFull) {
				t.Fatalf("append: %v", err)
			}
			disk.SetCapacity(1 << 30)
			err = s.checkpoint(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		stopTest(t, s, false)
	}
}
