package logtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"sort"
)

// hole is a range of offsets [from, to) that no good batch has.
type hole struct{ from, to int64 }

// salvage gives the good batches of a segment from a byte on, in order, and the holes between them. It looks for the next
// good batch behind bad bytes, whatever their lengths claim. expected is the first offset that may come, limit the first
// one that may not. A hole behind the last batch is not given; end is the offset behind that batch.
func (r *repairer) salvage(c *logCheck, segment int, position, expected, limit int64, keep func(b *batch, raw []byte) error, gone func(hole) error) (end int64, err error) {
	s, err := openSegment(r.fs, c.path(filepath.Join(c.dir, c.files.segments[segment].stem+logSuffix)))
	if err != nil {
		return expected, err
	}
	defer s.close()
	s.at = position
	for {
		b, raw, err := s.nextGood(expected, limit)
		if errors.Is(err, io.EOF) {
			return expected, nil
		}
		if err != nil {
			return expected, err
		}
		if b.base > expected && b.base > c.gapsBelow {
			if err := gone(hole{expected, b.base}); err != nil {
				return expected, err
			}
		}
		if err := keep(&b, raw); err != nil {
			return expected, err
		}
		expected = b.last() + 1
	}
}

// nextGood goes behind the next good batch whose offsets lie within [from, limit); io.EOF if there is none.
func (r *segmentReader) nextGood(from, limit int64) (batch, []byte, error) {
	for ; r.size-r.at >= headerSize; r.at++ {
		head, err := r.view(r.at, headerSize)
		if err != nil {
			return batch{}, nil, err
		}
		if head[16] != 2 {
			continue
		}
		b, length, _ := parseHeader(head)
		b.position = r.at
		if length < headerSize-prefixSize || int64(b.size) > r.size-r.at || b.size > maxBatchSize ||
			b.base < from || b.lastDelta < 0 || b.last() < b.base || b.last() >= limit {
			continue
		}
		raw, err := r.bytes(&b)
		if err != nil {
			return batch{}, nil, err
		}
		if crcGood(raw) {
			r.at += int64(b.size)
			return b, raw, nil
		}
	}
	return batch{}, nil, io.EOF
}

// fillers are batches without records that cover a hole, so that offsets stay contiguous: as DefaultRecordBatch's
// writeEmptyHeader makes them, without a producer.
func fillers(h hole, term int32) (out []byte) {
	for h.from < h.to {
		delta := min(h.to-h.from-1, math.MaxInt32-1)
		raw := make([]byte, headerSize)
		be := binary.BigEndian
		be.PutUint64(raw, uint64(h.from))
		be.PutUint32(raw[8:], headerSize-prefixSize)
		be.PutUint32(raw[12:], uint32(term))
		raw[16] = 2
		be.PutUint32(raw[23:], uint32(delta))
		for _, at := range [...]int{27, 35, 43} { // timestamps and producer id: none
			be.PutUint64(raw[at:], math.MaxUint64)
		}
		be.PutUint16(raw[51:], math.MaxUint16)
		be.PutUint32(raw[53:], math.MaxUint32)
		be.PutUint32(raw[17:], crc32.Checksum(raw[crcFrom:], crcTable))
		out = append(out, raw...)
		h.from += delta + 1
	}
	return out
}

// termAt is the term of what was at an offset: as the leader-epoch-checkpoint says, if that fits the batches around it.
func (r *repairer) termAt(c *logCheck, offset int64) int32 {
	i := sort.Search(len(c.terms), func(i int) bool { return c.terms[i].start > offset })
	low, high := int32(0), int32(math.MaxInt32)
	if i > 0 {
		low = c.terms[i-1].term
	}
	if i < len(c.terms) {
		high = c.terms[i].term
	}
	data, _ := readWhole(r.fs, c.path(filepath.Join(c.dir, termsName))) // without it the batches tell
	lines, _ := parseTerms(data)
	term := low
	for _, l := range lines {
		if l.start <= offset {
			term = l.term
		}
	}
	return min(max(term, low), high)
}

// tally is what stands behind a place of a log.
type tally struct {
	batches, records, markers int64
	producers                 map[int64]bool
	last                      int64 // last offset, -1 none
}

func (t *tally) String() string {
	if t.batches == 0 {
		return "no good batch"
	}
	return fmt.Sprintf("%s in %s up to offset %d, of %s, with %s",
		countOf(t.records, "good record", "good records"), countOf(t.batches, "batch", "batches"), t.last,
		countOf(int64(len(t.producers)), "idempotent producer", "idempotent producers"), countOf(t.markers, "transaction marker", "transaction markers"))
}

func countOf(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// tallyFrom counts the good batches behind a damage.
func (r *repairer) tallyFrom(c *logCheck, d damage) (t tally, err error) {
	t.producers, t.last = map[int64]bool{}, -1
	expected, position := d.from, d.position
	for i := d.segment; i < len(c.files.segments); i++ {
		expected, err = r.salvage(c, i, position, expected, math.MaxInt64, func(b *batch, _ []byte) error {
			t.batches, t.last = t.batches+1, b.last()
			switch {
			case b.control():
				t.markers++
			case b.producer >= 0:
				t.producers[b.producer] = true
				fallthrough
			default:
				t.records += int64(b.count)
			}
			return nil
		}, func(hole) error { return nil })
		if err != nil {
			return t, err
		}
		position = 0
	}
	return t, nil
}
