package segstore

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// newTestLog makes a log in term 1 on a memory disk.
func newTestLog(t *testing.T, d Durability, cfg LogConfig) *Log {
	t.Helper()
	s := openTest(t, vfs.NewMem(), "data", d, cfg)
	t.Cleanup(func() { s.Close(true, 0) })
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginTerm(1); err != nil {
		t.Fatal(err)
	}
	return l
}

func tryAppend(t *testing.T, l *Log, raw []byte) (Appended, error) {
	t.Helper()
	b, err := ParseBatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	return l.AppendLeader(b, l.LastTerm())
}

// TestProducerWindow tells one producer's story: what is new, a duplicate, out
// of order, or of another epoch.
func TestProducerWindow(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	mustAppend(t, l, plainBatch(noProducer, 10, 1, 1), 1) // offsets 0-9
	steps := []struct {
		name      string
		epoch     int16
		seq       int32
		n         int
		base      int64 // of the answer
		duplicate bool
		want      error
	}{
		{"an unknown producer may begin anywhere", 0, 100, 2, 10, false, nil},
		{"next", 0, 102, 1, 12, false, nil},
		{"again", 0, 102, 1, 12, true, nil},
		{"the one before again", 0, 100, 2, 10, true, nil},
		{"part of a stored one", 0, 100, 1, 0, false, ErrOutOfOrder},
		{"across two stored ones", 0, 101, 2, 0, false, ErrOutOfOrder},
		{"gap", 0, 105, 1, 0, false, ErrOutOfOrder},
		{"3", 0, 103, 1, 13, false, nil},
		{"4", 0, 104, 1, 14, false, nil},
		{"5", 0, 105, 1, 15, false, nil},
		{"the fifth last again", 0, 100, 2, 10, true, nil},
		{"6", 0, 106, 1, 16, false, nil},
		{"the sixth last again", 0, 100, 2, 0, false, ErrOutOfOrder},
		{"a new epoch begins at 0", 1, 5, 1, 0, false, ErrOutOfOrder},
		{"a new epoch", 1, 0, 3, 17, false, nil},
		{"the old epoch", 0, 107, 1, 0, false, ErrProducerEpoch},
		{"a batch of the old epoch again", 0, 106, 1, 0, false, ErrProducerEpoch},
		{"the new epoch again", 1, 0, 3, 17, true, nil},
	}
	for _, s := range steps {
		h := BatchHeader{ProducerID: 5, ProducerEpoch: s.epoch, BaseSequence: s.seq}
		end := l.Offsets().End
		a, err := tryAppend(t, l, plainBatch(h, s.n, 1, 1))
		if !errors.Is(err, s.want) || (err == nil) != (s.want == nil) {
			t.Fatalf("%s: %v, want %v", s.name, err, s.want)
		}
		if err == nil && (a.BaseOffset != s.base || a.Duplicate != s.duplicate || a.LastOffset != s.base+int64(s.n)-1 || a.Records != s.n) {
			t.Fatalf("%s: %+v", s.name, a)
		}
		if (err != nil || s.duplicate) && l.Offsets().End != end {
			t.Fatalf("%s: the end moved", s.name)
		}
	}
}

// TestSequenceWraps: after 2^31-1 comes 0, also inside a batch.
func TestSequenceWraps(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	at := func(seq int32, n int) []byte {
		return plainBatch(BatchHeader{ProducerID: 5, BaseSequence: seq}, n, 1, 1)
	}
	mustAppend(t, l, at(math.MaxInt32-2, 2), 1)    // ends at max-1
	mustAppend(t, l, at(math.MaxInt32, 3), 1)      // max, 0, 1
	a := mustAppend(t, l, at(2, 1), 1)             // goes on
	d := mustAppend(t, l, at(math.MaxInt32, 3), 1) // known
	if !d.Duplicate || d.BaseOffset != 2 || a.BaseOffset != 5 {
		t.Fatalf("%+v %+v", a, d)
	}
	if _, err := tryAppend(t, l, at(4, 1)); !errors.Is(err, ErrOutOfOrder) {
		t.Fatal(err)
	}
}

func TestLogAppendTime(t *testing.T) {
	cfg := testConfig()
	cfg.LogAppendTime = true
	l := newTestLog(t, Relaxed, cfg)
	raw := plainBatch(BatchHeader{ProducerID: 1}, 3, 5, 77)
	again := bytes.Clone(raw)
	a, err := tryAppend(t, l, raw)
	if err != nil || a.LogAppendTimeMs < 1e12 {
		t.Fatalf("%+v %v", a, err)
	}
	if d, err := tryAppend(t, l, again); err != nil || !d.Duplicate || d.LogAppendTimeMs != a.LogAppendTimeMs {
		t.Fatalf("duplicate %+v %v", d, err)
	}
	got := readAll(t, l, 0, BoundEnd)
	b, err := ParseBatch(got)
	if err != nil || b.MaxTimestamp != a.LogAppendTimeMs || b.Attributes&attrLogAppendTime == 0 || b.Term != 1 {
		t.Fatalf("stored %+v %v", b.BatchHeader, err)
	}
	pos, found, err := l.OffsetForTime(a.LogAppendTimeMs, BoundEnd)
	if err != nil || !found || pos.Offset != 0 {
		t.Fatalf("the first of records with one time: %+v %v %v", pos, found, err)
	}
}

func txnBatch(id int64, seq int32, n int) []byte {
	return plainBatch(BatchHeader{ProducerID: id, BaseSequence: seq, Attributes: attrTransactional}, n, 1, 1)
}

// TestTransactions: stable stops at the first open transaction until high has
// passed its marker; the aborted list is sorted by first offset.
func TestTransactions(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	stable := func(high, want int64) {
		t.Helper()
		l.SetHigh(high)
		if o := l.Offsets(); o.Stable != want || o.High != high {
			t.Fatalf("offsets %+v, want high %d stable %d", o, high, want)
		}
	}
	mark := func(id int64, commit bool) Appended {
		t.Helper()
		a, err := l.AppendMarker(id, 0, commit, 4, 1)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	mustAppend(t, l, plainBatch(noProducer, 2, 1, 1), 1) // 0-1
	mustAppend(t, l, txnBatch(1, 0, 2), 1)               // 2-3
	mustAppend(t, l, txnBatch(2, 0, 2), 1)               // 4-5
	mustAppend(t, l, plainBatch(noProducer, 4, 1, 1), 1) // 6-9
	stable(10, 2)
	if _, err := tryAppend(t, l, plainBatch(BatchHeader{ProducerID: 1, BaseSequence: 2}, 1, 1, 1)); !errors.Is(err, ErrTxnState) {
		t.Fatalf("plain batch in an open transaction: %v", err)
	}
	if a := mark(2, false); a.BaseOffset != 10 || a.LastOffset != 10 {
		t.Fatalf("marker %+v", a)
	}
	stable(11, 2)
	mark(1, false) // 11
	stable(11, 2)  // not before high has passed the marker
	stable(12, 12)
	if _, err := l.AppendMarker(1, 0, true, 3, 1); !errors.Is(err, ErrTermStale) {
		t.Fatalf("marker of an older coordinator: %v", err)
	}
	if _, err := l.AppendMarker(1, -1, true, 4, 1); !errors.Is(err, ErrProducerEpoch) {
		t.Fatalf("marker of an older epoch: %v", err)
	}
	mark(1, false) // 12: a second one is harmless
	for _, c := range []struct {
		from, to int64
		want     []AbortedTxn
	}{
		{0, 100, []AbortedTxn{{1, 2}, {2, 4}}}, {0, 2, []AbortedTxn{}}, {0, 3, []AbortedTxn{{1, 2}}},
		{11, 100, []AbortedTxn{{1, 2}}}, {12, 100, []AbortedTxn{}},
	} {
		got, err := l.Aborted(c.from, c.to)
		if err != nil || !slices.Equal(got, c.want) || got == nil {
			t.Errorf("aborted [%d,%d): %v %v, want %v", c.from, c.to, got, err, c.want)
		}
	}
	// a marker of a new epoch lets the next epoch begin at 0 (KIP-890)
	mustAppend(t, l, txnBatch(3, 0, 1), 1) // 13
	if _, err := l.AppendMarker(3, 1, true, 4, 1); err != nil {
		t.Fatal(err)
	}
	h := BatchHeader{ProducerID: 3, ProducerEpoch: 1, BaseSequence: 0, Attributes: attrTransactional}
	if a := mustAppend(t, l, plainBatch(h, 1, 1, 1), 1); a.BaseOffset != 15 {
		t.Fatalf("%+v", a)
	}
	stable(16, 15)
}

func TestTerms(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	if n, end := l.EndOfTerm(1); n != 1 || end != 0 {
		t.Fatalf("term of an empty log: %d %d", n, end)
	}
	mustAppend(t, l, plainBatch(noProducer, 5, 1, 1), 1)
	if _, err := l.BeginTerm(1); !errors.Is(err, ErrTermStale) {
		t.Fatal(err)
	}
	if start, err := l.BeginTerm(4); err != nil || start != 5 {
		t.Fatal(start, err)
	}
	b, _ := ParseBatch(plainBatch(noProducer, 1, 1, 1))
	for _, term := range []int32{1, 3, 5} {
		if _, err := l.AppendLeader(b, term); !errors.Is(err, ErrTermStale) {
			t.Fatalf("append in term %d: %v", term, err)
		}
	}
	mustAppend(t, l, plainBatch(noProducer, 5, 1, 1), 4)
	for _, c := range []struct {
		ask, term int32
		end       int64
	}{{-1, -1, -1}, {0, 0, 0}, {1, 1, 5}, {3, 1, 5}, {4, 4, 10}, {9, 4, 10}} {
		if n, end := l.EndOfTerm(c.ask); n != c.term || end != c.end {
			t.Errorf("end of term %d: %d %d, want %d %d", c.ask, n, end, c.term, c.end)
		}
	}
	for off, term := range map[int64]int32{0: 1, 4: 1, 5: 4, 9: 4, 10: 4} {
		if got := l.TermAt(off); got != term {
			t.Errorf("term at %d: %d, want %d", off, got, term)
		}
	}
}

// TestReadBounds: whole batches, at most max bytes, one if asked, up to the
// bound, over segment borders.
func TestReadBounds(t *testing.T) {
	cfg := testConfig()
	one := len(plainBatch(noProducer, 2, 100, 1))
	cfg.SegmentBytes, cfg.IndexIntervalBytes = int64(10*one), int64(2*one)
	l := newTestLog(t, Relaxed, cfg)
	var all []byte
	for range 35 { // offsets 0-69, 4 segments
		raw := plainBatch(noProducer, 2, 100, 1)
		mustAppend(t, l, raw, 1)
		all = append(all, raw...)
	}
	l.SetHigh(48)
	for from := int64(0); from <= 70; from++ {
		for _, max := range []int{0, 1, one, 3*one - 1, 12 * one, 1 << 30} {
			for _, minOne := range []bool{false, true} {
				for _, bound := range []Bound{BoundHigh, BoundEnd} {
					end := int64(70)
					if bound == BoundHigh {
						end = 48
					}
					first, last := int(from/2), int(end/2)
					n := min(max/one, last-first)
					if n == 0 && minOne {
						n = 1
					}
					n = min(n, last-first)
					if n < 0 {
						n = 0
					}
					want := all[first*one : (first+n)*one]
					r, err := l.Read(from, max, bound, minOne)
					if err != nil {
						t.Fatal(err)
					}
					got, err := r.AppendTo(nil)
					var buf bytes.Buffer
					wrote, werr := r.WriteTo(&buf)
					if err != nil || werr != nil || r.Len() != len(got) || int(wrote) != len(got) || !bytes.Equal(buf.Bytes(), got) {
						t.Fatalf("read %d: %v %v", from, err, werr)
					}
					r.Release()
					if !bytes.Equal(got, want) {
						t.Fatalf("read from %d max %d bound %v minOne %v: %d bytes, want %d", from, max, bound, minOne, len(got), len(want))
					}
				}
			}
		}
	}
	for _, from := range []int64{-1, 71} {
		if _, err := l.Read(from, 100, BoundEnd, true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("read at %d: %v", from, err)
		}
	}
}

// TestWatch: waiters are woken once, in any order of offsets, by progress,
// by failure, by deletion; a cancelled one never.
func TestWatch(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	var mu sync.Mutex
	woken := map[string]int{}
	wake := func(name string) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			woken[name]++
		}
	}
	l.Watch(BoundEnd, 0, wake("at once"))
	l.Watch(BoundEnd, 2, wake("end 2"))
	l.Watch(BoundEnd, 1, wake("end 1"))
	cancel := l.Watch(BoundEnd, 1, wake("cancelled"))
	l.Watch(BoundHigh, 1, wake("high 1"))
	l.Watch(BoundStable, 2, wake("stable 2"))
	l.Watch(BoundHigh, 1000, wake("deleted"))
	cancel()
	cancel()
	expect := func(want map[string]int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(woken) != len(want) {
			t.Fatalf("woken %v, want %v", woken, want)
		}
		for k, n := range want {
			if woken[k] != n {
				t.Fatalf("woken %v, want %v", woken, want)
			}
		}
	}
	expect(map[string]int{"at once": 1})
	mustAppend(t, l, plainBatch(noProducer, 1, 1, 1), 1)
	expect(map[string]int{"at once": 1, "end 1": 1})
	l.SetHigh(1)
	expect(map[string]int{"at once": 1, "end 1": 1, "high 1": 1})
	mustAppend(t, l, txnBatch(1, 0, 1), 1)
	l.SetHigh(2)
	expect(map[string]int{"at once": 1, "end 1": 1, "high 1": 1, "end 2": 1})
	l.AppendMarker(1, 0, true, 0, 1)
	l.SetHigh(3)
	expect(map[string]int{"at once": 1, "end 1": 1, "high 1": 1, "end 2": 1, "stable 2": 1})
	if err := l.store.Delete(l.ID(), 0); err != nil {
		t.Fatal(err)
	}
	expect(map[string]int{"at once": 1, "end 1": 1, "high 1": 1, "end 2": 1, "stable 2": 1, "deleted": 1})
	l.Watch(BoundEnd, 1000, wake("after"))
	expect(map[string]int{"at once": 1, "end 1": 1, "high 1": 1, "end 2": 1, "stable 2": 1, "deleted": 1, "after": 1})
}

// TestFlushSettings: relaxed flushes by flush.messages, by flush.ms and on demand.
func TestFlushSettings(t *testing.T) {
	durable := func(l *Log, offset int64) {
		t.Helper()
		done := make(chan struct{})
		l.Watch(BoundDurable, offset, func() { close(done) })
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Fatalf("offsets %+v, durable should reach %d", l.Offsets(), offset)
		}
	}
	cfg := testConfig()
	cfg.FlushMessages = 3
	l := newTestLog(t, Relaxed, cfg)
	mustAppend(t, l, plainBatch(noProducer, 2, 1, 1), 1)
	if d := l.Offsets().Durable; d != 0 {
		t.Fatalf("relaxed append was flushed to %d", d)
	}
	mustAppend(t, l, plainBatch(noProducer, 1, 1, 1), 1)
	durable(l, 3)
	cfg = testConfig()
	cfg.FlushAge = 20 * time.Millisecond
	l = newTestLog(t, Relaxed, cfg)
	for end := int64(1); end <= 3; end++ {
		mustAppend(t, l, plainBatch(noProducer, 1, 1, 1), 1)
		durable(l, end)
	}
	l = newTestLog(t, Relaxed, testConfig())
	mustAppend(t, l, plainBatch(noProducer, 1, 1, 1), 1)
	l.FlushTo(1)
	durable(l, 1)
}

// TestWakeRunsWithoutLocks: who is woken may call anything.
func TestWakeRunsWithoutLocks(t *testing.T) {
	l := newTestLog(t, Strict, testConfig())
	done := make(chan error, 2)
	l.Watch(BoundEnd, 1, func() {
		_, err := tryAppend(t, l, plainBatch(noProducer, 1, 1, 1))
		done <- err
	})
	l.Watch(BoundDurable, 2, func() {
		done <- errors.Join(l.store.FlushAll(), l.TruncateTo(1), l.retain(time.Now()), l.store.Delete(l.ID(), 0))
	})
	mustAppend(t, l, plainBatch(noProducer, 1, 1, 1), 1)
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a wake function hangs")
		}
	}
}
