package segstore

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// Index files, big-endian, offsets relative to the segment's base offset:
//
//	.index     8 bytes: last offset of a batch int32, its position int32 (Kafka's OffsetIndex)
//	.timeindex 12 bytes: largest timestamp so far int64, last offset of its batch int32 (TimeIndex)
//	.txnindex  34 bytes: version int16, producer id, first, last and last stable offset int64 (TransactionIndex)
const (
	offsetEntrySize  = 8
	timeEntrySize    = 12
	abortedEntrySize = 34
)

// offsetIndex is the content of an .index file.
type offsetIndex []byte

func (x offsetIndex) entries() int { return len(x) / offsetEntrySize }

func (x offsetIndex) entry(i int) (rel, pos int64) {
	e := x[i*offsetEntrySize:]
	return int64(binary.BigEndian.Uint32(e)), int64(binary.BigEndian.Uint32(e[4:]))
}

func (x offsetIndex) add(rel, pos int64) offsetIndex {
	x = binary.BigEndian.AppendUint32(x, uint32(rel))
	return binary.BigEndian.AppendUint32(x, uint32(pos))
}

// atOffset is the position of the last indexed batch that ends at or before
// the relative offset: a scan for it may start there.
func (x offsetIndex) atOffset(rel int64) int64 {
	i := sort.Search(x.entries(), func(i int) bool { r, _ := x.entry(i); return r > rel })
	if i == 0 {
		return 0
	}
	_, pos := x.entry(i - 1)
	return pos
}

// atPosition is the last indexed batch start at or before pos.
func (x offsetIndex) atPosition(pos int64) int64 {
	i := sort.Search(x.entries(), func(i int) bool { _, p := x.entry(i); return p > pos })
	if i == 0 {
		return 0
	}
	_, p := x.entry(i - 1)
	return p
}

// sane says whether the index can belong to a log file of size bytes: whole
// entries, both columns rising, positions inside the file.
func (x offsetIndex) sane(size int64) bool {
	if len(x)%offsetEntrySize != 0 || (len(x) == 0 && size > maxUnindexed) {
		return false
	}
	lastRel, lastPos := int64(-1), int64(-1)
	for i := range x.entries() {
		rel, pos := x.entry(i)
		if rel <= lastRel || pos <= lastPos || pos >= size || rel > 1<<31-1 {
			return false
		}
		lastRel, lastPos = rel, pos
	}
	return true
}

// maxUnindexed is how many bytes of log may stand without any index entry
// before the index counts as lost: more than one batch usually has.
const maxUnindexed = 4 << 20

// timeIndex is the content of a .timeindex file.
type timeIndex []byte

func (x timeIndex) entries() int { return len(x) / timeEntrySize }

func (x timeIndex) entry(i int) (ts, rel int64) {
	e := x[i*timeEntrySize:]
	return int64(binary.BigEndian.Uint64(e)), int64(binary.BigEndian.Uint32(e[8:]))
}

// last is the newest entry, or no timestamp.
func (x timeIndex) last() (ts, rel int64) {
	if n := x.entries(); n > 0 {
		return x.entry(n - 1)
	}
	return noTimestamp, 0
}

// add appends an entry unless the timestamp is not above the last one.
func (x timeIndex) add(ts, rel int64) timeIndex {
	if last, _ := x.last(); ts <= last {
		return x
	}
	x = binary.BigEndian.AppendUint64(x, uint64(ts))
	return binary.BigEndian.AppendUint32(x, uint32(rel))
}

// before is the relative offset up to which all timestamps are below ts.
func (x timeIndex) before(ts int64) (rel int64, ok bool) {
	i := sort.Search(x.entries(), func(i int) bool { t, _ := x.entry(i); return t >= ts })
	if i == 0 {
		return 0, false
	}
	_, rel = x.entry(i - 1)
	return rel, true
}

// sane says whether the index can belong to a segment that ends at relEnd.
func (x timeIndex) sane(relEnd int64) bool {
	if len(x)%timeEntrySize != 0 {
		return false
	}
	lastTS, lastRel := int64(noTimestamp), int64(-1)
	for i := range x.entries() {
		ts, rel := x.entry(i)
		if ts <= lastTS || rel < lastRel || rel >= relEnd {
			return false
		}
		lastTS, lastRel = ts, rel
	}
	return true
}

func encodeAborted(list []abortedTxn) []byte {
	var out []byte
	for _, t := range list {
		out = binary.BigEndian.AppendUint16(out, 0)
		for _, v := range [...]int64{t.producerID, t.first, t.last, t.lastStable} {
			out = binary.BigEndian.AppendUint64(out, uint64(v))
		}
	}
	return out
}

// decodeAborted reads a .txnindex; base is the segment's base offset. Every
// fault wraps ErrCorrupt.
func decodeAborted(data []byte, base int64) ([]abortedTxn, error) {
	if len(data)%abortedEntrySize != 0 {
		return nil, fmt.Errorf("%w: transaction index of %d bytes", ErrCorrupt, len(data))
	}
	var list []abortedTxn
	last := base - 1
	for ; len(data) > 0; data = data[abortedEntrySize:] {
		be := binary.BigEndian
		t := abortedTxn{producerID: int64(be.Uint64(data[2:])), first: int64(be.Uint64(data[10:])),
			last: int64(be.Uint64(data[18:])), lastStable: int64(be.Uint64(data[26:]))}
		if be.Uint16(data) != 0 || t.last <= last || t.first > t.last {
			return nil, fmt.Errorf("%w: transaction index entry %+v", ErrCorrupt, t)
		}
		last = t.last
		list = append(list, t)
	}
	return list, nil
}
