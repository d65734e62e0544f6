package segstore

import (
	"encoding/binary"
	"errors"
	"math"
)

// recordIter walks the records of a batch (Kafka's DefaultRecord) without
// allocating. The slices it gives point into buf.
type recordIter struct {
	buf   []byte
	pos   int
	left  int32 // records to come
	index int32 // of the current record
	start int   // where the current record begins, with its length
	after int   // where its timestamp delta ends

	timestampDelta int64
	offsetDelta    int32
	key, value     []byte // nil is null
	fault          string // why next stopped early
}

// next moves to the next record. False is the end, or a fault.
func (it *recordIter) next() bool {
	if it.left == 0 || it.fault != "" {
		return false
	}
	it.left--
	it.start = it.pos
	length, ok := it.varint()
	if !ok || length < 0 || length > int64(len(it.buf)-it.pos) {
		return it.bad("record length is wrong")
	}
	end := it.pos + int(length)
	if it.pos == end {
		return it.bad("record is empty")
	}
	it.pos++ // attributes: unused
	var delta int64
	if it.timestampDelta, ok = it.varint(); !ok {
		return it.bad("timestamp delta is wrong")
	}
	it.after = it.pos
	if delta, ok = it.varint(); !ok || delta < 0 || delta > math.MaxInt32 {
		return it.bad("offset delta is wrong")
	}
	it.offsetDelta = int32(delta)
	if it.key, ok = it.bytes(end); !ok {
		return it.bad("key length is wrong")
	}
	if it.value, ok = it.bytes(end); !ok {
		return it.bad("value length is wrong")
	}
	if !it.headers(end) {
		return it.bad("headers are wrong")
	}
	if it.pos != end {
		return it.bad("record length does not match its fields")
	}
	it.index++
	return true
}

func (it *recordIter) bad(why string) bool {
	it.fault = why
	return false
}

// varint reads a zigzag varint; it never reads past buf.
func (it *recordIter) varint() (int64, bool) {
	v, n := binary.Varint(it.buf[it.pos:])
	if n <= 0 {
		return 0, false
	}
	it.pos += n
	return v, true
}

var emptyBytes = []byte{}

// bytes reads a length (-1 is null) and that many bytes, not past end.
func (it *recordIter) bytes(end int) ([]byte, bool) {
	n, ok := it.varint()
	if !ok || n < -1 || n > int64(end-it.pos) {
		return nil, false
	}
	if n < 0 {
		return nil, true
	}
	if n == 0 {
		return emptyBytes, true
	}
	b := it.buf[it.pos : it.pos+int(n)]
	it.pos += int(n)
	return b, true
}

// headers skips a record's headers: a null header key is refused, as Kafka does.
func (it *recordIter) headers(end int) bool {
	n, ok := it.varint()
	if !ok || n < 0 || n > int64(end-it.pos) {
		return false
	}
	for range n {
		key, ok := it.bytes(end)
		if !ok || key == nil {
			return false
		}
		if _, ok := it.bytes(end); !ok {
			return false
		}
	}
	return it.pos <= end
}

// rules are the topic's demands on the records of one batch.
type rules struct {
	needKeys      bool
	checkTime     bool
	earliestMs    int64 // timestamps below are refused
	latestMs      int64 // timestamps above are refused
	baseTimestamp int64
}

// checkRecords walks all records: count, lengths, offsets in order, and the
// rules. It gives the largest timestamp found.
func checkRecords(records []byte, count int32, r rules) (maxTimestamp int64, err error) {
	maxTimestamp = math.MinInt64
	it := recordIter{buf: records, left: count}
	for it.next() {
		i := it.index - 1
		if it.offsetDelta != i {
			return 0, &RecordError{Err: ErrInvalidRecord, Index: i, Msg: "offset delta is not the record's place in the batch"}
		}
		if r.needKeys && it.key == nil {
			return 0, &RecordError{Err: ErrInvalidRecord, Index: i, Msg: "compacted topic cannot accept a record without key"}
		}
		ts := r.baseTimestamp + it.timestampDelta
		if r.checkTime && ts != noTimestamp && (ts < r.earliestMs || ts > r.latestMs) {
			return 0, timeError(i, ts, r)
		}
		maxTimestamp = max(maxTimestamp, ts)
	}
	switch {
	case it.fault != "":
		return 0, &RecordError{Err: ErrInvalidRecord, Index: it.index, Msg: it.fault}
	case it.pos != len(records):
		return 0, batchError(ErrInvalidRecord, "%d bytes follow the last of %d records", len(records)-it.pos, count)
	}
	return maxTimestamp, nil
}

func timeError(index int32, ts int64, r rules) error {
	e := batchError(ErrTimestamp, "timestamp %d is not within [%d, %d]", ts, r.earliestMs, r.latestMs).(*RecordError)
	e.Index = index
	return e
}

// validate checks a client's batch against the properties of the topic and
// settles its timestamps (Kafka's LogValidator). nowMs is the append time. It
// does not look at producer state.
func (b *Batch) validate(cfg *LogConfig, nowMs int64) error {
	switch {
	case b.BaseOffset != 0:
		return batchError(ErrInvalidRecord, "base offset %d is not 0", b.BaseOffset)
	case len(b.Raw) > cfg.MaxBatchBytes:
		return batchError(ErrTooLarge, "batch of %d bytes, max.message.bytes is %d", len(b.Raw), cfg.MaxBatchBytes)
	case int64(len(b.Raw)) > cfg.SegmentBytes:
		return batchError(ErrListTooLarge, "batch of %d bytes, segment.bytes is %d", len(b.Raw), cfg.SegmentBytes)
	case b.Records <= 0 || int64(b.Records) != int64(b.LastOffsetDelta)+1:
		return batchError(ErrInvalidRecord, "record count %d does not match last offset delta %d", b.Records, b.LastOffsetDelta)
	case b.Control():
		return batchError(ErrInvalidRecord, "clients may not write control records")
	case b.ProducerID >= 0 && b.BaseSequence < 0:
		return batchError(ErrInvalidRecord, "sequence %d of producer id %d is negative", b.BaseSequence, b.ProducerID)
	case b.Codec() > codecZstd:
		return batchError(ErrInvalidRecord, "compression codec %d is unknown", b.Codec())
	case cfg.LogAppendTime && b.Attributes&attrLogAppendTime != 0:
		return batchError(ErrTimestamp, "a producer may not set the timestamp type to LogAppendTime")
	}
	r := rules{needKeys: cfg.Compact, checkTime: !cfg.LogAppendTime, baseTimestamp: b.BaseTimestamp,
		earliestMs: subTime(nowMs, cfg.TimestampBeforeMax), latestMs: addTime(nowMs, cfg.TimestampAfterMax)}
	maxTimestamp, err := b.checkTimes(r)
	if err != nil {
		return err
	}
	if !cfg.LogAppendTime {
		b.stampTime(false, maxTimestamp)
	}
	return nil
}

// checkTimes walks the records. A compressed batch is inflated only where the
// header is not enough: keys of a compacted topic, or a largest timestamp that
// cannot be true (old Sarama writes -1).
func (b *Batch) checkTimes(r rules) (maxTimestamp int64, err error) {
	records := b.Raw[batchOverhead:]
	if b.Codec() == codecNone {
		return checkRecords(records, b.Records, r)
	}
	if r.needKeys || b.MaxTimestamp < b.BaseTimestamp {
		err := inflate(b.Codec(), records, inflateLimit, func(plain []byte) error {
			maxTimestamp, err = checkRecords(plain, b.Records, r)
			return err
		})
		var re *RecordError
		if err != nil && !errors.As(err, &re) {
			return 0, batchError(ErrInvalidRecord, "records cannot be inflated: %v", err)
		}
		return maxTimestamp, err
	}
	for _, ts := range [...]int64{b.BaseTimestamp, b.MaxTimestamp} {
		if r.checkTime && ts != noTimestamp && (ts < r.earliestMs || ts > r.latestMs) {
			return 0, timeError(-1, ts, r)
		}
	}
	return b.MaxTimestamp, nil
}
