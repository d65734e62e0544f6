package segstore

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// timedBatch makes a batch whose records have the given timestamps.
func timedBatch(ts ...int64) []byte {
	raw := plainBatch(noProducer, len(ts), 0, ts[0])[:batchOverhead]
	top := ts[0]
	for i, at := range ts {
		rec := binary.AppendVarint([]byte{0}, at-ts[0])
		rec = binary.AppendVarint(rec, int64(i))
		rec = append(rec, 1, 1, 0)
		raw = binary.AppendVarint(raw, int64(len(rec)))
		raw = append(raw, rec...)
		top = max(top, at)
	}
	binary.BigEndian.PutUint64(raw[atMaxTimestamp:], uint64(top))
	return fixCRC(withLength(raw, len(raw)-lengthOverhead))
}

func TestOffsetForTime(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 250, 1 // two or three batches a segment
	type ask struct{ ts, offset, at int64 }
	cases := map[string]struct {
		batches [][]byte
		start   int64
		asks    []ask
		max     ask
	}{
		"in order": {[][]byte{timedBatch(2), timedBatch(4), timedBatch(6), timedBatch(8)}, 0,
			[]ask{{0, 0, 2}, {3, 1, 4}, {5, 2, 6}, {8, 3, 8}, {9, -1, -1}}, ask{8, 3, 8}},
		"inside a batch": {[][]byte{timedBatch(10, 20, 30)}, 0,
			[]ask{{10, 0, 10}, {15, 1, 20}, {30, 2, 30}, {31, -1, -1}}, ask{30, 2, 30}},
		"out of order over segments": {[][]byte{timedBatch(100), timedBatch(50), timedBatch(200), timedBatch(60), timedBatch(55)}, 0,
			[]ask{{55, 0, 100}, {101, 2, 200}, {201, -1, -1}}, ask{200, 2, 200}},
		"ties": {[][]byte{timedBatch(1), timedBatch(7, 9, 9), timedBatch(9), timedBatch(3)}, 0,
			[]ask{{9, 2, 9}, {8, 2, 9}}, ask{9, 2, 9}},
		"below the start": {[][]byte{timedBatch(50, 60, 70), timedBatch(40), timedBatch(55)}, 2,
			[]ask{{50, 2, 70}, {71, -1, -1}}, ask{70, 2, 70}},
		"largest below the start": {[][]byte{timedBatch(90), timedBatch(40), timedBatch(55)}, 1,
			[]ask{{50, 2, 55}, {56, -1, -1}}, ask{55, 2, 55}},
		"emptied":  {[][]byte{timedBatch(90), timedBatch(40)}, 2, []ask{{1, -1, -1}}, ask{-1, -1, -1}},
		"nothing":  {nil, 0, []ask{{1, -1, -1}}, ask{-1, -1, -1}},
		"no times": {[][]byte{timedBatch(-1), timedBatch(-1)}, 0, []ask{{0, -1, -1}}, ask{-1, -1, -1}},
	}
	for codec := codecNone; codec <= codecZstd; codec++ {
		for name, c := range cases {
			l := newTestLog(t, Relaxed, cfg)
			for _, raw := range c.batches {
				raw = bytes.Clone(raw)
				if codec != codecNone {
					raw = deflate(t, codec, raw, true)
				}
				mustAppend(t, l, raw, 1)
			}
			l.SetHigh(l.Offsets().End)
			if _, err := l.DeleteTo(c.start); err != nil {
				t.Fatal(err)
			}
			for _, a := range c.asks {
				pos, found, err := l.OffsetForTime(a.ts, BoundHigh)
				if err != nil || found != (a.offset >= 0) || found && (pos != TimedOffset{a.offset, a.at, 1}) {
					t.Errorf("codec %d, %s: time %d: %+v %v %v, want %+v", codec, name, a.ts, pos, found, err, a)
				}
			}
			pos, found, err := l.MaxTimestamp(BoundHigh)
			if err != nil || found != (c.max.offset >= 0) || found && (pos != TimedOffset{c.max.offset, c.max.at, 1}) {
				t.Errorf("codec %d, %s: max timestamp %+v %v %v, want %+v", codec, name, pos, found, err, c.max)
			}
		}
	}
}

// TestTimesStopAtTheBound: a record above the last stable offset is not found.
func TestTimesStopAtTheBound(t *testing.T) {
	l := newTestLog(t, Relaxed, testConfig())
	mustAppend(t, l, timedBatch(5), 1)
	mustAppend(t, l, timedBatch(9), 1)
	l.SetHigh(1)
	if _, found, err := l.OffsetForTime(6, BoundHigh); found || err != nil {
		t.Fatal(found, err)
	}
	if pos, found, err := l.OffsetForTime(6, BoundEnd); !found || err != nil || pos.Offset != 1 {
		t.Fatal(pos, found, err)
	}
	if pos, found, err := l.MaxTimestamp(BoundHigh); !found || err != nil || pos.TimestampMs != 5 {
		t.Fatal(pos, found, err)
	}
}
