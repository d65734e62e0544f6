package segstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
)

// targetCodec gives the codec of a topic's compression.type; false: batches
// stay in the codec they came in.
func (c *LogConfig) targetCodec() (codec int, ok bool) {
	switch c.Compression {
	case "uncompressed":
		return codecNone, true
	case "gzip":
		return codecGzip, true
	case "snappy":
		return codecSnappy, true
	case "lz4":
		return codecLZ4, true
	case "zstd":
		return codecZstd, true
	}
	return 0, false
}

// inflateMax is what a batch of this log may inflate to, in bytes.
func (c *LogConfig) inflateMax() int {
	if c.MaxInflatedBytes > 0 {
		return min(c.MaxInflatedBytes, inflateLimit)
	}
	return inflateLimit
}

// recoders inflate and compress the batches that cannot be stored as they came.
// There is one for each core, so what clients send costs no more memory than
// that many inflated batches; who finds none free waits. Append holds one only
// for this work, never while it waits for a log.
type recoders struct {
	free chan *packer
	raws sync.Pool // *[]byte: batches that were made, until they are written
}

func newRecoders() *recoders {
	r := &recoders{free: make(chan *packer, runtime.GOMAXPROCS(0))}
	for range cap(r.free) {
		r.free <- new(packer)
	}
	r.raws.New = func() any { return new([]byte) }
	return r
}

// put takes back what prepare gave. It may be nil.
func (r *recoders) put(raw *[]byte) {
	if raw != nil && cap(*raw) <= keptBuffer {
		r.raws.Put(raw)
	}
}

// prepare settles a client's batch for storing: it is checked (see
// Batch.check), its records too as far as the topic needs, its timestamp type
// and largest timestamp are set, and it is compressed anew if compression.type
// asks for another codec. Then b.Raw is *made, which goes back with put once it
// is written; else b.Raw is changed in place and made is nil.
func (r *recoders) prepare(b *Batch, cfg *LogConfig, nowMs int64) (made *[]byte, err error) {
	if err := b.check(cfg); err != nil {
		return nil, err
	}
	rules := b.rules(cfg, nowMs)
	target, recode := cfg.targetCodec()
	recode = recode && target != b.Codec()
	maxTimestamp := b.MaxTimestamp
	switch {
	case recode:
		made, maxTimestamp, err = r.recode(b, cfg, target, rules)
	case b.Codec() == codecNone:
		maxTimestamp, err = checkRecords(b.Raw[batchOverhead:], b.Records, rules)
	case b.mustInflate(rules):
		maxTimestamp, err = r.inspect(b, cfg, rules)
	}
	if err != nil {
		return nil, err
	}
	if !cfg.LogAppendTime {
		b.stampTime(false, maxTimestamp)
	}
	return made, nil
}

// inspect inflates the batch only to check its records.
func (r *recoders) inspect(b *Batch, cfg *LogConfig, rules rules) (maxTimestamp int64, err error) {
	p := <-r.free
	defer func() { r.free <- p }()
	err = inflateBatch(b, cfg, func(plain []byte) error {
		maxTimestamp, err = checkRecords(plain, b.Records, rules)
		return err
	})
	return maxTimestamp, err
}

// recode checks the records and makes the same batch in the codec target. What
// the producer set is kept: times, sequence, count, the transactional bit and
// each record as it is. Attributes without a meaning are cleared, as by Kafka's
// MemoryRecordsBuilder.
func (r *recoders) recode(b *Batch, cfg *LogConfig, target int, rules rules) (made *[]byte, maxTimestamp int64, err error) {
	p := <-r.free
	defer func() { r.free <- p }()
	made = r.raws.Get().(*[]byte)
	err = inflateBatch(b, cfg, func(plain []byte) error {
		if maxTimestamp, err = checkRecords(plain, b.Records, rules); err != nil {
			return err
		}
		if target == codecNone && batchOverhead+len(plain) > cfg.MaxBatchBytes {
			return tooLarge(batchOverhead+len(plain), cfg)
		}
		*made, err = p.pack(append((*made)[:0], b.Raw[:batchOverhead]...), target, cfg.level(target), plain)
		return err
	})
	if err == nil {
		err = fits(len(*made), cfg)
	}
	if err != nil {
		r.put(made)
		return nil, 0, err
	}
	raw := *made
	attributes := b.Attributes&(attrTransactional|attrLogAppendTime) | int16(target)
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(raw[atMaxTimestamp:], uint64(maxTimestamp))
	sealBatch(raw)
	b.Raw, b.BatchHeader = raw, decodeHeader(raw)
	return made, maxTimestamp, nil
}

// inflateBatch gives use the plain records. What does not inflate, or to more
// than the topic allows, is INVALID_RECORD: no client should send it again.
func inflateBatch(b *Batch, cfg *LogConfig, use func(plain []byte) error) error {
	err := inflate(b.Codec(), b.Raw[batchOverhead:], cfg.inflateMax(), use)
	var re *RecordError
	if err != nil && !errors.As(err, &re) {
		return batchError(ErrInvalidRecord, "records cannot be inflated: %v", err)
	}
	return err
}

// mustInflate says that the header does not tell enough of a compressed batch:
// keys of a compacted topic, a lower bound of times, a largest timestamp that
// cannot be true (old Sarama writes -1) or that must not be.
func (b *Batch) mustInflate(r rules) bool {
	return r.needKeys || b.MaxTimestamp < b.BaseTimestamp ||
		r.checkTime && (r.earliestMs != math.MinInt64 || !r.timeOK(b.BaseTimestamp) || !r.timeOK(b.MaxTimestamp))
}

// leastRecord is the size of a record without key, value and headers.
const leastRecord = 7

// check looks at what can be seen without the records.
func (b *Batch) check(cfg *LogConfig) error {
	if b.BaseOffset != 0 {
		return batchError(ErrInvalidRecord, "base offset %d is not 0", b.BaseOffset)
	}
	if err := fits(len(b.Raw), cfg); err != nil {
		return err
	}
	switch {
	case b.Records <= 0 || int64(b.Records) != int64(b.LastOffsetDelta)+1:
		return batchError(ErrInvalidRecord, "record count %d does not match last offset delta %d", b.Records, b.LastOffsetDelta)
	case int(b.Records) > cfg.inflateMax()/leastRecord:
		return batchError(ErrInvalidRecord, "a batch cannot hold %d records", b.Records)
	case b.Control():
		return batchError(ErrInvalidRecord, "clients may not write control records")
	case b.ProducerID >= 0 && b.BaseSequence < 0:
		return batchError(ErrInvalidRecord, "sequence %d of producer id %d is negative", b.BaseSequence, b.ProducerID)
	case b.Codec() > codecZstd:
		return batchError(ErrInvalidRecord, "%v", errUnknownCodec(b.Codec()))
	case !payloadBegins(b.Codec(), b.Raw[batchOverhead:]):
		return batchError(ErrInvalidRecord, "records do not begin as those of compression codec %d do", b.Codec())
	case cfg.LogAppendTime && b.Attributes&attrLogAppendTime != 0:
		return timeTypeError(b.Records)
	}
	return nil
}

// fits checks the size of a batch as it came, and again as it is stored.
func fits(size int, cfg *LogConfig) error {
	switch {
	case size > cfg.MaxBatchBytes:
		return tooLarge(size, cfg)
	case int64(size) > cfg.SegmentBytes:
		return batchError(ErrListTooLarge, "batch of %d bytes, segment.bytes is %d", size, cfg.SegmentBytes)
	}
	return nil
}

func tooLarge(size int, cfg *LogConfig) error {
	return batchError(ErrTooLarge, "batch of %d bytes, max.message.bytes is %d", size, cfg.MaxBatchBytes)
}

// level is the topic's level of a codec, in Kafka's numbers; 0 is the default.
func (c *LogConfig) level(codec int) int {
	switch codec {
	case codecGzip:
		return c.GzipLevel
	case codecLZ4:
		return c.LZ4Level
	case codecZstd:
		return c.ZstdLevel
	}
	return 0
}

// sealBatch sets length and CRC.
func sealBatch(raw []byte) {
	binary.BigEndian.PutUint32(raw[atLength:], uint32(len(raw)-lengthOverhead))
	binary.BigEndian.PutUint32(raw[atCRC:], checksum(raw))
}

func errUnknownCodec(codec int) error { return fmt.Errorf("compression codec %d is unknown", codec) }
