package segstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

var compressionTypes = []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"}

// inCodec is a batch of n records in a codec, as clients of its kind write it.
func inCodec(t testing.TB, codec int, raw []byte) []byte {
	if codec == codecNone {
		return raw
	}
	return deflate(t, codec, raw, true)
}

func plainOf(t testing.TB, b *Batch) (plain []byte) {
	t.Helper()
	err := inflate(b.Codec(), b.Raw[batchOverhead:], inflateLimit, func(p []byte) error { plain = bytes.Clone(p); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestRecode: from each codec to each, under CreateTime and LogAppendTime: the
// records are the same bytes, the header keeps what the producer set, and a
// batch that has the codec already is stored as it came.
func TestRecode(t *testing.T) {
	const now = 1_700_000_000_000
	for source := range compressionTypes {
		for target, name := range compressionTypes {
			for _, logAppend := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s to %s, LogAppendTime %v", compressionTypes[source], name, logAppend), func(t *testing.T) {
					h := BatchHeader{ProducerID: 77, ProducerEpoch: 3, BaseSequence: 41, Attributes: attrTransactional}
					sent := inCodec(t, source, plainBatch(h, 200, 500, now))
					want, err := ParseBatch(bytes.Clone(sent))
					if err != nil {
						t.Fatal(err)
					}
					cfg := testConfig()
					cfg.Compression, cfg.LogAppendTime = name, logAppend
					got, err := validated(t, bytes.Clone(sent), cfg, now)
					if err != nil {
						t.Fatal(err)
					}
					if source == target && !bytes.Equal(got.Raw, sent) {
						t.Error("the batch has its codec and was changed")
					}
					if _, err := ParseBatch(got.Raw); err != nil {
						t.Fatal(err)
					}
					if got.Codec() != target || !bytes.Equal(plainOf(t, &got), plainOf(t, &want)) {
						t.Fatalf("codec %d, or the records are not the same", got.Codec())
					}
					got.Raw, got.CRC, got.Length, got.Attributes = want.Raw, want.CRC, want.Length, got.Attributes&^attrCodecMask|int16(source)
					if got.BatchHeader != want.BatchHeader {
						t.Errorf("header %+v, want %+v", got.BatchHeader, want.BatchHeader)
					}
				})
			}
		}
	}
}

// TestRecodeLevels: every level that Kafka allows gives records that read back.
func TestRecodeLevels(t *testing.T) {
	records := plainBatch(noProducer, 100, 100, 7)[batchOverhead:]
	var p packer
	for codec, levels := range map[int][]int{codecGzip: {-1, 0, 1, 5, 9}, codecLZ4: {0, 1, 5, 8, 9, 10, 17}, codecZstd: {-131072, -1, 0, 1, 3, 9, 22}} {
		for _, level := range levels {
			packed, err := p.pack(nil, codec, level, records)
			if err != nil {
				t.Errorf("codec %d, level %d: %v", codec, level, err)
				continue
			}
			err = inflate(codec, packed, inflateLimit, func(plain []byte) error {
				if !bytes.Equal(plain, records) {
					return errors.New("other records")
				}
				return nil
			})
			if err != nil {
				t.Errorf("codec %d, level %d: %v", codec, level, err)
			}
		}
	}
}

// TestRecodeSizes: max.message.bytes and segment.bytes bound what came and what
// is stored (B-16).
func TestRecodeSizes(t *testing.T) {
	noisy := func() []byte {
		raw := plainBatch(noProducer, 1, 2000, 7)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := len(raw) - 1900; i < len(raw)-1; i++ {
			raw[i] = byte(rng.Uint32())
		}
		return fixCRC(raw)
	}
	smooth := func() []byte { return plainBatch(noProducer, 1, 2000, 7) }
	for _, c := range []struct {
		name         string
		raw          []byte
		to           string
		max, segment int
		want         error
	}{
		{"grows when it is inflated", deflate(t, codecGzip, smooth(), false), "uncompressed", 1000, 1 << 20, ErrTooLarge},
		{"grows above a segment", deflate(t, codecGzip, smooth(), false), "uncompressed", 1 << 20, 1000, ErrListTooLarge},
		{"is too large before it shrinks", smooth(), "gzip", 1000, 1 << 20, ErrTooLarge},
		{"grows when it is compressed", noisy(), "gzip", len(noisy()), 1 << 20, ErrTooLarge},
		{"fits exactly", deflate(t, codecGzip, smooth(), false), "uncompressed", len(smooth()), 1 << 20, nil},
	} {
		cfg := testConfig()
		cfg.Compression, cfg.MaxBatchBytes, cfg.SegmentBytes = c.to, c.max, int64(c.segment)
		if _, err := validated(t, c.raw, cfg, 1000); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestRecodeRefusesBombs also with codecs that inflate as a stream, and lets go
// of what it took: afterwards as many appends as there are slots still work.
func TestRecodeRefusesBombs(t *testing.T) {
	cfg := testConfig()
	cfg.Compression, cfg.MaxInflatedBytes = "zstd", 1<<20
	r := newRecoders()
	huge := plainBatch(noProducer, 1, 4<<20, 7)
	for range cap(r.free) + 1 {
		for _, codec := range []int{codecGzip, codecSnappy, codecLZ4} {
			b, err := ParseBatch(deflate(t, codec, huge, false))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.prepare(&b, &cfg, 1000); !errors.Is(err, ErrInvalidRecord) {
				t.Errorf("codec %d: %v", codec, err)
			}
		}
	}
	if len(r.free) != cap(r.free) {
		t.Errorf("%d of %d are free", len(r.free), cap(r.free))
	}
}

// TestFaultsAreCounted: every record at fault is told, up to a bound.
func TestFaultsAreCounted(t *testing.T) {
	cfg := testConfig()
	raw := plainBatch(noProducer, maxFaults+10, 1, math.MaxInt32)
	_, err := validated(t, raw, cfg, -1<<40)
	var re *RecordError
	if !errors.As(err, &re) || !errors.Is(err, ErrTimestamp) || len(re.Records) != maxFaults || re.Records[maxFaults-1].Index != maxFaults-1 {
		t.Fatalf("%v", err)
	}
}

// TestRecodedBatchesInALog: appended by many at once, read back as the same
// records in the topic's codec, with offsets without gaps.
func TestRecodedBatchesInALog(t *testing.T) {
	const producers, each, records = 8, 30, 5
	l := benchLog(t, Relaxed)
	cfg := testConfig()
	cfg.Compression = "lz4"
	l.SetConfig(cfg)
	var wg sync.WaitGroup
	for id := range producers {
		wg.Go(func() {
			for n := range each {
				h := BatchHeader{ProducerID: int64(id), BaseSequence: int32(n * records)}
				b, err := ParseBatch(inCodec(t, (id+n)%5, plainBatch(h, records, 50+id, 1)))
				if err == nil {
					_, err = l.AppendLeader(b, 1)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	end := l.Offsets().End
	if end != producers*each*records {
		t.Fatalf("end %d", end)
	}
	l.SetHigh(end)
	r, err := l.Read(0, 1<<20, BoundHigh, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	var out bytes.Buffer
	if _, err := r.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	next := int64(0)
	for data := out.Bytes(); len(data) > 0; {
		n := lengthOverhead + int(binary.BigEndian.Uint32(data[atLength:]))
		b, err := ParseBatch(data[:n])
		if err != nil {
			t.Fatal(err)
		}
		want := plainBatch(BatchHeader{}, records, 50+int(b.ProducerID), 1)[batchOverhead:]
		if b.BaseOffset != next || b.Codec() != codecLZ4 || !bytes.Equal(plainOf(t, &b), want) {
			t.Fatalf("batch %+v at %d, codec %d, or other records", b.BatchHeader, next, b.Codec())
		}
		next, data = b.LastOffset()+1, data[n:]
	}
	if next != end {
		t.Errorf("read to %d of %d", next, end)
	}
}

// benchRecords is a batch of 64 KiB of JSON-like records, which compress as
// such data do.
func benchRecords() []byte {
	rng := rand.New(rand.NewPCG(7, 7))
	raw := make([]byte, batchOverhead)
	n := int32(0)
	for ; len(raw) < 64<<10; n++ {
		value := fmt.Sprintf(`{"id":%d,"user":"user-%d","amount":%d.%02d,"currency":"EUR","state":"%s","note":"%x"}`, n, rng.IntN(5000),
			rng.IntN(1000), rng.IntN(100), []string{"open", "paid", "sent"}[rng.IntN(3)], rng.Uint64())
		rec := []byte{0, 0}
		rec = binary.AppendVarint(rec, int64(n))
		rec = append(rec, 2, 'k')
		rec = binary.AppendVarint(rec, int64(len(value)))
		rec = append(append(rec, value...), 0)
		raw = append(binary.AppendVarint(raw, int64(len(rec))), rec...)
	}
	copy(raw, plainBatch(BatchHeader{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, 1, 1, 7)[:batchOverhead])
	binary.BigEndian.PutUint32(raw[atLastOffsetDelta:], uint32(n-1))
	binary.BigEndian.PutUint32(raw[atRecords:], uint32(n))
	sealBatch(raw)
	return raw
}

// BenchmarkRecode: MB/s of plain records, on one core.
func BenchmarkRecode(b *testing.B) {
	raw := benchRecords()
	for source := range compressionTypes {
		for target, name := range compressionTypes {
			if source == target {
				continue
			}
			b.Run(compressionTypes[source]+"-"+name, func(b *testing.B) {
				cfg := testConfig()
				cfg.Compression = name
				r := newRecoders()
				sent := inCodec(b, source, raw)
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					batch, err := ParseBatch(sent)
					if err != nil {
						b.Fatal(err)
					}
					made, err := r.prepare(&batch, &cfg, 1000)
					if err != nil {
						b.Fatal(err)
					}
					r.put(made)
				}
			})
		}
	}
}
