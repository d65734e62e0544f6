package segstore

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// packer compresses the records of batches that compaction changed, in the
// forms that Kafka's Java clients read, each codec at its default level. It
// keeps its encoders; the zero value is ready. Not for concurrent use.
type packer struct {
	out    bytes.Buffer
	gzip   *gzip.Writer
	lz4    *lz4.Writer
	zstd   *zstd.Encoder
	packed []byte
}

// pack appends the compressed records to dst.
func (p *packer) pack(dst []byte, codec int, records []byte) (_ []byte, err error) {
	p.out.Reset()
	switch codec {
	case codecNone:
		return append(dst, records...), nil
	case codecGzip:
		if p.gzip == nil {
			p.gzip = gzip.NewWriter(nil)
		}
		p.gzip.Reset(&p.out)
		if _, err = p.gzip.Write(records); err == nil {
			err = p.gzip.Close()
		}
	case codecSnappy:
		return p.packSnappy(dst, records), nil
	case codecLZ4:
		if p.lz4 == nil {
			p.lz4 = lz4.NewWriter(nil)
			// what Kafka's Lz4BlockOutputStream writes
			err = p.lz4.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false))
		}
		p.lz4.Reset(&p.out)
		if err == nil {
			_, err = p.lz4.Write(records)
		}
		if err == nil {
			err = p.lz4.Close()
		}
	case codecZstd:
		if p.zstd == nil {
			p.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		}
		if err == nil {
			return p.zstd.EncodeAll(records, dst), nil
		}
	default:
		err = fmt.Errorf("compression codec %d is unknown", codec)
	}
	if err != nil {
		return dst, err
	}
	return append(dst, p.out.Bytes()...), nil
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
