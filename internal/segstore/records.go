package segstore

import (
	"encoding/binary"
	"fmt"
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

func (b *Batch) rules(cfg *LogConfig, nowMs int64) rules {
	return rules{needKeys: cfg.Compact, checkTime: !cfg.LogAppendTime, baseTimestamp: b.BaseTimestamp,
		earliestMs: subTime(nowMs, cfg.TimestampBeforeMax), latestMs: addTime(nowMs, cfg.TimestampAfterMax)}
}

func (r *rules) timeOK(ms int64) bool {
	return ms == noTimestamp || ms >= r.earliestMs && ms <= r.latestMs
}

// maxFaults bounds how many records at fault are told of one batch.
const maxFaults = 1000

// checkRecords walks all records (Kafka's LogValidator): count, lengths,
// offsets in order, and the rules. It gives the largest timestamp found. Of the
// rules' faults each record is told; the form of the records is a fault of the
// batch.
func checkRecords(records []byte, count int32, r rules) (maxTimestamp int64, err error) {
	maxTimestamp = math.MinInt64
	var faults []RecordFault
	keyless := false
	it := recordIter{buf: records, left: count}
	for it.next() {
		i := it.index - 1
		if it.offsetDelta != i {
			return 0, batchError(ErrInvalidRecord, "record %d: offset delta %d is not its place in the batch", i, it.offsetDelta)
		}
		ts := r.baseTimestamp + it.timestampDelta
		maxTimestamp = max(maxTimestamp, ts)
		fault := ""
		switch {
		case r.needKeys && it.key == nil:
			fault, keyless = "compacted topic cannot accept a record without key", true
		case r.checkTime && !r.timeOK(ts):
			fault = fmt.Sprintf("timestamp %d is not within [%d, %d]", ts, r.earliestMs, r.latestMs)
		default:
			continue
		}
		if faults = append(faults, RecordFault{Index: i, Msg: fault}); len(faults) == maxFaults {
			return 0, ruleError(faults, keyless)
		}
	}
	switch {
	case it.fault != "":
		return 0, batchError(ErrInvalidRecord, "record %d: %s", it.index, it.fault)
	case it.pos != len(records):
		return 0, batchError(ErrInvalidRecord, "%d bytes follow the last of %d records", len(records)-it.pos, count)
	case len(faults) > 0:
		return 0, ruleError(faults, keyless)
	}
	return maxTimestamp, nil
}

// ruleError is INVALID_TIMESTAMP only if nothing else is wrong, as in Kafka.
func ruleError(faults []RecordFault, keyless bool) error {
	e := &RecordError{Err: ErrTimestamp, Records: faults}
	if keyless {
		e.Err = ErrInvalidRecord
	}
	e.Msg = fmt.Sprintf("record %d: %s", faults[0].Index, faults[0].Msg)
	if n := len(faults) - 1; n > 0 {
		e.Msg += fmt.Sprintf("; %d more", n)
	}
	return e
}

// timeTypeError is for a batch that claims LogAppendTime, which is the broker's
// to say: a fault of each record in Kafka.
func timeTypeError(records int32) error {
	const msg = "a producer may not set the timestamp type to LogAppendTime"
	e := &RecordError{Err: ErrTimestamp, Msg: msg}
	for i := range min(records, maxFaults) {
		e.Records = append(e.Records, RecordFault{Index: i, Msg: msg})
	}
	return e
}
