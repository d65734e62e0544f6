package broker

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Each batch is refused with its code, offsets of -1 and a message, and leaves nothing in the log.
func TestRefusedBatches(t *testing.T) {
	b := newTestBroker(t)
	b.create("plain", 1, nil)
	b.create("small", 1, map[string]string{"max.message.bytes": "1000"})
	b.create("segment", 1, map[string]string{"segment.bytes": "1048576", "max.message.bytes": "3000000"})
	b.create("compact", 1, map[string]string{"cleanup.policy": "compact"})
	hour := time.Hour.Milliseconds()
	now := time.Now().UnixMilli()
	good := batchOf{value: "value"}
	three := batchOf{times: []int64{now, now, now}}
	raw := func(s batchOf, change func(raw []byte) []byte) []byte { return change(s.bytes(t)) }
	as := func(magic byte) []byte {
		return raw(good, func(raw []byte) []byte { raw[16] = magic; return sealed(raw) })
	}
	count := func(n int32) []byte {
		return raw(three, func(raw []byte) []byte {
			binary.BigEndian.PutUint32(raw[atRecordCount:], uint32(n))
			return sealed(raw)
		})
	}
	lastDelta := func(n int32) []byte {
		return raw(three, func(raw []byte) []byte { binary.BigEndian.PutUint32(raw[23:], uint32(n)); return sealed(raw) })
	}
	length := func(n int32) []byte {
		return raw(good, func(raw []byte) []byte { binary.BigEndian.PutUint32(raw[atBatchLength:], uint32(n)); return raw })
	}
	for _, c := range []struct {
		name  string
		topic string
		raw   []byte
		want  *kerr.Error
		index int32 // of record_errors, -1 none
	}{
		// B-14 is in TestZstdNeedsVersion7, B-19 and B-17 below.
		{"larger than max.message.bytes", "small", batchOf{value: strings.Repeat("x", 1000)}.bytes(t), kerr.MessageTooLarge, -1},                                                           // B-16
		{"compressed but still larger", "small", batchOf{codec: 1, value: string(noise(1200))}.bytes(t), kerr.MessageTooLarge, -1},                                                         // B-16
		{"larger than a segment", "segment", batchOf{value: strings.Repeat("x", 1048576)}.bytes(t), kerr.RecordListTooLarge, -1},                                                           // B-16
		{"over an hour ahead", "plain", batchOf{times: []int64{now, now + hour + 60_000}}.bytes(t), kerr.InvalidTimestamp, 1},                                                              // B-21
		{"nanoseconds", "plain", batchOf{times: []int64{now * 1e6}}.bytes(t), kerr.InvalidTimestamp, 0},                                                                                    // B-21
		{"compressed, over an hour ahead", "plain", batchOf{codec: 1, times: []int64{now + hour + 60_000}}.bytes(t), kerr.InvalidTimestamp, -1},                                            // B-21
		{"no key on a compacted topic", "compact", batchOf{records: []kmsg.Record{{Key: []byte("k")}, {}}}.bytes(t), kerr.InvalidRecord, 1},                                                // B-23
		{"no key on a compacted topic, compressed", "compact", batchOf{codec: codecZstd, records: []kmsg.Record{{Key: []byte("k")}, {Key: []byte{}}, {}}}.bytes(t), kerr.InvalidRecord, 2}, // B-23
		{"null header key", "plain", raw(good, func([]byte) []byte { return nullHeaderKey(t) }), kerr.InvalidRecord, 0},                                                                    // B-24
		{"bad CRC", "plain", raw(good, func(raw []byte) []byte { raw[len(raw)-1] ^= 1; return raw }), kerr.CorruptMessage, -1},                                                             // B-26
		{"length too small", "plain", length(20), kerr.CorruptMessage, -1},                                                                                                                 // B-26
		{"length negative", "plain", length(-5), kerr.CorruptMessage, -1},                                                                                                                  // B-26
		{"length beyond the field", "plain", length(1 << 30), kerr.InvalidRecord, -1},                                                                                                      // B-26
		{"truncated", "plain", raw(good, func(raw []byte) []byte { return raw[:len(raw)-3] }), kerr.InvalidRecord, -1},                                                                     // B-26
		{"two batches", "plain", raw(good, func(raw []byte) []byte { return append(raw, good.bytes(t)...) }), kerr.InvalidRecord, -1},                                                      // B-26
		{"a few bytes", "plain", []byte{1, 2, 3}, kerr.InvalidRecord, -1},                                                                                                                  // B-26
		{"no bytes", "plain", []byte{}, kerr.InvalidRecord, -1},                                                                                                                            // B-26
		{"null records", "plain", nil, kerr.InvalidRecord, -1},                                                                                                                             // B-26
		{"base offset not 0", "plain", raw(good, func(raw []byte) []byte { raw[7] = 1; return raw }), kerr.InvalidRecord, -1},                                                              // B-26
		{"count too high", "plain", count(4), kerr.InvalidRecord, -1},                                                                                                                      // B-26
		{"count too low", "plain", count(2), kerr.InvalidRecord, -1},                                                                                                                       // B-26
		{"count negative", "plain", count(-1), kerr.InvalidRecord, -1},                                                                                                                     // B-26
		{"count giant", "plain", count(1<<31 - 1), kerr.InvalidRecord, -1},                                                                                                                 // B-26
		{"count zero", "plain", count(0), kerr.InvalidRecord, -1},                                                                                                                          // B-26
		{"last offset delta too high", "plain", lastDelta(3), kerr.InvalidRecord, -1},                                                                                                      // B-26
		{"last offset delta negative", "plain", lastDelta(-1), kerr.InvalidRecord, -1},                                                                                                     // B-26
		{"unknown codec", "plain", raw(good, func(raw []byte) []byte { raw[22] |= 5; return sealed(raw) }), kerr.InvalidRecord, -1},                                                        // B-26
		{"a control batch", "plain", batchOf{attrs: 0x20}.bytes(t), kerr.InvalidRecord, -1},                                                                                                // B-27
		{"a transactional batch", "plain", batchOf{producer: 1, attrs: 0x10}.bytes(t), kerr.TransactionalIDAuthorizationFailed, -1},                                                        // B-27
		{"magic 0", "plain", as(0), kerr.UnsupportedForMessageFormat, -1},                                                                                                                  // B-28
		{"magic 1", "plain", as(1), kerr.UnsupportedForMessageFormat, -1},                                                                                                                  // B-28
		{"magic 3", "plain", as(3), kerr.CorruptMessage, -1},                                                                                                                               // B-28
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, version := range []int16{7, 8, 13} {
				row := b.produce(version, c.topic, 0, c.raw)
				wantCode(t, "produce", row.ErrorCode, c.want)
				if row.BaseOffset != -1 || row.LogAppendTime != -1 || row.LogStartOffset != -1 {
					t.Errorf("v%d: offsets %+v, want -1", version, row)
				}
				if version < 8 {
					continue
				}
				if row.ErrorMessage == nil || *row.ErrorMessage == "" {
					t.Errorf("v%d: no message", version)
				}
				if (c.index < 0) != (len(row.ErrorRecords) == 0) {
					t.Errorf("v%d: record errors %+v, want index %d", version, row.ErrorRecords, c.index)
				} else if c.index >= 0 && (row.ErrorRecords[0].RelativeOffset != c.index || row.ErrorRecords[0].ErrorMessage == nil) {
					t.Errorf("v%d: record error %+v, want index %d and a message", version, row.ErrorRecords[0], c.index)
				}
			}
			if end := b.leader(c.topic, 0).log.Offsets().End; end != 0 {
				t.Fatalf("the log ends at %d, want 0", end)
			}
		})
	}
}

// noise is bytes that do not compress.
func noise(n int) []byte {
	out := make([]byte, n)
	rng := testRand(3)
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

// nullHeaderKey is a batch of one record whose header has a null key.
func nullHeaderKey(t *testing.T) []byte {
	raw := batchOf{records: []kmsg.Record{{Headers: []kmsg.Header{{Key: "", Value: []byte("v")}}}}}.bytes(t)
	// The record ends with header count 1, key length 0, value length 1, "v".
	raw[len(raw)-3] = 1 // zigzag -1
	return sealed(raw)
}

// B-14: zstd needs version 7.
func TestZstdNeedsVersion7(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for version := int16(3); version <= 13; version++ {
		want := kerr.UnsupportedCompressionType
		if version >= 7 {
			want = nil
		}
		wantCode(t, "zstd", b.produce(version, "a", 0, batchOf{codec: codecZstd}.bytes(t)).ErrorCode, want)
		wantCode(t, "gzip", b.produce(version, "a", 0, batchOf{codec: 1}.bytes(t)).ErrorCode, nil)
	}
}

// B-21: LogAppendTime ignores what the records say; a producer may not claim it.
func TestLogAppendTimeIgnoresTimes(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	wantCode(t, "far ahead", b.produce(9, "a", 0, batchOf{times: []int64{time.Now().UnixMilli() * 1000}}.bytes(t)).ErrorCode, nil)
	wantCode(t, "type bit set by a client", b.produce(9, "a", 0, batchOf{attrs: 8}.bytes(t)).ErrorCode, kerr.InvalidTimestamp)
}

// B-21: message.timestamp.before.max.ms.
func TestTimestampsTooOld(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, map[string]string{"message.timestamp.before.max.ms": "1000"})
	row := b.produce(8, "a", 0, batchOf{times: []int64{time.Now().UnixMilli(), time.Now().UnixMilli() - 60_000}}.bytes(t))
	wantCode(t, "a minute old", row.ErrorCode, kerr.InvalidTimestamp)
	if len(row.ErrorRecords) != 1 || row.ErrorRecords[0].RelativeOffset != 1 {
		t.Errorf("record errors %+v, want index 1", row.ErrorRecords)
	}
}

// B-19: unknown acks are refused for each partition, before anything else.
func TestInvalidAcks(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	for _, acks := range []int16{2, -2, 100} {
		r := b.produceRequest(produceTo{"a", 0, batchOf{}.bytes(t)}, produceTo{"a", 1, batchOf{}.bytes(t)})
		r.Acks = acks
		for _, row := range ask[*kmsg.ProduceResponse](b, b.handleProduce, 9, r).Topics[0].Partitions {
			wantCode(t, "acks", row.ErrorCode, kerr.InvalidRequiredAcks)
		}
	}
	if end := b.leader("a", 0).log.Offsets().End; end != 0 {
		t.Errorf("the log ends at %d", end)
	}
}

// B-27: a transactional batch needs a transactional id.
func TestTransactionalBatchWithoutID(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for version := int16(3); version <= 13; version++ {
		r := b.produceRequest(produceTo{"a", 0, batchOf{producer: 1, attrs: 0x10}.bytes(t)})
		row := ask[*kmsg.ProduceResponse](b, b.handleProduce, version, r).Topics[0].Partitions[0]
		wantCode(t, "no transactional id", row.ErrorCode, kerr.TransactionalIDAuthorizationFailed)
	}
}
