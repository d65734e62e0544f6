package segstore

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// waitFor polls for something that a goroutine of the store does.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within ten seconds", what)
		}
	}
}

func hasFile(fsys vfs.FS, path string) bool {
	_, err := fsys.Stat(path)
	return err == nil
}

func (l *Log) hasSpare() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spare != nil
}

// rollConfig has segments of ten batches of 1,000 bytes.
func rollConfig() LogConfig {
	cfg := testConfig()
	cfg.SegmentBytes = 10_500
	return cfg
}

func rollBatch(i int32) []byte {
	raw := plainBatch(BatchHeader{ProducerID: 5, BaseSequence: i}, 1, 900, 1)
	return raw
}

// TestRollUsesTheSpare: the next segment's file is there before it is needed,
// gets its name in the roll, and the sealed one's indexes and the snapshot
// follow without a checkpoint. A clean stop leaves no spare.
func TestRollUsesTheSpare(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	s := openTest(t, faulty, "data", Relaxed, rollConfig())
	l, err := s.Create(TopicID{1}, "t", 0, rollConfig())
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	var want []byte
	n := int32(0)
	add := func() {
		t.Helper()
		raw := rollBatch(n)
		n++
		mustAppend(t, l, raw, 1)
		want = append(want, raw...)
	}
	for l.Segments() == 1 && !l.hasSpare() && n < 9 {
		add()
		if n == 6 {
			waitFor(t, "the spare", l.hasSpare)
		}
	}
	if !hasFile(faulty, "data/t-0/"+spareFile) {
		t.Fatal("no spare file")
	}
	faulty.Fail(vfs.OpCreate, 1, syscall.EIO, true) // a roll that creates a file would fail
	for l.Segments() == 1 {
		add()
	}
	faulty.Heal()
	old := l.list()[0]
	waitFor(t, "the indexes of the sealed segment", old.isSealed)
	for _, suffix := range []string{indexSuffix, timeSuffix} {
		if !hasFile(faulty, old.stem+suffix) {
			t.Errorf("%s is missing", suffix)
		}
	}
	if !hasFile(faulty, l.list()[1].stem+snapshotSuffix) {
		t.Error("the snapshot is missing")
	}
	for n < 37 { // a spare is there again
		add()
	}
	waitFor(t, "the next spare", l.hasSpare)
	if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
		t.Fatal("what is read is not what was written")
	}
	if err := s.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	if hasFile(faulty, "data/t-0/"+spareFile) {
		t.Error("a clean stop left the spare")
	}
	s = openTest(t, faulty, "data", Relaxed, rollConfig())
	defer s.Close(true, 2)
	l, _ = s.Get(TopicID{1}, 0)
	if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
		t.Fatal("what is read after a clean start is not what was written")
	}
}

// TestKilledWithASpare: what a killed process leaves of a roll is found, at each
// moment: a spare without a name, one just named, indexes not yet written.
func TestKilledWithASpare(t *testing.T) {
	for kill := int32(1); kill < 24; kill++ {
		disk := vfs.NewMem()
		s := openTest(t, disk, "data", Relaxed, rollConfig())
		l, err := s.Create(TopicID{1}, "t", 0, rollConfig())
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		var want []byte
		for i := range kill {
			raw := rollBatch(i)
			mustAppend(t, l, raw, 1)
			want = append(want, raw...)
		}
		if kill%10 > 6 {
			waitFor(t, "the spare", l.hasSpare)
		}
		stopTest(t, s, false) // the page cache stays
		s = openTest(t, disk, "data", Relaxed, rollConfig())
		l, _ = s.Get(TopicID{1}, 0)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
			t.Fatalf("killed after %d batches: %d bytes, want %d", kill, len(got), len(want))
		}
		if hasFile(disk, "data/t-0/"+spareFile) {
			t.Fatal("recovery left the spare")
		}
		if ps := l.Producers(); len(ps) != 1 || ps[0].LastSequence != kill-1 {
			t.Fatalf("producers %+v", ps)
		}
		stopTest(t, s, true)
	}
}

// TestRollWithoutASpare: a spare that cannot be made, or is gone, costs nothing
// but time.
func TestRollWithoutASpare(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	s := openTest(t, faulty, "data", Strict, rollConfig())
	defer s.Close(false, 0)
	l, err := s.Create(TopicID{1}, "t", 0, rollConfig())
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	n := int32(0)
	half := func() {
		t.Helper()
		for segs := l.Segments(); ; {
			mustAppend(t, l, rollBatch(n), 1)
			if n++; l.Segments() > segs || n%10 == 7 {
				return
			}
		}
	}
	half()
	waitFor(t, "the spare", l.hasSpare)
	if err := faulty.Remove("data/t-0/" + spareFile); err != nil {
		t.Fatal(err)
	}
	for l.Segments() < 2 {
		mustAppend(t, l, rollBatch(n), 1)
		n++
	}
	// A full disk refuses the roll and keeps the offset for the next one.
	for !l.hasSpare() {
		half()
	}
	end := l.Offsets().End
	for segs := l.Segments(); l.Segments() == segs; n++ {
		faulty.Fail(vfs.OpRename, 1, syscall.ENOSPC, true)
		b, _ := ParseBatch(rollBatch(n))
		_, err := l.AppendLeader(b, 1)
		faulty.Heal()
		if errors.Is(err, ErrFull) {
			if o := l.Offsets(); o.End != end {
				t.Fatalf("offsets %+v after a refused roll, want end %d", o, end)
			}
			mustAppend(t, l, rollBatch(n), 1)
		} else if err != nil {
			t.Fatal(err)
		}
		end = l.Offsets().End
	}
	if o := l.Offsets(); o.End != int64(n) {
		t.Fatalf("offsets %+v, %d batches", o, n)
	}
}

// TestFailedWriteBackIsFinal: the kernel may have dropped what it could not write.
func TestFailedWriteBackIsFinal(t *testing.T) {
	broken := &noWriteBack{FS: vfs.NewMem()}
	s := openTest(t, broken, "data", Relaxed, rollConfig())
	defer s.Close(false, 0)
	l, err := s.Create(TopicID{1}, "t", 0, rollConfig())
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	for i := range int32(7) {
		b, _ := ParseBatch(rollBatch(i))
		if _, err := l.AppendLeader(b, 1); err != nil {
			break
		}
	}
	waitFor(t, "the log to fail", func() bool { return errors.Is(l.Err(), syscall.EIO) })
}

type noWriteBack struct{ vfs.FS }

func (n *noWriteBack) OpenReadWrite(path string, create bool) (vfs.File, error) {
	f, err := n.FS.OpenReadWrite(path, create)
	if err == nil && strings.HasSuffix(path, logSuffix) {
		f = badWriteBack{f}
	}
	return f, err
}

type badWriteBack struct{ vfs.File }

func (badWriteBack) WriteBack(_, _ int64) error { return syscall.EIO }

// TestFailedRollLeavesNoSegment: after a roll that failed half way a smaller
// batch may still fit into the old segment. A file with the name of the segment
// that was not begun would end the log there at the next start.
func TestFailedRollLeavesNoSegment(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpCreate, vfs.OpTruncate, vfs.OpRename, vfs.OpOpen, vfs.OpWrite} {
		faulty := vfs.NewFaulty(vfs.NewMem())
		cfg := rollConfig()
		s := openTest(t, faulty, "data", Strict, cfg)
		l, err := s.Create(TopicID{1}, "t", 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		big := plainBatch(noProducer, 1, 6000, 1)
		want := bytes.Clone(big)
		mustAppend(t, l, big, 1)
		waitFor(t, "the spare", l.hasSpare)
		s.stop() // no tender and no flush beside us
		s.running.Wait()
		l.mu.Lock()
		l.dropSpareLocked()
		l.mu.Unlock()
		copy(want, big) // with its place
		faulty.Fail(op, 1, syscall.ENOSPC, true)
		b, _ := ParseBatch(plainBatch(noProducer, 1, 6000, 1))
		_, err = l.AppendLeader(b, 1)
		if op != vfs.OpOpen && !errors.Is(err, ErrFull) {
			t.Fatalf("kind %v: a roll that fails: %v", op, err)
		}
		faulty.Heal()
		if err == nil {
			want = append(want, b.Raw...)
		}
		small := plainBatch(noProducer, 1, 100, 1)
		mustAppend(t, l, small, 1)
		want = append(want, small...)
		if err := l.flush(); err != nil {
			t.Fatal(err)
		}
		s.lock.Close()
		s = openTest(t, faulty, "data", Strict, cfg)
		l, _ = s.Get(TopicID{1}, 0)
		if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
			t.Errorf("kind %v: %d bytes after a start, want %d", op, len(got), len(want))
		}
		stopTest(t, s, true)
	}
}
