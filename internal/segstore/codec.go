package segstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression codecs in the attributes of a batch (Kafka's CompressionType).
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

// inflateLimit bounds what one batch may inflate to, in bytes: a small frame
// can otherwise claim gigabytes. There is no bound of the ratio: a megabyte of
// zeros is a good batch.
const inflateLimit = 64 << 20

// keptBuffer is the largest buffer that is kept for the next batch, in bytes.
const keptBuffer = 1 << 20

func limitError(limit int) error {
	return batchError(ErrInvalidRecord, "records inflate to more than %d bytes", limit)
}

var (
	gzipPool  sync.Pool // *gzip.Reader
	lz4Pool   = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdPool  sync.Pool // *zstd.Decoder
	plainPool = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// inflate gives use the plain records of a compressed batch, at most limit
// bytes (else ErrInvalidRecord). The slice is valid only during the call.
func inflate(codec int, data []byte, limit int, use func(plain []byte) error) error {
	buf := plainPool.Get().(*bytes.Buffer)
	buf.Reset()
	defer func() {
		if buf.Cap() <= keptBuffer {
			plainPool.Put(buf)
		}
	}()
	var err error
	switch codec {
	case codecNone:
		return use(data)
	case codecGzip:
		err = inflateGzip(buf, data, limit)
	case codecSnappy:
		err = inflateSnappy(buf, data, limit)
	case codecLZ4:
		r := lz4Pool.Get().(*lz4.Reader)
		r.Reset(bytes.NewReader(data))
		err = drain(buf, r, limit)
		lz4Pool.Put(r)
	case codecZstd:
		err = inflateZstd(buf, data, limit)
	default:
		err = errUnknownCodec(codec)
	}
	if err != nil {
		return err
	}
	return use(buf.Bytes())
}

// drain copies r to its end, up to the limit.
func drain(buf *bytes.Buffer, r io.Reader, limit int) error {
	n, err := buf.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err == nil && n > int64(limit) {
		err = limitError(limit)
	}
	return err
}

func inflateGzip(buf *bytes.Buffer, data []byte, limit int) error {
	r, _ := gzipPool.Get().(*gzip.Reader)
	if r == nil {
		r = new(gzip.Reader)
	}
	defer gzipPool.Put(r)
	if err := r.Reset(bytes.NewReader(data)); err != nil {
		return err
	}
	return drain(buf, r, limit)
}

func inflateZstd(buf *bytes.Buffer, data []byte, limit int) error {
	d, _ := zstdPool.Get().(*zstd.Decoder)
	if d == nil {
		var err error
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(inflateLimit))
		if err != nil {
			return err
		}
	}
	defer zstdPool.Put(d)
	if err := d.Reset(bytes.NewReader(data)); err != nil {
		return err
	}
	err := drain(buf, d, limit)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = limitError(limit)
	}
	return err
}

// xerialMagic begins the framing of snappy-java's SnappyOutputStream, which
// Java clients write: magic, version, compatible version, then blocks behind
// their lengths. Others write one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

func inflateSnappy(buf *bytes.Buffer, data []byte, limit int) error {
	if !bytes.HasPrefix(data, xerialMagic) {
		return snappyBlock(buf, data, limit)
	}
	if len(data) < 16 {
		return io.ErrUnexpectedEOF
	}
	for data = data[16:]; len(data) > 0; {
		if len(data) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(data))
		data = data[4:]
		if n > int64(len(data)) {
			return io.ErrUnexpectedEOF
		}
		if err := snappyBlock(buf, data[:n], limit); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func snappyBlock(buf *bytes.Buffer, block []byte, limit int) error {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if n < 0 || buf.Len()+n > limit {
		return limitError(limit)
	}
	if n > snappyMost(block) {
		return snappy.ErrCorrupt
	}
	buf.Grow(n)
	out, err := snappy.Decode(buf.AvailableBuffer()[:n], block)
	if err != nil {
		return err
	}
	buf.Write(out)
	return nil
}

// payloadBegins says whether records begin as their codec's do. That costs
// nothing, and finds a wrong codec in the attributes.
func payloadBegins(codec int, data []byte) bool {
	switch codec {
	case codecGzip:
		return bytes.HasPrefix(data, []byte{0x1f, 0x8b})
	case codecSnappy:
		if bytes.HasPrefix(data, xerialMagic) {
			return true
		}
		n, err := snappy.DecodedLen(data)
		return err == nil && n > 0 && n <= snappyMost(data)
	case codecLZ4:
		return bytes.HasPrefix(data, []byte{0x04, 0x22, 0x4d, 0x18})
	case codecZstd:
		return len(data) >= 4 && (binary.LittleEndian.Uint32(data) == 0xfd2fb528 ||
			binary.LittleEndian.Uint32(data)&^0xf == 0x184d2a50) // a frame to skip
	}
	return true
}

// snappyMost is what a block can inflate to: a copy element of 2 bytes gives at
// most 64.
func snappyMost(block []byte) int { return 64 * (len(block) + 1) }

// subTime and addTime move a time in milliseconds; the largest duration means
// without limit.
func subTime(ms int64, d time.Duration) int64 {
	if d == math.MaxInt64 {
		return math.MinInt64
	}
	return ms - d.Milliseconds()
}

func addTime(ms int64, d time.Duration) int64 {
	if d == math.MaxInt64 {
		return math.MaxInt64
	}
	return ms + d.Milliseconds()
}
