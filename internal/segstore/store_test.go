package segstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

func testConfig() LogConfig {
	return LogConfig{SegmentBytes: 1 << 30, SegmentAge: 7 * 24 * time.Hour, IndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		RetentionBytes: -1, RetentionAge: -1, Delete: true, MaxBatchBytes: 1 << 20, FlushMessages: math.MaxInt64,
		FlushAge: math.MaxInt64, TimestampBeforeMax: math.MaxInt64, TimestampAfterMax: time.Hour, Compression: "producer"}
}

// plainBatch makes an uncompressed batch of n records with the given header
// fields; values are of size bytes.
func plainBatch(h BatchHeader, n, size int, ts int64) []byte {
	raw := make([]byte, batchOverhead)
	for i := range n {
		var rec []byte
		rec = append(rec, 0)
		rec = binary.AppendVarint(rec, 0)
		rec = binary.AppendVarint(rec, int64(i))
		rec = binary.AppendVarint(rec, 1)
		rec = append(rec, 'k')
		rec = binary.AppendVarint(rec, int64(size))
		rec = append(rec, bytes.Repeat([]byte{byte('a' + i%26)}, size)...)
		rec = binary.AppendVarint(rec, 0)
		raw = binary.AppendVarint(raw, int64(len(rec)))
		raw = append(raw, rec...)
	}
	be := binary.BigEndian
	be.PutUint32(raw[atLength:], uint32(len(raw)-lengthOverhead))
	be.PutUint32(raw[atTerm:], 0xffffffff)
	raw[atMagic] = 2
	be.PutUint16(raw[atAttributes:], uint16(h.Attributes))
	be.PutUint32(raw[atLastOffsetDelta:], uint32(n-1))
	be.PutUint64(raw[atBaseTimestamp:], uint64(ts))
	be.PutUint64(raw[atMaxTimestamp:], uint64(ts))
	be.PutUint64(raw[atProducerID:], uint64(h.ProducerID))
	be.PutUint16(raw[atProducerEpoch:], uint16(h.ProducerEpoch))
	be.PutUint32(raw[atBaseSequence:], uint32(h.BaseSequence))
	be.PutUint32(raw[atRecords:], uint32(n))
	be.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
	return raw
}

var noProducer = BatchHeader{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}

// testFiles is a limit of open files that tests with many logs reach.
const testFiles = 1024

func openTest(t *testing.T, fsys vfs.FS, dir string, d Durability, cfg LogConfig) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, Dir: dir, Durability: d, OpenFiles: testFiles})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustAppend(t *testing.T, l *Log, raw []byte, term int32) Appended {
	t.Helper()
	b, err := ParseBatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.AppendLeader(b, term)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func readAll(t *testing.T, l *Log, from int64, upTo Bound) []byte {
	t.Helper()
	var out []byte
	for {
		r, err := l.Read(from, 1<<20, upTo, true)
		if err != nil {
			t.Fatal(err)
		}
		n := len(out)
		if out, err = r.AppendTo(out); err != nil {
			t.Fatal(err)
		}
		r.Release()
		if len(out) == n {
			return out
		}
		for p := n; p < len(out); {
			h := decodeHeader(out[p:])
			from = h.LastOffset() + 1
			p += h.Size()
		}
	}
}

func TestAppendReadReopen(t *testing.T) {
	id := TopicID{1}
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(), "os": vfs.OS{}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := testConfig()
			cfg.SegmentBytes = 64 << 10
			s := openTest(t, fsys, dir, Strict, cfg)
			l, err := s.Create(id, "t", 0, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.BeginTerm(1); err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				mustAppend(t, l, plainBatch(noProducer, 1+i%5, 700, time.Now().UnixMilli()), 1)
			}
			end := l.Offsets().End
			fired := make(chan struct{})
			l.Watch(BoundDurable, end, func() { close(fired) })
			select {
			case <-fired:
			case <-time.After(5 * time.Second):
				t.Fatal("not durable")
			}
			l.SetHigh(end)
			want := readAll(t, l, 0, BoundHigh)
			if l.Segments() < 3 || int64(len(want)) != l.Size() {
				t.Fatalf("%d segments, %d bytes read of %d", l.Segments(), len(want), l.Size())
			}
			for _, clean := range []bool{true, false} {
				if err := s.Close(clean, 7); err != nil {
					t.Fatal(err)
				}
				s = openTest(t, fsys, dir, Strict, cfg)
				if _, ok := s.CleanIncarnation(); ok != clean {
					t.Fatalf("clean incarnation %v after a stop that was clean=%v", ok, clean)
				}
				l, _ = s.Get(id, 0)
				if err := l.Err(); err != nil {
					t.Fatal(err)
				}
				if o := l.Offsets(); o.End != end || o.Durable != end {
					t.Fatalf("offsets %+v after reopen, end was %d", o, end)
				}
				if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, want) {
					t.Fatal("other bytes after reopen")
				}
			}
			s.Close(true, 8)
		})
	}
}

// TestCloseBeforeRecoverChangesNothing: a start that fails early may not turn
// an unclean directory into a clean one, nor the other way round.
func TestCloseBeforeRecoverChangesNothing(t *testing.T) {
	for _, clean := range []bool{true, false} {
		disk := vfs.NewMem()
		s := openTest(t, disk, "data", Strict, testConfig())
		l, err := s.Create(TopicID{1}, "t", 0, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		mustAppend(t, l, plainBatch(noProducer, 3, 1, 1), 1)
		stopTest(t, s, clean)
		for range 2 {
			if s, err = Open(Options{FS: disk, Dir: "data"}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(true, 9); err != nil {
				t.Fatal(err)
			}
		}
		s = openTest(t, disk, "data", Strict, testConfig())
		if n, ok := s.CleanIncarnation(); ok != clean || ok && n != 1 {
			t.Fatalf("clean %v: found %d %v", clean, n, ok)
		}
		if l, _ := s.Get(TopicID{1}, 0); l.Offsets().End != 3 {
			t.Fatalf("%+v", l.Offsets())
		}
		stopTest(t, s, true)
	}
}

// TestRoll: by time between timestamps, and when an index is full.
func TestRoll(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentAge = time.Minute
	l := newTestLog(t, Relaxed, cfg)
	now := time.Now().UnixMilli() - 1e6
	for i, c := range []struct {
		ts       int64
		segments int
	}{{now, 1}, {now + 60_000, 1}, {now + 60_001, 2}, {now, 2}, {now + 120_001, 2}, {now + 120_002, 3}} {
		mustAppend(t, l, plainBatch(noProducer, 1, 1, c.ts), 1)
		if n := l.Segments(); n != c.segments {
			t.Errorf("append %d: %d segments, want %d", i, n, c.segments)
		}
	}
	cfg = testConfig()
	cfg.IndexBytes, cfg.IndexIntervalBytes = 64, 1
	l = newTestLog(t, Relaxed, cfg)
	for i := range 40 {
		mustAppend(t, l, plainBatch(noProducer, 1, 1, now+int64(i)), 1)
	}
	want := readAll(t, l, 0, BoundEnd)
	if l.Segments() < 5 || int64(len(want)) != l.Size() {
		t.Errorf("%d segments", l.Segments())
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
