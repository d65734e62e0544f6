package logtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// The fixed part of a record batch of magic 2 (Kafka's DefaultRecordBatch).
const (
	headerSize   = 61 // bytes before the first record
	prefixSize   = 12 // base offset and length: what length does not count
	crcFrom      = 21 // the CRC covers everything from the attributes on
	maxBatchSize = 256 << 20
	readAhead    = 256 << 10
)

// Bits of a batch's attributes.
const (
	codecBits       = 0x07
	logAppendBit    = 0x08
	transactionBit  = 0x10
	controlBit      = 0x20
	deleteHorizon   = 0x40
	knownAttributes = 0x7f
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// batch is the header of one batch and where it stands.
type batch struct {
	position   int64 // byte in the file
	size       int   // bytes with header
	base       int64
	term       int32
	crc        uint32
	attributes int16
	lastDelta  int32
	baseTime   int64 // ms, or the delete horizon
	maxTime    int64 // ms
	producer   int64
	epoch      int16 // of the producer
	sequence   int32 // of the first record
	count      int32 // records
}

func (b *batch) last() int64         { return b.base + int64(b.lastDelta) }
func (b *batch) codec() int          { return int(b.attributes & codecBits) }
func (b *batch) control() bool       { return b.attributes&controlBit != 0 }
func (b *batch) transactional() bool { return b.attributes&transactionBit != 0 }
func (b *batch) logAppend() bool     { return b.attributes&logAppendBit != 0 }

// lastSequence wraps from 2^31-1 to 0; it is -1 where there are no sequences.
func (b *batch) lastSequence() int32 {
	if b.sequence < 0 {
		return -1
	}
	return int32((int64(b.sequence) + int64(b.lastDelta)) % (1 << 31))
}

// fault says what is wrong at a byte of a file.
type fault struct {
	position int64
	what     string
}

func (f *fault) Error() string { return fmt.Sprintf("at byte %d: %s", f.position, f.what) }

// errZeros says that only zeros follow: the file was made larger in advance.
var errZeros = errors.New("only zeros follow")

// segmentReader gives the batches of one .log file in order. What it returns is valid until the next call.
type segmentReader struct {
	file vfs.File
	size int64
	at   int64 // position of the next batch

	window   []byte // bytes of the file from windowAt on
	windowAt int64
}

// openSegment opens a .log file for reading; size is its length now.
func openSegment(fsys vfs.FS, path string) (*segmentReader, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segmentReader{file: f, size: size}, nil
}

func (r *segmentReader) close() { _ = r.file.Close() } // it was only read

// next reads the header of the next batch and goes behind it. io.EOF is the end, errZeros the end of a file that was made
// larger in advance, a *fault bytes that are no batch.
func (r *segmentReader) next() (batch, error) {
	left := r.size - r.at
	if left == 0 {
		return batch{}, io.EOF
	}
	if left < headerSize {
		return batch{}, r.noBatch("%d bytes are too few for a batch", left)
	}
	raw, err := r.view(r.at, headerSize)
	if err != nil {
		return batch{}, err
	}
	b, length, magic := parseHeader(raw)
	b.position = r.at
	switch {
	case magic != 2:
		return batch{}, r.noBatch("no batch of magic 2 (magic %d, length %d)", magic, length)
	case length < headerSize-prefixSize:
		return batch{}, r.noBatch("batch length %d is too small", length)
	case int64(b.size) > left:
		return batch{}, r.noBatch("batch of %d bytes is cut off: %d are left", b.size, left)
	case b.size > maxBatchSize:
		return batch{}, r.noBatch("batch of %d bytes is larger than this tool reads", b.size)
	case b.lastDelta < 0 || b.base < 0 || b.last() < b.base:
		return batch{}, r.noBatch("offsets %d+%d are impossible", b.base, b.lastDelta)
	}
	r.at += int64(b.size)
	return b, nil
}

func parseHeader(raw []byte) (b batch, length int32, magic int8) {
	c := cursor{buf: raw}
	b.base = c.i64()
	length = c.i32()
	b.term = c.i32()
	magic = int8(c.u8())
	b.crc = uint32(c.i32())
	b.attributes = c.i16()
	b.lastDelta = c.i32()
	b.baseTime, b.maxTime = c.i64(), c.i64()
	b.producer, b.epoch, b.sequence = c.i64(), c.i16(), c.i32()
	b.count = c.i32()
	b.size = prefixSize + int(length)
	return b, length, magic
}

func (r *segmentReader) noBatch(format string, args ...any) error {
	zeros, err := r.zerosFrom(r.at)
	if err != nil {
		return err
	}
	if zeros {
		return errZeros
	}
	return &fault{r.at, fmt.Sprintf(format, args...)}
}

// bytes gives the whole batch.
func (r *segmentReader) bytes(b *batch) ([]byte, error) { return r.view(b.position, b.size) }

// crcGood compares the stored CRC of a whole batch.
func crcGood(raw []byte) bool {
	return binary.BigEndian.Uint32(raw[17:]) == crc32.Checksum(raw[crcFrom:], crcTable)
}

// view gives n bytes at position; both must lie within the file.
func (r *segmentReader) view(position int64, n int) ([]byte, error) {
	from := position - r.windowAt
	if from >= 0 && from+int64(n) <= int64(len(r.window)) {
		return r.window[from:][:n], nil
	}
	want := int(min(int64(max(n, readAhead)), r.size-position))
	if cap(r.window) < want {
		r.window = make([]byte, want)
	}
	r.window, r.windowAt = r.window[:want], position
	got, err := r.file.ReadAt(r.window, position)
	r.window = r.window[:got]
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %s at %d: %w", r.file.Name(), position, err)
	}
	return r.window[:n], nil
}

// zerosFrom says whether the file holds only zeros from position to its end.
func (r *segmentReader) zerosFrom(position int64) (bool, error) {
	for position < r.size {
		n := int(min(readAhead, r.size-position))
		raw, err := r.view(position, n)
		if err != nil {
			return false, err
		}
		for _, b := range raw {
			if b != 0 {
				return false, nil
			}
		}
		position += int64(n)
	}
	return true, nil
}
