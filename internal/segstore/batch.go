package segstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The layout of a record batch, magic 2 (Kafka's DefaultRecordBatch): all
// numbers are big-endian; the CRC covers everything from the attributes on.
const (
	batchOverhead  = 61 // bytes before the first record
	lengthOverhead = 12 // base offset and length
	minLength      = 14 // what Kafka's LegacyRecord needs: below it no magic can be read

	atLength          = 8
	atTerm            = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atBaseTimestamp   = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atRecords         = 57
)

// Attribute bits of a batch.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40 // base timestamp is when tombstones or the marker may go (KIP-534)
)

const (
	noTimestamp  = -1
	noProducerID = -1
	noSequence   = -1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Size is the length of the batch in bytes.
func (h *BatchHeader) Size() int { return lengthOverhead + int(h.Length) }

// LastOffset is the offset of the last record (also of one that compaction removed).
func (h *BatchHeader) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// Control says that the batch is a transaction marker.
func (h *BatchHeader) Control() bool { return h.Attributes&attrControl != 0 }

// Transactional says that the batch belongs to a transaction.
func (h *BatchHeader) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Codec is the compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
func (h *BatchHeader) Codec() int { return int(h.Attributes & attrCodecMask) }

// lastSequence is the sequence of the last record; it wraps from 2^31-1 to 0.
func (h *BatchHeader) lastSequence() int32 {
	return addSequence(h.BaseSequence, h.LastOffsetDelta)
}

func addSequence(seq, n int32) int32 {
	return int32((int64(seq) + int64(n)) & 0x7fffffff)
}

// decodeHeader reads the fixed part; buf has at least batchOverhead bytes.
func decodeHeader(buf []byte) BatchHeader {
	_ = buf[batchOverhead-1]
	be := binary.BigEndian
	return BatchHeader{
		BaseOffset:      int64(be.Uint64(buf)),
		Length:          int32(be.Uint32(buf[atLength:])),
		Term:            int32(be.Uint32(buf[atTerm:])),
		Magic:           int8(buf[atMagic]),
		CRC:             be.Uint32(buf[atCRC:]),
		Attributes:      int16(be.Uint16(buf[atAttributes:])),
		LastOffsetDelta: int32(be.Uint32(buf[atLastOffsetDelta:])),
		BaseTimestamp:   int64(be.Uint64(buf[atBaseTimestamp:])),
		MaxTimestamp:    int64(be.Uint64(buf[atMaxTimestamp:])),
		ProducerID:      int64(be.Uint64(buf[atProducerID:])),
		ProducerEpoch:   int16(be.Uint16(buf[atProducerEpoch:])),
		BaseSequence:    int32(be.Uint32(buf[atBaseSequence:])),
		Records:         int32(be.Uint32(buf[atRecords:])),
	}
}

func batchError(sentinel error, format string, args ...any) error {
	return &RecordError{Err: sentinel, Msg: fmt.Sprintf(format, args...)}
}

// ParseBatch checks that raw is exactly one batch of magic 2 with a good
// length and CRC; it keeps raw and copies nothing. Errors are *RecordError and
// wrap ErrCorrupt (length, CRC) or ErrInvalidRecord (magic 0 and 1; none, more
// than one, or half a batch), as Kafka's ProduceRequest and
// DefaultRecordBatch.ensureValid tell them apart.
func ParseBatch(raw []byte) (Batch, error) {
	if len(raw) < lengthOverhead {
		return Batch{}, batchError(ErrInvalidRecord, "%d bytes hold no batch", len(raw))
	}
	length := int32(binary.BigEndian.Uint32(raw[atLength:]))
	if length < minLength {
		return Batch{}, batchError(ErrCorrupt, "batch length %d is too small", length)
	}
	if len(raw) > atMagic {
		if magic := int8(raw[atMagic]); magic == 0 || magic == 1 {
			return Batch{}, batchError(ErrInvalidRecord, "message format %d is not supported, only 2", magic)
		} else if magic != 2 {
			return Batch{}, batchError(ErrCorrupt, "message format %d is unknown", magic)
		}
	}
	switch want := int64(lengthOverhead) + int64(length); {
	case want > int64(len(raw)):
		return Batch{}, batchError(ErrInvalidRecord, "batch of %d bytes is cut off at %d", want, len(raw))
	case want < batchOverhead:
		return Batch{}, batchError(ErrCorrupt, "batch length %d is too small", length)
	case want < int64(len(raw)):
		return Batch{}, batchError(ErrInvalidRecord, "more than one batch: %d bytes follow the first", int64(len(raw))-want)
	}
	b := Batch{Raw: raw, BatchHeader: decodeHeader(raw)}
	if !crcGood(raw) {
		return Batch{}, batchError(ErrCorrupt, "CRC of the batch is wrong")
	}
	return b, nil
}

// crcGood compares the stored CRC with that of exactly one batch.
func crcGood(raw []byte) bool {
	return binary.BigEndian.Uint32(raw[atCRC:]) == checksum(raw)
}

// checksum is the CRC of one batch.
func checksum(raw []byte) uint32 { return crc32.Checksum(raw[atAttributes:], castagnoli) }

// stampPlace sets base offset and term, both outside the CRC.
func (b *Batch) stampPlace(base int64, term int32) {
	b.BaseOffset, b.Term = base, term
	binary.BigEndian.PutUint64(b.Raw, uint64(base))
	binary.BigEndian.PutUint32(b.Raw[atTerm:], uint32(term))
}

// stampTime sets the timestamp type and the largest timestamp and, if either
// changed, the CRC (DefaultRecordBatch.setMaxTimestamp).
func (b *Batch) stampTime(logAppend bool, maxTimestamp int64) {
	attrs := b.Attributes &^ attrLogAppendTime
	if logAppend {
		attrs |= attrLogAppendTime
	}
	if attrs == b.Attributes && maxTimestamp == b.MaxTimestamp {
		return
	}
	b.Attributes, b.MaxTimestamp = attrs, maxTimestamp
	binary.BigEndian.PutUint16(b.Raw[atAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(b.Raw[atMaxTimestamp:], uint64(maxTimestamp))
	b.CRC = checksum(b.Raw)
	binary.BigEndian.PutUint32(b.Raw[atCRC:], b.CRC)
}

// Marker types in the key of a control record (Kafka's ControlRecordType).
const (
	markerAbort  = 0
	markerCommit = 1
)

// markerSize is the length of a transaction marker: one record of 17 bytes
// behind its length byte.
const markerSize = batchOverhead + 17

// buildMarker makes the control batch that ends a transaction (Kafka's
// EndTransactionMarker): key = version 0, type; value = version 0, coordinator
// epoch. Offset and term are stamped later.
func buildMarker(producerID int64, epoch int16, commit bool, coordinatorTerm int32, nowMs int64) Batch {
	raw := make([]byte, markerSize)
	be := binary.BigEndian
	be.PutUint32(raw[atLength:], markerSize-lengthOverhead)
	raw[atMagic] = 2
	be.PutUint16(raw[atAttributes:], attrTransactional|attrControl)
	be.PutUint64(raw[atBaseTimestamp:], uint64(nowMs))
	be.PutUint64(raw[atMaxTimestamp:], uint64(nowMs))
	be.PutUint64(raw[atProducerID:], uint64(producerID))
	be.PutUint16(raw[atProducerEpoch:], uint16(epoch))
	be.PutUint32(raw[atBaseSequence:], 0xffffffff)
	be.PutUint32(raw[atRecords:], 1)
	rec := raw[batchOverhead:]
	rec[0] = 16 << 1 // record length, zigzag
	// rec[1] attributes, rec[2] timestamp delta, rec[3] offset delta: zero
	rec[4] = 4 << 1 // key length
	if commit {
		be.PutUint16(rec[7:], markerCommit)
	} else {
		be.PutUint16(rec[7:], markerAbort)
	}
	rec[9] = 6 << 1 // value length
	be.PutUint32(rec[12:], uint32(coordinatorTerm))
	// rec[16] header count: zero
	be.PutUint32(raw[atCRC:], checksum(raw))
	return Batch{Raw: raw, BatchHeader: decodeHeader(raw)}
}

// marker is what a control record says.
type marker struct {
	kind            int16 // markerAbort, markerCommit, or a type we do not know
	coordinatorTerm int32
}

// parseMarker reads the control record behind the header of a control batch.
func parseMarker(records []byte) (marker, bool) {
	it := recordIter{buf: records, left: 1}
	if !it.next() || len(it.key) < 4 {
		return marker{}, false
	}
	m := marker{kind: int16(binary.BigEndian.Uint16(it.key[2:])), coordinatorTerm: -1}
	if len(it.value) >= 6 {
		m.coordinatorTerm = int32(binary.BigEndian.Uint32(it.value[2:]))
	}
	return m, true
}
