package broker

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every version stores a batch and answers the fields that it has.
func TestProduceInEveryVersion(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for version := int16(3); version <= 13; version++ {
		resp := ask[*kmsg.ProduceResponse](b, b.handleProduce, version, b.produceRequest(produceTo{"a", 0, batchOf{times: []int64{1, 2}}.bytes(t)}))
		topic := resp.Topics[0]
		if (version < 13) != (topic.Topic == "a") || (version >= 13) != (topic.TopicID == b.idOf("a")) {
			t.Errorf("v%d: the topic is %q %x", version, topic.Topic, topic.TopicID)
		}
		row, want := topic.Partitions[0], int64(version-3)*2
		if row.ErrorCode != 0 || row.BaseOffset != want || row.LogAppendTime != -1 || row.ErrorMessage != nil || len(row.ErrorRecords) > 0 {
			t.Errorf("v%d: %+v, want base offset %d", version, row, want)
		}
		if version >= 5 && row.LogStartOffset != 0 {
			t.Errorf("v%d: log start %d", version, row.LogStartOffset)
		}
	}
}

// B-11: one row for each partition of a topic, in the order asked; other topics and errors stand beside them.
func TestProduceToSeveralPartitions(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 3, nil)
	b.create("b", 1, nil)
	raw := func() []byte { return batchOf{}.bytes(t) }
	for _, version := range []int16{3, 9} {
		resp := ask[*kmsg.ProduceResponse](b, b.handleProduce, version, b.produceRequest(
			produceTo{"a", 2, raw()}, produceTo{"a", 0, raw()}, produceTo{"a", 1, raw()}, produceTo{"a", 3, raw()},
			produceTo{"b", 0, raw()}, produceTo{"none", 0, raw()}))
		var got []int32
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, p.Partition, int32(p.ErrorCode))
			}
		}
		want := []int32{2, 0, 0, 0, 1, 0, 3, 3, 0, 0, 0, 3}
		if len(got) != len(want) {
			t.Fatalf("v%d: partitions and codes %v, want %v", version, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("v%d: partitions and codes %v, want %v", version, got, want)
			}
		}
	}
	resp := ask[*kmsg.ProduceResponse](b, b.handleProduce, 13, b.produceRequest(produceTo{"none", 0, raw()}))
	wantCode(t, "an unknown id", resp.Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicID)
}

// B-01, B-02, B-03, B-04, B-06 and the corrected rows: what a producer id may send after what.
func TestIdempotentProducer(t *testing.T) {
	const newest = 1<<31 - 1
	type step struct {
		name            string
		epoch           int16
		sequence, n     int32
		want            *kerr.Error
		offset          int64 // of the answer
		unknownProducer bool  // a producer id of its own
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"the last five batches are answered again as they were", []step{
			{"1", 0, 0, 2, nil, 0, false}, {"2", 0, 2, 1, nil, 2, false}, {"3", 0, 3, 1, nil, 3, false}, {"4", 0, 4, 1, nil, 4, false}, {"5", 0, 5, 3, nil, 5, false},
			{"1 again", 0, 0, 2, nil, 0, false}, {"5 again", 0, 5, 3, nil, 5, false}, {"3 again", 0, 3, 1, nil, 3, false},
			{"6", 0, 8, 1, nil, 8, false}, {"2 again", 0, 2, 1, nil, 2, false},
			{"1 is too old", 0, 0, 2, kerr.OutOfOrderSequenceNumber, -1, false},
			{"a range that overlaps in part", 0, 5, 2, kerr.OutOfOrderSequenceNumber, -1, false},
		}},
		{"a gap", []step{
			{"first", 0, 0, 1, nil, 0, false}, {"gap", 0, 2, 1, kerr.OutOfOrderSequenceNumber, -1, false}, {"no gap", 0, 1, 1, nil, 1, false},
		}},
		{"the sequence wraps to 0, also inside a batch", []step{
			{"an unknown producer begins anywhere", 0, newest - 1, 1, nil, 0, false}, {"wraps inside", 0, newest, 3, nil, 1, false},
			{"goes on", 0, 2, 1, nil, 4, false}, {"wrapped batch again", 0, newest, 3, nil, 1, false},
		}},
		{"the sequence wraps between batches", []step{
			{"the last", 0, newest, 1, nil, 0, false}, {"0", 0, 0, 1, nil, 1, false}, {"not 1 again", 0, 2, 1, kerr.OutOfOrderSequenceNumber, -1, false},
		}},
		{"a negative sequence", []step{{"negative", 0, -2, 1, kerr.InvalidRecord, -1, false}}},
		{"a new epoch begins at 0", []step{
			{"epoch 3", 3, 0, 1, nil, 0, false}, {"epoch 4 in the middle", 4, 1, 1, kerr.OutOfOrderSequenceNumber, -1, false},
			{"epoch 4", 4, 0, 1, nil, 1, false}, {"epoch 3 again", 3, 1, 1, kerr.InvalidProducerEpoch, -1, false},
			{"the old epoch's batch is no duplicate", 3, 0, 1, kerr.InvalidProducerEpoch, -1, false},
			{"another producer", 0, 0, 1, nil, 2, true},
		}},
	} {
		for _, version := range []int16{3, 12} {
			t.Run(c.name, func(t *testing.T) {
				b := newTestBroker(t)
				b.create("a", 1, nil)
				for _, s := range c.steps {
					id := int64(7)
					if s.unknownProducer {
						id = 8
					}
					batch := batchOf{producer: id + 1, epoch: s.epoch, sequence: s.sequence, times: make([]int64, s.n)}
					row := b.produce(version, "a", 0, batch.bytes(t))
					wantCode(t, s.name, row.ErrorCode, s.want)
					if row.BaseOffset != s.offset {
						t.Errorf("%s: base offset %d, want %d", s.name, row.BaseOffset, s.offset)
					}
				}
			})
		}
	}
}

// B-01: a duplicate has the append time of its original, and nothing is stored.
func TestDuplicateUnderLogAppendTime(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	batch := batchOf{producer: 1, times: []int64{5, 6}}
	before := time.Now().UnixMilli()
	first := b.produce(9, "a", 0, batch.bytes(t))
	after := time.Now().UnixMilli()
	if first.ErrorCode != 0 || first.LogAppendTime < before || first.LogAppendTime > after {
		t.Fatalf("%+v, want an append time between %d and %d", first, before, after)
	}
	for time.Now().UnixMilli() == after { // so that a new append time would show
		time.Sleep(time.Millisecond)
	}
	again := b.produce(9, "a", 0, batch.bytes(t))
	if again.ErrorCode != 0 || again.BaseOffset != first.BaseOffset || again.LogAppendTime != first.LogAppendTime {
		t.Errorf("the duplicate is answered %+v, its original %+v", again, first)
	}
	if end := b.leader("a", 0).log.Offsets().End; end != 2 {
		t.Errorf("the log ends at %d, want 2", end)
	}
	// The stored batch says so: type bit, the append time as the largest, and a CRC that fits.
	stored := headersOf(t, b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0})).RecordBatches)[0]
	if stored.Attributes&8 == 0 || stored.MaxTimestamp != first.LogAppendTime || stored.BaseTimestamp != 5 {
		t.Errorf("stored as %+v", stored.BatchHeader)
	}
}

// B-08: what the window knows survives a restart, after a clean stop and after a power cut.
func TestDuplicatesAreKnownAfterARestart(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	batch := batchOf{producer: 1, times: []int64{1, 2, 3}}
	b.mustProduce("a", 0, batch)
	for round, clean := range []bool{true, false} {
		if clean {
			if err := b.segments.Close(true, b.owner.Incarnation); err != nil {
				t.Fatal(err)
			}
		} else {
			b.disk = b.disk.CrashCopy(testRand(1))
		}
		b = startTestBroker(t, b.disk, b.store)
		if at := b.mustProduce("a", 0, batch); at != 0 {
			t.Fatalf("round %d: the batch was stored again at %d", round, at)
		}
	}
	wantCode(t, "a gap", b.produce(9, "a", 0, batchOf{producer: 1, sequence: 4}.bytes(t)).ErrorCode, kerr.OutOfOrderSequenceNumber)
}

// B-07, B-22: odd headers of real clients are taken, and times are stored as they came.
func TestOddButLegalBatches(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	now := time.Now().UnixMilli()
	saramas := batchOf{times: []int64{now, now + 5, now + 2}}.bytes(t)
	binary.BigEndian.PutUint64(saramas[35:], ^uint64(0)) // largest timestamp -1
	binary.BigEndian.PutUint32(saramas[12:], 0)          // partition leader epoch 0
	sealed(saramas)
	at := b.produce(3, "a", 0, saramas)
	wantCode(t, "sarama's header", at.ErrorCode, nil)
	stored := headersOf(t, b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0})).RecordBatches)[0]
	if term := b.leader("a", 0).row.Term; stored.MaxTimestamp != now+5 || stored.Term != term {
		t.Errorf("stored with largest time %d and leader epoch %d, want %d and %d", stored.MaxTimestamp, stored.Term, now+5, term)
	}
	for _, ts := range []int64{0, -1, 1} {
		offset := b.mustProduce("a", 0, batchOf{times: []int64{ts}})
		stored := headersOf(t, b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, offset})).RecordBatches)[0]
		if stored.BaseTimestamp != ts || stored.MaxTimestamp != ts {
			t.Errorf("time %d is stored as %d and %d", ts, stored.BaseTimestamp, stored.MaxTimestamp)
		}
	}
}

// B-12, B-13: a batch is stored and served byte for byte, but for base offset and leader epoch, whatever its codec.
func TestStoredAsSent(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	headers := make([]kmsg.Header, 0, 120)
	for i := range 120 { // B-24: order, repeated keys, null and empty
		headers = append(headers, kmsg.Header{Key: []string{"k", "", "other"}[i%3], Value: [][]byte{nil, {}, {byte(i)}}[i%3]})
	}
	records := []kmsg.Record{{Key: nil, Value: nil}, {Key: []byte{}, Value: []byte{}, Headers: headers}, {Key: []byte("k"), Value: []byte("v")}}
	for _, codec := range []int16{0, 1, codecZstd} {
		sent := batchOf{codec: codec, records: records}.bytes(t)
		row := b.produce(9, "a", 0, bytes.Clone(sent))
		wantCode(t, "produce", row.ErrorCode, nil)
		got := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, row.BaseOffset})).RecordBatches
		if len(got) != len(sent) || !bytes.Equal(got[16:], sent[16:]) || !bytes.Equal(got[8:12], sent[8:12]) {
			t.Errorf("codec %d: sent and stored differ\n%x\n%x", codec, sent, got)
		}
	}
}

// A timeout of zero is no timeout: Kafka answers it with success.
func TestProduceWithoutATimeout(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for i, timeout := range []int32{0, -5} {
		for j, acks := range []int16{acksLeader, acksAll} {
			r := b.produceRequest(produceTo{"a", 0, batchOf{}.bytes(t)})
			r.TimeoutMillis, r.Acks = timeout, acks
			row := ask[*kmsg.ProduceResponse](b, b.handleProduce, 9, r).Topics[0].Partitions[0]
			if row.ErrorCode != 0 || row.BaseOffset != int64(2*i+j) {
				t.Errorf("timeout %d, acks %d: %+v", timeout, acks, row)
			}
		}
	}
}

// min.insync.replicas above the number of replicas is capped by it, as in Kafka 4.4.
func TestMinInsyncReplicasIsCappedByReplicas(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, map[string]string{"min.insync.replicas": "2"})
	wantCode(t, "acks=all", b.produce(9, "a", 0, batchOf{}.bytes(t)).ErrorCode, nil)
}
