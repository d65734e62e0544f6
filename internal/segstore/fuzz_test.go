package segstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"
)

// FuzzBatch: whatever a client sends is taken or refused, without a panic or a
// big allocation; what is taken, also into another codec, reads back as the same
// records.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{}, false, 0)
	for codec := codecNone; codec <= codecZstd; codec++ {
		f.Add(inCodec(f, codec, plainBatch(BatchHeader{ProducerID: 3, BaseSequence: 1}, 3, 20, 5)), true, codec)
	}
	f.Add(buildMarker(1, 2, true, 3, 4).Raw, false, 1)
	types := append([]string{"producer"}, compressionTypes...)
	recoders := newRecoders()
	f.Fuzz(func(t *testing.T, raw []byte, compact bool, target int) {
		raw = bytes.Clone(raw)
		if len(raw) > batchOverhead {
			fixCRC(raw) // else the CRC hides everything behind it
		}
		b, err := ParseBatch(raw)
		if err != nil {
			wantRecordError(t, err)
			return
		}
		cfg := testConfig()
		cfg.Compact, cfg.Compression, cfg.MaxInflatedBytes = compact, types[uint(target)%uint(len(types))], 4<<20
		sent := b
		made, err := recoders.prepare(&b, &cfg, 1000)
		if err != nil {
			wantRecordError(t, err)
			return
		}
		b.stampPlace(77, 3)
		again, err := ParseBatch(b.Raw)
		if err != nil || again.BaseOffset != 77 || again.Term != 3 {
			t.Fatalf("stamped batch: %+v %v", again.BatchHeader, err)
		}
		if made != nil && !bytes.Equal(plainOf(t, &b), plainOf(t, &sent)) {
			t.Fatal("recompression changed the records")
		}
		if b.Codec() == codecNone {
			n := int32(0)
			for it := (recordIter{buf: b.Raw[batchOverhead:], left: b.Records}); it.next(); n++ {
			}
			if n != b.Records {
				t.Fatalf("%d records of %d", n, b.Records)
			}
		}
		recoders.put(made)
	})
}

func wantRecordError(t *testing.T, err error) {
	t.Helper()
	var re *RecordError
	if !errors.As(err, &re) {
		t.Fatalf("%v is no RecordError", err)
	}
}

// FuzzRecords: records of any content are walked to their end or to a fault.
func FuzzRecords(f *testing.F) {
	f.Add(plainBatch(noProducer, 3, 20, 5)[batchOverhead:], 3)
	f.Fuzz(func(t *testing.T, records []byte, count int) {
		if _, err := checkRecords(records, int32(count), rules{needKeys: true, checkTime: true, latestMs: 1000}); err != nil {
			wantRecordError(t, err)
			return
		}
		if count > len(records)/leastRecord {
			t.Fatalf("%d records in %d bytes", count, len(records))
		}
	})
}

// FuzzInflate: bytes of any content inflate to no more than the limit.
func FuzzInflate(f *testing.F) {
	for codec := codecGzip; codec <= codecZstd; codec++ {
		f.Add(codec, inCodec(f, codec, plainBatch(noProducer, 3, 50, 5))[batchOverhead:])
	}
	f.Fuzz(func(t *testing.T, codec int, data []byte) {
		const limit = 256 << 10
		_ = inflate(codec, data, limit, func(plain []byte) error {
			if codec == codecNone {
				return nil
			}
			if len(plain) > limit {
				t.Fatalf("%d bytes", len(plain))
			}
			// Frames to skip are fine for the decoder of lz4, not for Kafka's.
			if len(plain) > 0 && codec != codecLZ4 && !payloadBegins(codec, data) {
				t.Fatalf("codec %d: %x inflates and does not begin well", codec, data[:min(len(data), 8)])
			}
			return nil
		})
	})
}

// FuzzSnapshot: what decodes encodes to the same state.
func FuzzSnapshot(f *testing.F) {
	p := newProducer()
	for i := range int64(7) {
		p.apply(&BatchHeader{BaseOffset: i, BaseSequence: int32(i), Attributes: attrTransactional, MaxTimestamp: 9}, 5)
	}
	f.Add(encodeSnapshot(map[int64]*producer{1: p, 2: newProducer()}))
	f.Add(encodeSnapshot(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 6 {
			data = bytes.Clone(data)
			fixSnapshotCRC(data)
		}
		byID, err := decodeSnapshot(data, 5)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeSnapshot(encodeSnapshot(byID), 5)
		if err != nil {
			t.Fatal(err)
		}
		for id, p := range byID {
			q := again[id]
			if q == nil || q.epoch != p.epoch || q.txnFirst != p.txnFirst || q.n != p.n || q.lastSequence() != p.lastSequence() {
				t.Fatalf("producer %d: %+v, was %+v", id, q, p)
			}
		}
	})
}

func fixSnapshotCRC(data []byte) {
	binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], castagnoli))
}

// FuzzIndexes: index files of any content are found sane or not; lookups in
// sane ones stay inside the file.
func FuzzIndexes(f *testing.F) {
	f.Add([]byte(offsetIndex(nil).add(3, 0).add(9, 70)), []byte(timeIndex(nil).add(5, 3).add(8, 9)), int64(9))
	f.Add([]byte{1, 2, 3}, []byte{}, int64(0))
	f.Fuzz(func(t *testing.T, offsets, times []byte, at int64) {
		if x := offsetIndex(offsets); x.sane(1 << 20) {
			for _, pos := range []int64{x.atOffset(at), x.atPosition(at)} {
				if pos < 0 || pos >= 1<<20 {
					t.Fatalf("position %d", pos)
				}
			}
		}
		if x := timeIndex(times); x.sane(1 << 20) {
			if rel, ok := x.before(at); ok && (rel < 0 || rel >= 1<<20) {
				t.Fatalf("relative offset %d", rel)
			}
		}
		list, err := decodeAborted(times, 0)
		if err == nil && !bytes.Equal(encodeAborted(list), times) && len(times) > 0 {
			t.Fatal("aborted list changed")
		}
	})
}

// FuzzCheckpoints: the text files decode to what they encode, or to ErrCorrupt.
func FuzzCheckpoints(f *testing.F) {
	f.Add(encodeOffsets(map[partitionName]int64{{"t", 1}: 5, {"a.b-c", 0}: 7}))
	f.Add(encodeTerms(terms{{1, 0}, {4, 9}}))
	f.Add(encodePartitionMetadata(TopicID{1, 2, 3}))
	f.Add(encodeMeta(MetaProperties{ClusterID: "c", NodeID: 1, DirectoryID: "d"}))
	f.Add(encodeClean(9))
	f.Add([]byte("0\n99999999999\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if offsets, err := decodeOffsets(data); err == nil {
			again, err := decodeOffsets(encodeOffsets(offsets))
			if err != nil || len(again) != len(offsets) {
				t.Fatalf("%v %v", again, err)
			}
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if list, err := decodeTerms(data); err == nil {
			if again, err := decodeTerms(encodeTerms(list)); err != nil || !reflect.DeepEqual(again, list) {
				t.Fatalf("%v %v", again, err)
			}
		}
		if id, err := decodePartitionMetadata(data); err == nil {
			if again, err := decodePartitionMetadata(encodePartitionMetadata(id)); err != nil || again != id {
				t.Fatal(err)
			}
		}
		if m, err := decodeMeta(data); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(m, err)
		}
		decodeClean(data)
	})
}
