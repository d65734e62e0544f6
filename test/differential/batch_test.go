package differential

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchSpec is batch{…} of a script: a record batch of format 2 in which everything may be wrong on purpose.
type batchSpec struct {
	FirstOffset     int64
	Length          *int32 // instead of the true one
	LeaderEpoch     int32
	Magic           int8
	CRC             *int32
	Attributes      int16 // the codec's bits are added
	LastOffsetDelta *int32
	FirstTimestamp  int64
	MaxTimestamp    *int64
	ProducerID      int64
	ProducerEpoch   int16
	FirstSequence   int32
	NumRecords      *int32
	Codec           string
	Records         []recordSpec
	Payload         []byte // instead of the records
	Cut             int32  // bytes left out at the end
}

type recordSpec struct {
	Delta     *int32 // of the offset, instead of 0, 1, 2, …
	TimeDelta int64
	Key       []byte
	Value     []byte
	Headers   []headerSpec
}

type headerSpec struct{ Key, Value []byte }

func newBatchSpec(base int64) batchSpec {
	return batchSpec{LeaderEpoch: -1, Magic: 2, FirstTimestamp: base, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
}

var codecs = map[string]struct {
	bits  int16
	codec kgo.CompressionCodec
}{
	"gzip": {1, kgo.GzipCompression()}, "snappy": {2, kgo.SnappyCompression()}, "lz4": {3, kgo.Lz4Compression()},
	"zstd": {4, kgo.ZstdCompression()},
}

func (s *batchSpec) encode() ([]byte, error) {
	payload := s.Payload
	if payload == nil {
		for i, r := range s.Records {
			payload = r.appendTo(payload, int32(i))
		}
	}
	attributes := s.Attributes
	if s.Codec != "" {
		c, ok := codecs[s.Codec]
		if !ok {
			return nil, fmt.Errorf("codec %q is not known", s.Codec)
		}
		compressor, err := kgo.DefaultCompressor(c.codec)
		if err != nil {
			return nil, err
		}
		payload, _ = compressor.Compress(new(bytes.Buffer), payload)
		attributes |= c.bits
	}
	return s.frame(attributes, payload), nil
}

func (s *batchSpec) frame(attributes int16, payload []byte) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(attributes))
	body = binary.BigEndian.AppendUint32(body, uint32(or(s.LastOffsetDelta, int32(len(s.Records)-1))))
	body = binary.BigEndian.AppendUint64(body, uint64(s.FirstTimestamp))
	body = binary.BigEndian.AppendUint64(body, uint64(or(s.MaxTimestamp, s.latest())))
	body = binary.BigEndian.AppendUint64(body, uint64(s.ProducerID))
	body = binary.BigEndian.AppendUint16(body, uint16(s.ProducerEpoch))
	body = binary.BigEndian.AppendUint32(body, uint32(s.FirstSequence))
	body = binary.BigEndian.AppendUint32(body, uint32(or(s.NumRecords, int32(len(s.Records)))))
	body = append(body, payload...)

	b := binary.BigEndian.AppendUint64(nil, uint64(s.FirstOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(or(s.Length, int32(9+len(body)))))
	b = binary.BigEndian.AppendUint32(b, uint32(s.LeaderEpoch))
	b = append(b, byte(s.Magic))
	b = binary.BigEndian.AppendUint32(b, uint32(or(s.CRC, int32(crc32.Checksum(body, castagnoli)))))
	b = append(b, body...)
	return b[:len(b)-int(s.Cut)]
}

func (s *batchSpec) latest() int64 {
	latest := s.FirstTimestamp
	for _, r := range s.Records {
		latest = max(latest, s.FirstTimestamp+r.TimeDelta)
	}
	return latest
}

func or[T any](override *T, otherwise T) T {
	if override != nil {
		return *override
	}
	return otherwise
}

func (r *recordSpec) appendTo(b []byte, delta int32) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, r.TimeDelta)
	body = binary.AppendVarint(body, int64(or(r.Delta, delta)))
	body = appendNullable(body, r.Key)
	body = appendNullable(body, r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = appendNullable(appendNullable(body, h.Key), h.Value)
	}
	return append(binary.AppendVarint(b, int64(len(body))), body...)
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

// batchLines tells what record bytes of a fetch hold: a line a batch, and one a record of a plain batch.
func (r *renderer) batchLines(b []byte) (lines []string) {
	for len(b) > 0 {
		if len(b) < 61 {
			return append(lines, fmt.Sprintf("%d bytes of a batch", len(b)))
		}
		length := int(int32(binary.BigEndian.Uint32(b[8:])))
		if length < 49 || 12+length > len(b) {
			return append(lines, fmt.Sprintf("%d of %d bytes of the batch at %d", len(b), 12+length, binary.BigEndian.Uint64(b)))
		}
		lines = append(lines, r.batch(b[:12+length])...)
		b = b[12+length:]
	}
	return lines
}

func (r *renderer) batch(b []byte) (lines []string) {
	u32 := func(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
	u64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	attributes := binary.BigEndian.Uint16(b[21:])
	sound := ""
	if uint32(u32(17)) != crc32.Checksum(b[21:], castagnoli) {
		sound = " bad-crc"
	}
	lines = append(lines, fmt.Sprintf("batch %d-%d epoch:%s magic:%d attributes:%d times:%s-%s producer:%s/%d sequence:%d records:%d%s",
		u64(0), u64(0)+int64(u32(23)), r.leaderEpoch(u32(12)), b[16], attributes, r.time(u64(27)), r.time(u64(35)), r.producer(u64(43)),
		int16(binary.BigEndian.Uint16(b[51:])), u32(53), u32(57), sound))
	if attributes&7 != 0 {
		return lines
	}
	body := b[61:]
	for range u32(57) {
		length, n := binary.Varint(body)
		if n <= 0 || length < 0 || int(length) > len(body)-n {
			return append(lines, "  a record that does not parse")
		}
		lines = append(lines, "  "+record(body[n:n+int(length)]))
		body = body[n+int(length):]
	}
	return lines
}

// record tells a record without its length: offset delta, time delta, key, value, headers.
func record(b []byte) string {
	at := 1
	varint := func() int64 {
		v, n := binary.Varint(b[min(at, len(b)):])
		at += max(n, 1)
		return v
	}
	text := func() string {
		n := int(varint())
		if n < 0 {
			return "null"
		}
		if at+n > len(b) {
			return "beyond"
		}
		at += n
		return fmt.Sprintf("%q", b[at-n:at])
	}
	t, d := varint(), varint()
	out := fmt.Sprintf("+%d time:%+d %s=%s", d, t, text(), text())
	for range varint() {
		out += fmt.Sprintf(" %s:%s", text(), text())
	}
	return out
}
