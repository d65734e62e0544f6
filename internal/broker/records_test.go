package broker

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
)

// Places in a record batch (DefaultRecordBatch) that tests change.
const (
	atBatchLength = 8
	atBatchCRC    = 17
	atBatchAttrs  = 21
	atRecordCount = 57
	batchHeader   = 61
)

// batchOf describes a record batch; its zero value is one plain record of now.
type batchOf struct {
	producer int64 // producer id + 1, so that 0 is none
	epoch    int16
	sequence int32
	attrs    int16
	codec    int16 // 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
	times    []int64
	records  []kmsg.Record // instead of times
	value    string
}

func (s batchOf) bytes(t testing.TB) []byte {
	t.Helper()
	if len(s.times) == 0 {
		s.times = []int64{time.Now().UnixMilli()}
	}
	base := s.times[0]
	if s.records == nil {
		for _, at := range s.times {
			s.records = append(s.records, kmsg.Record{TimestampDelta64: at - base, Value: []byte(s.value)})
		}
	}
	var plain []byte
	newest := base
	for i, r := range s.records {
		r.OffsetDelta = int32(i)
		newest = max(newest, base+r.TimestampDelta64)
		body := r.AppendTo(nil)[1:] // without the zero length
		plain = append(binary.AppendVarint(plain, int64(len(body))), body...)
	}
	n := len(s.records)
	batch := kmsg.RecordBatch{
		Magic: 2, Attributes: s.attrs | s.codec, LastOffsetDelta: int32(n - 1), FirstTimestamp: base, MaxTimestamp: newest,
		ProducerID: s.producer - 1, ProducerEpoch: s.epoch, FirstSequence: s.sequence, NumRecords: int32(n),
		Records: deflate(t, s.codec, plain),
	}
	if s.producer == 0 {
		batch.ProducerEpoch, batch.FirstSequence = -1, -1
	}
	return sealed(batch.AppendTo(nil))
}

func deflate(t testing.TB, codec int16, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	switch codec {
	case 1:
		w := gzip.NewWriter(&out)
		_, _ = w.Write(plain)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	case 2: // as Java clients write it: a header, then blocks behind their lengths
		out.WriteString("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
		block := snappy.Encode(nil, plain)
		out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
		out.Write(block)
		return out.Bytes()
	case 3:
		w := lz4.NewWriter(&out)
		_, _ = w.Write(plain)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	case codecZstd:
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(plain, nil)
	}
	return plain
}

// sealed writes length and CRC of one batch.
func sealed(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[atBatchLength:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[atBatchCRC:], crc32.Checksum(raw[atBatchAttrs:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// headersOf parses the batches of a fetch answer, each of which must be whole.
func headersOf(t testing.TB, raw []byte) []segstore.Batch {
	t.Helper()
	var all []segstore.Batch
	for len(raw) > 0 {
		if len(raw) < batchHeader {
			t.Fatalf("%d bytes are no batch", len(raw))
		}
		n := 12 + int(binary.BigEndian.Uint32(raw[atBatchLength:]))
		if n > len(raw) {
			t.Fatalf("a batch of %d bytes is cut off at %d", n, len(raw))
		}
		b, err := segstore.ParseBatch(raw[:n])
		if err != nil {
			t.Fatal(err)
		}
		all, raw = append(all, b), raw[n:]
	}
	return all
}

// produceTo is the records of one partition.
type produceTo struct {
	topic     string
	partition int32
	raw       []byte
}

// produceRequest asks with acks=all and 10 s; topics have name and id, of which the version sends one.
func (b *testBroker) produceRequest(to ...produceTo) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = acksAll, 10_000
	for _, p := range to {
		if len(r.Topics) == 0 || r.Topics[len(r.Topics)-1].Topic != p.topic {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.topic, b.idOf(p.topic)
			r.Topics = append(r.Topics, t)
		}
		t := &r.Topics[len(r.Topics)-1]
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = p.partition, p.raw
		t.Partitions = append(t.Partitions, part)
	}
	return r
}

// idOf is a topic's id, zero for an unknown one.
func (b *testBroker) idOf(topic string) [16]byte {
	if t, ok := b.catalog.Load().topicByName(topic); ok {
		return t.id
	}
	return [16]byte{}
}

// produce writes one batch with acks=all and returns its row.
func (b *testBroker) produce(version int16, topic string, partition int32, raw []byte) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	resp := ask[*kmsg.ProduceResponse](b, b.handleProduce, version, b.produceRequest(produceTo{topic, partition, raw}))
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		b.t.Fatalf("produce v%d answered %+v", version, resp)
	}
	return resp.Topics[0].Partitions[0]
}

// mustProduce is produce that succeeds; it returns the base offset.
func (b *testBroker) mustProduce(topic string, partition int32, s batchOf) int64 {
	b.t.Helper()
	row := b.produce(12, topic, partition, s.bytes(b.t))
	wantCode(b.t, "produce", row.ErrorCode, nil)
	return row.BaseOffset
}

// fetchFrom is a partition to read.
type fetchFrom struct {
	topic     string
	partition int32
	offset    int64
}

// fetchRequest asks without session and without waiting, for at most 1 MiB.
func (b *testBroker) fetchRequest(from ...fetchFrom) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.MaxBytes, r.MinBytes = 1<<20, 1
	for _, p := range from {
		if len(r.Topics) == 0 || r.Topics[len(r.Topics)-1].Topic != p.topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic, b.idOf(p.topic)
			r.Topics = append(r.Topics, t)
		}
		t := &r.Topics[len(r.Topics)-1]
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.partition, p.offset, 1<<20
		t.Partitions = append(t.Partitions, part)
	}
	return r
}

func (b *testBroker) fetch(version int16, r *kmsg.FetchRequest) *kmsg.FetchResponse {
	b.t.Helper()
	return ask[*kmsg.FetchResponse](b, b.handleFetch, version, r)
}

// fetchOne is a fetch of one partition, whose row it returns.
func (b *testBroker) fetchOne(version int16, r *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
	b.t.Helper()
	resp := b.fetch(version, r)
	wantCode(b.t, "fetch", resp.ErrorCode, nil)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		b.t.Fatalf("fetch v%d answered %+v", version, resp)
	}
	return resp.Topics[0].Partitions[0]
}

// openTransaction appends one record of a transaction that stays open, as a producer with a coordinator would.
func (b *testBroker) openTransaction(topic string, producer int64, at int64) {
	b.t.Helper()
	b.appendRaw(topic, batchOf{producer: producer + 1, attrs: 0x10, times: []int64{at}}.bytes(b.t))
}

// endTransaction appends its marker.
func (b *testBroker) endTransaction(topic string, producer int64, commit bool) {
	b.t.Helper()
	lead := b.leader(topic, 0)
	done, err := lead.log.AppendMarker(producer, 0, commit, 1, lead.row.Term)
	if err != nil {
		b.t.Fatal(err)
	}
	b.awaitHigh(lead, done.LastOffset+1)
}

// appendRaw writes one batch past the request handler.
func (b *testBroker) appendRaw(topic string, raw []byte) {
	b.t.Helper()
	lead := b.leader(topic, 0)
	batch, err := segstore.ParseBatch(raw)
	if err != nil {
		b.t.Fatal(err)
	}
	done, err := lead.log.AppendLeader(batch, lead.row.Term)
	if err != nil {
		b.t.Fatal(err)
	}
	b.awaitHigh(lead, done.LastOffset+1)
}

func (b *testBroker) awaitHigh(lead *leadership, offset int64) {
	b.t.Helper()
	woken := make(chan struct{})
	defer lead.log.Watch(segstore.BoundHigh, offset, func() { close(woken) })()
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		b.t.Fatal("the high watermark does not move")
	}
}
