package segstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Records are whole batches, in memory or still in files. A reader may hold
// them as long as it likes: files stay open and bytes in them do not change,
// also when retention deletes the segment. Release must be called once.
type Records interface {
	Len() int
	// AppendTo copies all bytes to the end of buf.
	AppendTo(buf []byte) ([]byte, error)
	// WriteTo writes all bytes; to a plain TCP connection it may use sendfile.
	io.WriterTo
	Release()
}

// noRecords is what a read at the bound gives: most reads of a long poll.
type noRecords struct{}

func (noRecords) Len() int                            { return 0 }
func (noRecords) AppendTo(buf []byte) ([]byte, error) { return buf, nil }
func (noRecords) WriteTo(io.Writer) (int64, error)    { return 0, nil }
func (noRecords) Release()                            {}

// smallPiece is up to how many bytes are read into memory at once: below it a
// sendfile call costs more than the copy.
const smallPiece = 64 << 10

var smallPool = sync.Pool{New: func() any { b := make([]byte, smallPiece); return &b }}

// copyPool has the buffers of WriteTo where sendfile is not possible.
var copyPool = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// piece is a run of bytes: in mem, or n bytes at off of a file kept open.
type piece struct {
	mem  []byte
	file *handle
	f    vfs.File
	off  int64
	n    int64
}

type records struct {
	log     *Log
	handles *handles
	pieces  []piece
	first   [1]piece // the store of pieces for most reads
	n       int64
	pooled  []*[]byte
	one     [1]*[]byte
}

func newRecords(l *Log) *records {
	r := &records{log: l, handles: l.store.handles}
	r.pieces, r.pooled = r.first[:0], r.one[:0]
	return r
}

// add takes n bytes at off of a segment.
func (r *records) add(s *segment, off, n int64) error {
	f, err := r.handles.acquire(&s.file)
	if err != nil {
		return err
	}
	r.n += n
	if n > smallPiece && !r.handles.crowded() {
		r.pieces = append(r.pieces, piece{file: &s.file, f: f, off: off, n: n})
		return nil
	}
	defer r.handles.release(&s.file)
	var mem []byte
	if n <= smallPiece {
		buf := smallPool.Get().(*[]byte)
		r.pooled = append(r.pooled, buf)
		mem = (*buf)[:n]
	} else {
		mem = make([]byte, n)
	}
	r.pieces = append(r.pieces, piece{mem: mem, n: n})
	return readFull(f, mem, off)
}

// Len is the number of bytes.
func (r *records) Len() int { return int(r.n) }

// Memory is all bytes if they were read into memory in one piece, else nil; valid until Release.
func (r *records) Memory() []byte {
	if len(r.pieces) != 1 {
		return nil
	}
	return r.pieces[0].mem
}

// AppendTo copies all bytes to the end of buf.
func (r *records) AppendTo(buf []byte) ([]byte, error) {
	for _, p := range r.pieces {
		if p.file == nil {
			buf = append(buf, p.mem...)
			continue
		}
		at := len(buf)
		buf = append(buf, make([]byte, p.n)...)
		if err := readFull(p.f, buf[at:], p.off); err != nil {
			r.log.store.faults.note("read", r.log, err)
			return buf[:at], fmt.Errorf("%w: %w", ErrStorage, err)
		}
	}
	return buf, nil
}

// WriteTo writes all bytes. After an error the connection is of no use: the
// reader was promised Len bytes.
func (r *records) WriteTo(w io.Writer) (int64, error) {
	var done int64
	for _, p := range r.pieces {
		n, err := p.writeTo(w)
		done += n
		var fault *readFault
		if errors.As(err, &fault) {
			r.log.store.faults.note("read", r.log, fault.err)
			return done, fmt.Errorf("send records: %w: %w", ErrStorage, err)
		}
		if err != nil {
			return done, fmt.Errorf("send records: %w", err)
		}
	}
	return done, nil
}

// readFault is an error of the file, not of the connection.
type readFault struct{ err error }

func (e *readFault) Error() string { return e.err.Error() }
func (e *readFault) Unwrap() error { return e.err }

func (p *piece) writeTo(w io.Writer) (int64, error) {
	if p.file == nil {
		n, err := w.Write(p.mem)
		return int64(n), err
	}
	var sent int64
	if fd, ok := p.f.Fd(); ok {
		if conn, ok := w.(*net.TCPConn); ok {
			n, handled, err := sendfile(conn, fd, p.off, p.n)
			if handled {
				return n, err
			}
			sent = n
		}
	}
	buf := copyPool.Get().(*[]byte)
	defer copyPool.Put(buf)
	for sent < p.n {
		b := (*buf)[:min(int64(len(*buf)), p.n-sent)]
		if err := readFull(p.f, b, p.off+sent); err != nil {
			return sent, &readFault{err}
		}
		n, err := w.Write(b)
		sent += int64(n)
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// Release gives buffers and files back.
func (r *records) Release() {
	for _, p := range r.pieces {
		if p.file != nil {
			r.handles.release(p.file)
		}
	}
	for _, b := range r.pooled {
		smallPool.Put(b)
	}
	r.pieces, r.pooled, r.n = nil, nil, 0
}
