package segstore

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// smallSegments is a log of several segments with aborted transactions and more than one term, of which no checkpoint was
// written.
func smallSegments(t *testing.T, disk vfs.FS) (*Store, *Log, LogConfig) {
	t.Helper()
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 2<<10, 200
	s := openTest(t, disk, "data", Strict, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for term := range int32(3) {
		if _, err := l.BeginTerm(term + 1); err != nil {
			t.Fatal(err)
		}
		for i := range int32(8) {
			mustAppend(t, l, plainBatch(BatchHeader{ProducerID: 7, BaseSequence: 2 * (term*8 + i)}, 2, 150, 1), term+1)
			mustAppend(t, l, txnBatch(9, term*8+i, 1), term+1)
			if _, err := l.AppendMarker(9, 0, false, 1, term+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	l.SetHigh(l.Offsets().End)
	return s, l, cfg
}

// TestTruncationKeepsTermsAndIndexes: a truncation reads the log anew from its last segment on. What it takes over unread
// was never in a checkpoint: it must be right at once, and after the next checkpoint and a power cut.
func TestTruncationKeepsTermsAndIndexes(t *testing.T) {
	for seed := range uint64(30) {
		disk := vfs.NewMem()
		s, l, cfg := smallSegments(t, disk)
		if l.Segments() < 4 {
			t.Fatalf("%d segments", l.Segments())
		}
		to := l.Offsets().End - 3
		terms := slices.Clone(l.terms)
		aborted, err := l.Aborted(0, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.TruncateTo(to); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(l.terms, terms) {
			t.Fatalf("terms %v, were %v", l.terms, terms)
		}
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := disk.CrashCopy(rand.New(rand.NewPCG(seed, 1)))
		stopTest(t, s, false)
		s = openTest(t, after, "data", Strict, cfg)
		l, _ = s.Get(TopicID{1}, 0)
		got, err := l.Aborted(0, to)
		if err != nil || !slices.Equal(got, aborted) || !slices.Equal(l.terms, terms) {
			t.Fatalf("seed %d: after a power cut: aborted %v %v, were %v; terms %v, were %v", seed, got, err, aborted, l.terms, terms)
		}
		stopTest(t, s, false)
	}
}

// TestRestartForgetsProducers: no snapshot of before an empty beginning gives producers back, also not one that a clean
// stop left at the end of the log.
func TestRestartForgetsProducers(t *testing.T) {
	disk := vfs.NewMem()
	s, _, cfg := smallSegments(t, disk)
	stopTest(t, s, true)
	s = openTest(t, disk, "data", Strict, cfg)
	l, _ := s.Get(TopicID{1}, 0)
	if len(l.Producers()) == 0 {
		t.Fatal("there were no producers")
	}
	if err := l.RestartAt(l.Offsets().End + 10); err != nil {
		t.Fatal(err)
	}
	for _, clean := range []bool{false, true} {
		if p := l.Producers(); len(p) != 0 {
			t.Fatalf("producers %+v after the restart", p)
		}
		stopTest(t, s, clean)
		s = openTest(t, disk, "data", Strict, cfg)
		l, _ = s.Get(TopicID{1}, 0)
	}
	stopTest(t, s, false)
}

// TestRetentionLeavesNoHole: whenever the power fails while retention deletes, and whatever changes of names survive,
// what is left of the log is without a hole.
func TestRetentionLeavesNoHole(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		disk := vfs.NewMem()
		var cuts []*vfs.Mem
		cutting := false
		s, l, cfg := smallSegments(t, &syncPoints{disk, func() {
			if cutting {
				cuts = append(cuts, disk.CrashCopy(rng))
			}
		}})
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := l.DeleteTo(l.Offsets().End - 3)
		cutting = true
		if err = errors.Join(err, l.retain(time.Now())); err != nil {
			t.Fatal(err)
		}
		cutting = false
		stopTest(t, s, false)
		for i, c := range cuts {
			s := openTest(t, c, "data", Strict, cfg)
			l, _ := s.Get(TopicID{1}, 0)
			segs := l.list()
			for j := 1; j < len(segs); j++ {
				if lastEnd(t, l, segs[j-1]) != segs[j].base {
					t.Fatalf("seed %d, cut %d: a hole between the segments at %d and %d", seed, i, segs[j-1].base, segs[j].base)
				}
			}
			stopTest(t, s, false)
		}
	}
}

// lastEnd is where a segment's last batch ends.
func lastEnd(t *testing.T, l *Log, s *segment) (end int64) {
	t.Helper()
	data, err := l.store.fs.ReadFile(s.file.path)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		h := decodeHeader(data)
		end, data = h.LastOffset()+1, data[h.Size():]
	}
	return end
}
