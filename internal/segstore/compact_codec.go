package segstore

import (
	"bytes"
	"encoding/binary"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// packer compresses the records of batches that compaction changed or that
// compression.type wants in another codec, in the forms that Kafka's Java
// clients read. It keeps an encoder for each level it has met; the zero value is
// ready. Not for concurrent use.
type packer struct {
	out    bytes.Buffer
	gzip   [11]*gzip.Writer // by level, from -1
	lz4    [10]*lz4.Writer  // by level, 0 is fast
	zstd   [5]*zstd.Encoder // by zstd.EncoderLevel
	packed []byte
}

// pack appends the compressed records to dst. The level is Kafka's, within its
// bounds; 0 is the codec's default.
func (p *packer) pack(dst []byte, codec, level int, records []byte) (_ []byte, err error) {
	if p.out.Cap() > keptBuffer {
		p.out = bytes.Buffer{}
	}
	p.out.Reset()
	switch codec {
	case codecNone:
		return append(dst, records...), nil
	case codecGzip:
		err = p.packGzip(level, records)
	case codecSnappy:
		return p.packSnappy(dst, records), nil
	case codecLZ4:
		err = p.packLZ4(level, records)
	case codecZstd:
		return p.packZstd(dst, level, records)
	default:
		err = errUnknownCodec(codec)
	}
	if err != nil {
		return dst, err
	}
	return append(dst, p.out.Bytes()...), nil
}

func (p *packer) packGzip(level int, records []byte) (err error) {
	if level == 0 {
		level = gzip.DefaultCompression
	}
	w := p.gzip[level+1]
	if w == nil {
		if w, err = gzip.NewWriterLevel(nil, level); err != nil {
			return err
		}
		p.gzip[level+1] = w
	}
	w.Reset(&p.out)
	if _, err := w.Write(records); err != nil {
		return err
	}
	return w.Close()
}

// kafkaLZ4Level is the default of compression.lz4.level. With it Kafka takes the
// fast compressor, with all others, also lower ones, the thorough one.
const kafkaLZ4Level = 9

func (p *packer) packLZ4(level int, records []byte) error {
	if level == kafkaLZ4Level {
		level = 0
	}
	level = min(level, len(p.lz4)-1)
	w := p.lz4[level]
	if w == nil {
		w = lz4.NewWriter(nil)
		strength := lz4.Fast
		if level > 0 {
			strength = lz4.CompressionLevel(1 << (8 + level))
		}
		// the block size and flags of Kafka's Lz4BlockOutputStream
		err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.CompressionLevelOption(strength))
		if err != nil {
			return err
		}
		p.lz4[level] = w
	}
	w.Reset(&p.out)
	if _, err := w.Write(records); err != nil {
		return err
	}
	return w.Close()
}

// packZstd maps zstd's levels to the four of this encoder. Its window is that of
// zstd's default level, which bounds the memory of every reader.
func (p *packer) packZstd(dst []byte, level int, records []byte) (_ []byte, err error) {
	strength := zstd.SpeedDefault
	if level != 0 {
		strength = zstd.EncoderLevelFromZstd(level)
	}
	w := p.zstd[strength]
	if w == nil {
		w, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderLevel(strength), zstd.WithWindowSize(2<<20))
		if err != nil {
			return dst, err
		}
		p.zstd[strength] = w
	}
	return w.EncodeAll(records, dst), nil
}

// xerialBlock is the block size of snappy-java's SnappyOutputStream.
const xerialBlock = 32 << 10

func (p *packer) packSnappy(dst, records []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	for len(records) > 0 {
		n := min(len(records), xerialBlock)
		p.packed = snappy.Encode(p.packed[:cap(p.packed)], records[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(p.packed)))
		dst = append(dst, p.packed...)
		records = records[n:]
	}
	return dst
}
