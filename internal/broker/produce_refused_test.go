package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noise is bytes that do not compress.
func noise(n int) []byte {
	out := make([]byte, n)
	rng := testRand(3)
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
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
