package chaos

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is a record batch as producers make it.
type batch struct {
	producerID    int64
	epoch         int16
	sequence      int32
	transactional bool
	values        [][]byte
}

const (
	batchBodyBytes   = 49 // of the header, behind its length
	crcAt            = 17
	attributesAt     = 21
	transactionalBit = 1 << 4
	produceTimeoutMs = 10_000
)

func (b batch) encode() []byte {
	now := time.Now().UnixMilli()
	rb := kmsg.RecordBatch{Magic: 2, PartitionLeaderEpoch: -1, LastOffsetDelta: int32(len(b.values) - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: b.producerID, ProducerEpoch: b.epoch, FirstSequence: b.sequence, NumRecords: int32(len(b.values))}
	if b.transactional {
		rb.Attributes |= transactionalBit
	}
	for i, v := range b.values {
		body := []byte{0, 0} // attributes, timestamp delta
		body = binary.AppendVarint(body, int64(i))
		body = binary.AppendVarint(body, -1) // no key
		body = binary.AppendVarint(body, int64(len(v)))
		body = append(body, v...)
		body = binary.AppendVarint(body, 0) // no headers
		rb.Records = append(binary.AppendVarint(rb.Records, int64(len(body))), body...)
	}
	rb.Length = int32(batchBodyBytes + len(rb.Records))
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[attributesAt:], castagnoli))
	return raw
}

// produceRequest sends one batch to one partition.
func produceRequest(version int16, transactional, topic string, partition int32, raw []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, -1, produceTimeoutMs
	if transactional != "" {
		r.TransactionID = &transactional
	}
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}
