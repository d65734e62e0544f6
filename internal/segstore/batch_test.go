package segstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func fixCRC(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
	return raw
}

func withLength(raw []byte, n int) []byte {
	binary.BigEndian.PutUint32(raw[atLength:], uint32(n))
	return raw
}

func TestParseBatch(t *testing.T) {
	good := func() []byte { return plainBatch(noProducer, 3, 20, 5) }
	cases := map[string]struct {
		raw  []byte
		want error
	}{
		"good":            {good(), nil},
		"empty":           {nil, ErrInvalidRecord},
		"half a header":   {good()[:30], ErrInvalidRecord},
		"cut off":         {good()[:70], ErrInvalidRecord},
		"two batches":     {append(good(), good()...), ErrInvalidRecord},
		"trailing byte":   {append(good(), 0), ErrInvalidRecord},
		"length too long": {withLength(good(), 1000), ErrInvalidRecord},
		"length huge":     {withLength(good(), math.MaxInt32), ErrInvalidRecord},
		"length negative": {withLength(good(), -1), ErrCorrupt},
		"length small":    {withLength(good(), 20), ErrCorrupt},
		"flipped bit":     {func() []byte { b := good(); b[80] ^= 1; return b }(), ErrCorrupt},
		"flipped CRC":     {func() []byte { b := good(); b[atCRC] ^= 1; return b }(), ErrCorrupt},
		"magic 0":         {func() []byte { b := good(); b[atMagic] = 0; return b }(), ErrInvalidRecord},
		"magic 1":         {func() []byte { b := good(); b[atMagic] = 1; return b }(), ErrInvalidRecord},
		"magic 3":         {func() []byte { b := good(); b[atMagic] = 3; return b }(), ErrCorrupt},
	}
	for name, c := range cases {
		if _, err := ParseBatch(c.raw); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// deflate compresses the records of a plain batch, in Kafka's forms.
func deflate(t testing.TB, codec int, raw []byte, xerial bool) []byte {
	t.Helper()
	records := raw[batchOverhead:]
	var out bytes.Buffer
	var err error
	switch codec {
	case codecGzip:
		w := gzip.NewWriter(&out)
		_, err = w.Write(records)
		err = errors.Join(err, w.Close())
	case codecSnappy:
		if !xerial {
			out.Write(snappy.Encode(nil, records))
			break
		}
		out.Write(xerialMagic)
		out.Write([]byte{0, 0, 0, 1, 0, 0, 0, 1})
		for part := records; len(part) > 0; {
			n := min(len(part), 40)
			block := snappy.Encode(nil, part[:n])
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
			out.Write(block)
			part = part[n:]
		}
	case codecLZ4:
		w := lz4.NewWriter(&out)
		_, err = w.Write(records)
		err = errors.Join(err, w.Close())
	case codecZstd:
		var w *zstd.Encoder
		w, err = zstd.NewWriter(&out)
		if err == nil {
			_, err = w.Write(records)
			err = errors.Join(err, w.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b := append(bytes.Clone(raw[:batchOverhead]), out.Bytes()...)
	b[atAttributes+1] |= byte(codec)
	return fixCRC(withLength(b, len(b)-lengthOverhead))
}

func validated(t *testing.T, raw []byte, cfg LogConfig, now int64) (Batch, error) {
	t.Helper()
	b, err := ParseBatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newRecoders().prepare(&b, &cfg, now)
	return b, err
}

func edit(raw []byte, at int, value ...byte) []byte {
	copy(raw[at:], value)
	return fixCRC(raw)
}

func TestValidate(t *testing.T) {
	const now = 1_700_000_000_000
	hour := time.Hour.Milliseconds()
	plain := func() []byte { return plainBatch(noProducer, 3, 20, now) }
	cfg := testConfig()
	small, tiny, compact, logAppend := cfg, cfg, cfg, cfg
	small.MaxBatchBytes, tiny.SegmentBytes, compact.Compact, logAppend.LogAppendTime = 100, 100, true, true
	past := cfg
	past.TimestampBeforeMax = time.Hour
	keyless := func() []byte { // three records of 4 bytes each: null key, null value
		raw := plain()[:batchOverhead]
		for i := range 3 {
			raw = append(raw, 6<<1, 0, 0, byte(i<<1), 1, 1, 0)
		}
		return fixCRC(withLength(raw, len(raw)-lengthOverhead))
	}
	nullHeader := func() []byte {
		raw := plain()[:batchOverhead]
		raw = append(raw, 8<<1, 0, 0, 0, 1, 1, 1<<1, 1, 1)
		binary.BigEndian.PutUint32(raw[atRecords:], 1)
		binary.BigEndian.PutUint32(raw[atLastOffsetDelta:], 0)
		return fixCRC(withLength(raw, len(raw)-lengthOverhead))
	}
	cases := []struct {
		name  string
		raw   []byte
		cfg   LogConfig
		want  error
		index int32
	}{
		{"good", plain(), cfg, nil, 0},
		{"base offset", edit(plain(), 7, 1), cfg, ErrInvalidRecord, -1},
		{"count too high", edit(plain(), atRecords, 0, 0, 0, 4), cfg, ErrInvalidRecord, -1},
		{"count giant", edit(plain(), atRecords, 0x7f, 0xff, 0xff, 0xff), cfg, ErrInvalidRecord, -1},
		{"count and delta giant", edit(edit(plain(), atRecords, 0x7f, 0, 0, 1), atLastOffsetDelta, 0x7f, 0, 0, 0), cfg, ErrInvalidRecord, -1},
		{"count and delta low", edit(edit(plain(), atRecords, 0, 0, 0, 2), atLastOffsetDelta, 0, 0, 0, 1), cfg, ErrInvalidRecord, -1},
		{"count zero", edit(edit(plain(), atRecords, 0, 0, 0, 0), atLastOffsetDelta, 0xff, 0xff, 0xff, 0xff), cfg, ErrInvalidRecord, -1},
		{"delta negative", edit(plain(), atLastOffsetDelta, 0xff, 0xff, 0xff, 0xfe), cfg, ErrInvalidRecord, -1},
		{"control", edit(plain(), atAttributes+1, attrControl), cfg, ErrInvalidRecord, -1},
		{"codec 5", edit(plain(), atAttributes+1, 5), cfg, ErrInvalidRecord, -1},
		{"unknown attributes", edit(plain(), atAttributes, 0x7f), cfg, nil, 0},
		{"sequence without producer", edit(plain(), atBaseSequence, 0, 0, 0, 9), cfg, nil, 0},
		{"producer, negative sequence", plainBatch(BatchHeader{ProducerID: 1, BaseSequence: -1}, 1, 1, now), cfg, ErrInvalidRecord, -1},
		{"too large", plain(), small, ErrTooLarge, -1},
		{"above a segment", plain(), tiny, ErrListTooLarge, -1},
		{"future", plainBatch(noProducer, 2, 1, now+hour+1), cfg, ErrTimestamp, 0},
		{"future under log append time", plainBatch(noProducer, 2, 1, now+9*hour), logAppend, nil, 0},
		{"an hour ahead", plainBatch(noProducer, 2, 1, now+hour), cfg, nil, 0},
		{"time 0", plainBatch(noProducer, 2, 1, 0), cfg, nil, 0},
		{"time -1", plainBatch(noProducer, 2, 1, -1), cfg, nil, 0},
		{"time -2", plainBatch(noProducer, 2, 1, -2), cfg, nil, 0},
		{"too old", plainBatch(noProducer, 2, 1, now-hour-1), past, ErrTimestamp, 0},
		{"no time is not too old", plainBatch(noProducer, 2, 1, -1), past, nil, 0},
		{"log append bit, log append topic", edit(plain(), atAttributes+1, attrLogAppendTime), logAppend, ErrTimestamp, 0},
		{"log append bit", edit(plain(), atAttributes+1, attrLogAppendTime), cfg, nil, 0},
		{"keyless", keyless(), cfg, nil, 0},
		{"keyless, compacted", keyless(), compact, ErrInvalidRecord, 0},
		{"keyed, compacted", plain(), compact, nil, 0},
		{"null header key", nullHeader(), cfg, ErrInvalidRecord, -1},
		{"record cut off", edit(plain(), batchOverhead, 0x7f), cfg, ErrInvalidRecord, -1},
		{"offset delta", edit(plain(), batchOverhead+3, 2), cfg, ErrInvalidRecord, -1},
	}
	for _, c := range cases {
		_, err := validated(t, c.raw, c.cfg, now)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
			continue
		}
		var re *RecordError
		if err == nil {
			continue
		}
		if !errors.As(err, &re) || (len(re.Records) > 0) != (c.index >= 0) || c.index >= 0 && re.Records[0].Index != c.index {
			t.Errorf("%s: %#v, want index %d", c.name, err, c.index)
		}
	}
}

func TestCompressedBatches(t *testing.T) {
	cfg := testConfig()
	compact := cfg
	compact.Compact = true
	for codec := codecGzip; codec <= codecZstd; codec++ {
		for _, xerial := range []bool{false, true} {
			raw := deflate(t, codec, plainBatch(noProducer, 50, 40, 7), xerial)
			before := bytes.Clone(raw)
			if _, err := validated(t, raw, compact, 1000); err != nil {
				t.Errorf("codec %d: %v", codec, err)
			}
			if !bytes.Equal(raw, before) {
				t.Errorf("codec %d: the batch was changed", codec)
			}
			// Sarama writes the largest timestamp as -1: it is found by inflating.
			quirk := edit(bytes.Clone(raw), atMaxTimestamp, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
			b, err := validated(t, quirk, cfg, 1000)
			if err != nil || b.MaxTimestamp != 7 || !crcGood(b.Raw) {
				t.Errorf("codec %d: largest timestamp %d, %v", codec, b.MaxTimestamp, err)
			}
			// what does not inflate is stored unread if it begins well, unless keys matter
			junk := edit(bytes.Clone(raw), len(raw)-10, bytes.Repeat([]byte{0x55}, 10)...)
			if _, err := validated(t, bytes.Clone(junk), cfg, 1000); err != nil {
				t.Errorf("codec %d: junk: %v", codec, err)
			}
			if _, err := validated(t, junk, compact, 1000); !errors.Is(err, ErrInvalidRecord) {
				t.Errorf("codec %d: junk for a compacted topic: %v", codec, err)
			}
		}
	}
}

func TestDecompressionBombsAreRefused(t *testing.T) {
	cfg := testConfig()
	cfg.Compact = true
	const limit = 1 << 20
	huge := plainBatch(noProducer, 1, limit, 7)
	for codec := codecGzip; codec <= codecZstd; codec++ {
		bomb := deflate(t, codec, huge, false)[batchOverhead:]
		err := inflate(codec, bomb, limit, func([]byte) error { return nil })
		if !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("codec %d, %d bytes: %v", codec, len(bomb), err)
		}
		if err := inflate(codec, bomb, 2*limit, func([]byte) error { return nil }); err != nil {
			t.Errorf("codec %d, %d bytes, more room: %v", codec, len(bomb), err)
		}
	}
	liar := edit(deflate(t, codecSnappy, plainBatch(noProducer, 1, 9, 7), false), batchOverhead, 0xff, 0xff, 0xff, 0x0f)
	if _, err := validated(t, liar, cfg, 1000); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("a snappy block that claims too much: %v", err)
	}
}

func TestUncompressedLargestTimestampIsComputed(t *testing.T) {
	raw := edit(plainBatch(noProducer, 2, 1, 50), atMaxTimestamp, 0, 0, 0, 0, 0, 0, 0, 1)
	b, err := validated(t, raw, testConfig(), 1000)
	if err != nil || b.MaxTimestamp != 50 {
		t.Fatalf("largest timestamp %d, %v", b.MaxTimestamp, err)
	}
	if again, err := ParseBatch(b.Raw); err != nil || again.MaxTimestamp != 50 {
		t.Fatalf("stored batch: %d, %v", again.MaxTimestamp, err)
	}
}

// TestMarkerLayout: the bytes of Kafka's EndTransactionMarker.
func TestMarkerLayout(t *testing.T) {
	b := buildMarker(0x1122334455667788, 3, true, 9, 1234)
	if _, err := ParseBatch(b.Raw); err != nil {
		t.Fatal(err)
	}
	want := []byte{32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 9, 0}
	if got := b.Raw[batchOverhead:]; !bytes.Equal(got, want) {
		t.Fatalf("record %v, want %v", got, want)
	}
	if !b.Control() || !b.Transactional() || b.Records != 1 || b.BaseSequence != -1 || b.ProducerEpoch != 3 ||
		b.ProducerID != 0x1122334455667788 || b.BaseTimestamp != 1234 || b.MaxTimestamp != 1234 || b.LastOffsetDelta != 0 {
		t.Fatalf("header %+v", b.BatchHeader)
	}
	m, ok := parseMarker(b.Raw[batchOverhead:])
	if !ok || m.kind != markerCommit || m.coordinatorTerm != 9 {
		t.Fatalf("marker %+v %v", m, ok)
	}
	a := buildMarker(1, 3, false, 9, 1234)
	if m, _ := parseMarker(a.Raw[batchOverhead:]); m.kind != markerAbort {
		t.Fatalf("abort marker reads as %+v", m)
	}
}
