package logtool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// codecNames are the compression types by their number in the attributes (Kafka's CompressionType).
var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// inflateLimit bounds what one batch may inflate to, in bytes.
const inflateLimit = 1 << 30

var errInflatesTooFar = fmt.Errorf("records inflate to more than %d bytes", inflateLimit)

// inflater makes plain streams of compressed ones. It keeps its decoders, so one stream at a time.
type inflater struct {
	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// open gives the plain records of a batch as a stream. Nothing is inflated before it is read.
func (i *inflater) open(codec int, data []byte) (io.Reader, error) {
	source := bytes.NewReader(data)
	switch codec {
	case 0:
		return source, nil
	case 1:
		if i.gzip == nil {
			i.gzip = new(gzip.Reader)
		}
		err := i.gzip.Reset(source)
		return i.gzip, err
	case 2:
		if bytes.HasPrefix(data, snappyJava) {
			return &snappyJavaReader{left: data[min(len(data), snappyJavaHeader):]}, nil
		}
		plain, err := inflateSnappy(data)
		return bytes.NewReader(plain), err
	case 3:
		if i.lz4 == nil {
			i.lz4 = lz4.NewReader(nil)
		}
		i.lz4.Reset(source)
		return i.lz4, nil
	case 4:
		if i.zstd == nil {
			d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(inflateLimit))
			if err != nil {
				return nil, err
			}
			i.zstd = d
		}
		err := i.zstd.Reset(source)
		return i.zstd, err
	}
	return nil, fmt.Errorf("compression codec %d is unknown", codec)
}

func (i *inflater) close() {
	if i.zstd != nil {
		i.zstd.Close()
	}
}

// snappyJava begins the stream that snappy-java's SnappyOutputStream writes: this, two versions of 4 bytes, then blocks
// behind their lengths. Clients in other languages also write one bare block.
var snappyJava = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const snappyJavaHeader = 16

type snappyJavaReader struct {
	left  []byte // compressed blocks to come
	plain []byte // of the present one
}

func (r *snappyJavaReader) Read(p []byte) (int, error) {
	for len(r.plain) == 0 {
		if len(r.left) == 0 {
			return 0, io.EOF
		}
		if len(r.left) < 4 {
			return 0, io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(r.left))
		r.left = r.left[4:]
		if n > int64(len(r.left)) {
			return 0, io.ErrUnexpectedEOF
		}
		var err error
		if r.plain, err = inflateSnappy(r.left[:n]); err != nil {
			return 0, err
		}
		r.left = r.left[n:]
	}
	n := copy(p, r.plain)
	r.plain = r.plain[n:]
	return n, nil
}

// inflateSnappy decodes a bare block, whose length field may lie: no element of it gives more than 64 bytes for 2.
func inflateSnappy(block []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(block)
	switch {
	case err != nil:
		return nil, err
	case n > inflateLimit:
		return nil, errInflatesTooFar
	case n/32 > len(block)+1:
		return nil, errors.New("snappy block claims an impossible length")
	}
	return snappy.Decode(nil, block)
}
