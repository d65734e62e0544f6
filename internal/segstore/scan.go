package segstore

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// scanChunk is how much a scan reads at once, in bytes.
const scanChunk = 32 << 10

var chunkPool = sync.Pool{New: func() any { b := make([]byte, scanChunk); return &b }}

// scan reads batch headers (and, on demand, whole batches) from a segment
// file up to limit. Close returns its buffer.
type scan struct {
	file  vfs.File
	limit int64

	chunk *[]byte
	at    int64 // file position of the chunk
	n     int   // bytes in it
	batch []byte
}

func newScan(f vfs.File, limit int64) *scan {
	return &scan{file: f, limit: limit, chunk: chunkPool.Get().(*[]byte)}
}

func (s *scan) close() {
	chunkPool.Put(s.chunk)
	s.chunk = nil
}

// bytes gives n bytes at pos; they are valid until the next call.
func (s *scan) bytes(pos int64, n int) ([]byte, error) {
	if pos >= s.at && pos+int64(n) <= s.at+int64(s.n) {
		return (*s.chunk)[pos-s.at:][:n], nil
	}
	if n > len(*s.chunk) {
		if cap(s.batch) < n {
			s.batch = make([]byte, n)
		}
		return s.batch[:n], readFull(s.file, s.batch[:n], pos)
	}
	want := int(min(int64(len(*s.chunk)), s.limit-pos))
	s.n = 0
	if err := readFull(s.file, (*s.chunk)[:want], pos); err != nil {
		return nil, err
	}
	s.at, s.n = pos, want
	return (*s.chunk)[:n], nil
}

func readFull(f vfs.File, buf []byte, pos int64) error {
	n, err := f.ReadAt(buf, pos)
	if n == len(buf) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at %d: %w", f.Name(), pos, err)
}

// header reads the batch header at pos and checks that the batch fits below
// the limit; what cannot be a batch wraps ErrCorrupt.
func (s *scan) header(pos int64) (BatchHeader, error) {
	if s.limit-pos < batchOverhead {
		return BatchHeader{}, fmt.Errorf("%w: %d bytes at %d of %s are no batch", ErrCorrupt, s.limit-pos, pos, s.file.Name())
	}
	buf, err := s.bytes(pos, batchOverhead)
	if err != nil {
		return BatchHeader{}, err
	}
	h := decodeHeader(buf)
	if h.Magic != 2 || h.Length < batchOverhead-lengthOverhead || int64(h.Size()) > s.limit-pos || h.LastOffsetDelta < 0 {
		return BatchHeader{}, fmt.Errorf("%w: at %d of %s: magic %d, length %d", ErrCorrupt, pos, s.file.Name(), h.Magic, h.Length)
	}
	return h, nil
}

// find gives the position and header of the first batch from pos on whose last
// offset is at or above offset; at the limit found is false.
func (s *scan) find(pos, offset int64) (at int64, h BatchHeader, found bool, err error) {
	for pos < s.limit {
		if h, err = s.header(pos); err != nil {
			return 0, h, false, err
		}
		if h.LastOffset() >= offset {
			return pos, h, true, nil
		}
		pos += int64(h.Size())
	}
	return pos, BatchHeader{}, false, nil
}
