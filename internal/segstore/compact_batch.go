package segstore

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// batchFilter decides what stays of the batches of one log, read in order
// (Kafka's Cleaner.cleanInto and MemoryRecords.filterTo).
type batchFilter struct {
	keys        *offsetMap
	txns        *cleanedTxns
	nowMs       int64
	horizonMs   int64           // what is found deletable now may go then: now + delete.retention.ms
	windows     []int64         // last offsets of the batches in duplicate windows, sorted
	markerEpoch map[int64]int16 // epochs of producers that no batch in a window tells

	pack    packer
	records []byte // of the batch that is made, plain
	out     []byte
	body    []byte

	keyless int // records without a key, which are dropped
	read    int // records read
	kept    int // records kept
}

// protect notes the producers whose last batches must stay, for a log of which
// the part below end is rewritten.
func (f *batchFilter) protect(l *Log, end int64) {
	f.windows, f.markerEpoch = f.windows[:0], map[int64]int16{}
	l.pos.Lock()
	defer l.pos.Unlock()
	for id, p := range l.producers.byID {
		if p.n == 0 {
			f.markerEpoch[id] = p.epoch
		}
		for _, b := range p.window[:p.n] {
			if b.lastOffset < end {
				f.windows = append(f.windows, b.lastOffset)
			}
		}
	}
	slices.Sort(f.windows)
}

// batch gives what is left of a batch: raw itself, a new one that is valid
// until the next call, or nil. last says that the batch ends a segment: then at
// least its header stays, so that the segment still says where it ends.
func (f *batchFilter) batch(h *BatchHeader, raw []byte, last bool) ([]byte, error) {
	if h.Control() {
		return f.marker(h, raw, last)
	}
	f.read += int(h.Records)
	aborted := f.txns.data(h)
	if h.LastOffset() > f.keys.latest {
		f.kept += int(h.Records)
		return raw, nil
	}
	header := last || f.inWindow(h)
	switch {
	case h.Records == 0 && header:
		return raw, nil
	case h.Records > 0 && !aborted:
		return f.data(h, raw, header)
	}
	return f.empty(h, raw, header), nil
}

func (f *batchFilter) inWindow(h *BatchHeader) bool {
	if h.ProducerID < 0 {
		return false
	}
	_, found := slices.BinarySearch(f.windows, h.LastOffset())
	return found
}

// marker keeps a marker while a batch of its transaction is there, then for
// delete.retention.ms, and as long as it is all that tells a producer's epoch.
func (f *batchFilter) marker(h *BatchHeader, raw []byte, last bool) ([]byte, error) {
	deletable := f.txns.marker(h, raw[batchOverhead:])
	epoch, told := f.markerEpoch[h.ProducerID]
	switch {
	case h.LastOffset() > f.keys.latest, !deletable, told && epoch == h.ProducerEpoch && h.Records > 0:
		return raw, nil
	case h.Records == 0 && last:
		return raw, nil
	case h.Records > 0 && h.Attributes&attrDeleteHorizon == 0:
		return f.rebuild(h, raw, raw[batchOverhead:], []span{{0, len(raw) - batchOverhead}}, int(h.Records), h.MaxTimestamp, true)
	case h.Records > 0 && h.BaseTimestamp > f.nowMs:
		return raw, nil
	}
	return f.empty(h, raw, last), nil
}

// empty is the header of a batch without records (Kafka's
// DefaultRecordBatch.writeEmptyHeader), or nil.
func (f *batchFilter) empty(h *BatchHeader, raw []byte, keep bool) []byte {
	if !keep {
		return nil
	}
	f.out = append(f.out[:0], raw[:batchOverhead]...)
	const kept = attrLogAppendTime | attrTransactional | attrControl
	be := binary.BigEndian
	be.PutUint16(f.out[atAttributes:], uint16(h.Attributes)&kept)
	be.PutUint64(f.out[atBaseTimestamp:], 1<<64-1)
	be.PutUint32(f.out[atRecords:], 0)
	return f.seal()
}

// span is a run of records that stay, in bytes of the plain records.
type span struct{ from, to int }

// data drops the records that a newer one of their key stands for, and
// tombstones whose time has come.
func (f *batchFilter) data(h *BatchHeader, raw []byte, header bool) (out []byte, err error) {
	err = inflate(h.Codec(), raw[batchOverhead:], inflateLimit, func(plain []byte) error {
		var spans [16]span
		out, err = f.dataPlain(h, raw, plain, spans[:0], header)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: records of the batch at offset %d: %w", ErrCorrupt, h.BaseOffset, err)
	}
	return out, nil
}

func (f *batchFilter) dataPlain(h *BatchHeader, raw, plain []byte, spans []span, header bool) ([]byte, error) {
	expired := h.Attributes&attrDeleteHorizon != 0 && h.BaseTimestamp <= f.nowMs
	kept, tombstones, newest := 0, false, int64(noTimestamp)
	it := recordIter{buf: plain, left: h.Records}
	for it.next() {
		switch {
		case it.key == nil:
			f.keyless++
			continue
		case f.keys.get(it.key) > h.BaseOffset+int64(it.offsetDelta), it.value == nil && expired:
			continue
		}
		kept++
		tombstones = tombstones || it.value == nil
		newest = max(newest, h.BaseTimestamp+it.timestampDelta)
		if n := len(spans); n > 0 && spans[n-1].to == it.start {
			spans[n-1].to = it.pos
		} else {
			spans = append(spans, span{it.start, it.pos})
		}
	}
	if it.fault != "" || it.pos != len(plain) {
		return nil, fmt.Errorf("record %d: %s", it.index, it.fault)
	}
	f.kept += kept
	horizon := tombstones && h.Attributes&attrDeleteHorizon == 0
	switch {
	case kept == 0:
		return f.empty(h, raw, header), nil
	case kept == int(h.Records) && !horizon:
		return raw, nil
	case kept == int(h.Records) || h.Attributes&attrLogAppendTime != 0:
		newest = h.MaxTimestamp
	}
	return f.rebuild(h, raw, plain, spans, kept, newest, horizon)
}

// rebuild makes a batch of the records in spans. Offsets, sequences, term and
// codec stay, and so does the last offset delta: the next sequence follows from
// it. With horizon the batch gets a time to live, which takes the place of the
// base timestamp.
func (f *batchFilter) rebuild(h *BatchHeader, raw, plain []byte, spans []span, kept int, maxTimestamp int64, horizon bool) ([]byte, error) {
	f.records = f.records[:0]
	for _, s := range spans {
		if !horizon {
			f.records = append(f.records, plain[s.from:s.to]...)
			continue
		}
		it := recordIter{buf: plain[:s.to], pos: s.from, left: -1}
		for it.pos < s.to && it.next() {
			at := h.BaseTimestamp + it.timestampDelta
			if h.Attributes&attrLogAppendTime != 0 {
				at = h.MaxTimestamp
			}
			f.body = append(f.body[:0], plain[attributesOf(plain, it.start)])
			f.body = binary.AppendVarint(f.body, at-f.horizonMs)
			f.body = append(f.body, plain[it.after:it.pos]...)
			f.records = binary.AppendVarint(f.records, int64(len(f.body)))
			f.records = append(f.records, f.body...)
		}
	}
	f.out = append(f.out[:0], raw[:batchOverhead]...)
	be := binary.BigEndian
	if horizon {
		be.PutUint16(f.out[atAttributes:], uint16(h.Attributes|attrDeleteHorizon))
		be.PutUint64(f.out[atBaseTimestamp:], uint64(f.horizonMs))
	}
	be.PutUint64(f.out[atMaxTimestamp:], uint64(maxTimestamp))
	be.PutUint32(f.out[atRecords:], uint32(kept))
	var err error
	if f.out, err = f.pack.pack(f.out, h.Codec(), 0, f.records); err != nil {
		return nil, err
	}
	return f.seal(), nil
}

// attributesOf is where the attributes of the record at pos stand.
func attributesOf(records []byte, pos int) int {
	_, n := binary.Varint(records[pos:])
	return pos + n
}

// seal sets length and CRC of the batch in out.
func (f *batchFilter) seal() []byte {
	sealBatch(f.out)
	return f.out
}
