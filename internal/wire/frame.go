package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

const (
	readBufferBytes = 64 << 10
	// growth is how much more than has arrived a frame may hold: a client that claims 100 MiB and sends little
	// costs little, and a 1 MiB batch whose first 64 KiB are there is still read without copying.
	growth = 16
)

// frame is one request as it came, without its length. It owns its memory and its share of the budget.
type frame struct {
	buf   *buffer
	lease lease
}

func (f *frame) bytes() []byte { return f.buf.b }

// release gives memory and budget back. It is called once, when nothing points into the frame any more.
func (f *frame) release() {
	putBuffer(f.buf)
	f.buf = nil
	f.lease.give()
}

// frameReader cuts a byte stream into frames: a length of four bytes, then as many bytes. Many small frames come
// with one read; a large one is read to where it stays. While nothing is there it holds no buffer.
type frameReader struct {
	src    source
	budget *budget
	max    int32
	// beforeWait is called before next waits for memory.
	beforeWait func()

	buf  *buffer // nil while drained
	r, w int     // unread bytes are buf.b[r:w]

	total     uint64        // bytes received, by the reader's goroutine
	progress  atomic.Uint64 // the same for the sweep
	uploading atomic.Bool   // part of a frame is here, holds memory, and waits for more bytes
}

// source is the receiving side of a connection.
type source interface {
	// wait blocks until there is something to read or the stream ends, and reads into fr.room(). Before it
	// parks it may call fr.rest().
	wait(fr *frameReader) (int, error)
	io.Reader
}

// badLengthError is a first word that is no frame length; it says what it looks like instead.
type badLengthError struct {
	length int32
	max    int32
	first  bool // first word of the connection
}

func (e *badLengthError) Error() string {
	s := fmt.Sprintf("frame length %d is not within 1 to %d", e.length, e.max)
	if guess := e.guess(); guess != "" {
		s += "; " + guess
	}
	return s
}

// guess names the protocol that a wrong length comes from.
func (e *badLengthError) guess() string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(e.length))
	switch string(b[:]) {
	case "GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "PATC", "CONN":
		return "this is an HTTP request, the listener speaks the Kafka protocol"
	case "PRI ":
		return "this is HTTP/2, the listener speaks the Kafka protocol"
	case "SSH-":
		return "this is SSH, the listener speaks the Kafka protocol"
	case "PROX":
		return "this is a PROXY protocol header, which the listener does not expect"
	}
	if b[0] == 0x16 && b[1] == 0x03 {
		return "this is a TLS hello, the listener is plaintext: check the client's security.protocol"
	}
	return ""
}

// buffered says whether next returns without reading.
func (fr *frameReader) buffered() bool {
	if fr.w-fr.r < 4 {
		return false
	}
	n := binary.BigEndian.Uint32(fr.buf.b[fr.r:])
	return n > uint32(fr.max) || fr.w-fr.r-4 >= int(n)
}

// next returns the next frame. io.EOF means that the stream ended between frames, *badLengthError that it is not
// ours. ctx ends the wait for memory.
func (fr *frameReader) next(ctx context.Context) (*frame, error) {
	for fr.w-fr.r < 4 {
		if err := fr.fill(); err != nil {
			if errors.Is(err, io.EOF) && fr.w > fr.r {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	length := int32(binary.BigEndian.Uint32(fr.buf.b[fr.r:]))
	if length <= 0 || length > fr.max {
		return nil, &badLengthError{length: length, max: fr.max, first: fr.total == uint64(fr.w-fr.r)}
	}
	fr.r += 4
	f := &frame{}
	err := fr.read(ctx, f, int(length))
	if err != nil {
		if f.buf != nil {
			f.release()
		}
		return nil, err
	}
	fr.idle()
	return f, nil
}

// read fills f with n bytes, the buffered ones first.
func (fr *frameReader) read(ctx context.Context, f *frame, n int) error {
	// A frame that fits is completed in the read buffer, since what follows it comes with the same read.
	for n+4 <= readBufferBytes && fr.w-fr.r < n {
		if err := fr.fill(); err != nil {
			return cut(err)
		}
	}
	if fr.w == fr.r { // nothing is allocated for a length alone
		if err := fr.fill(); err != nil {
			return cut(err)
		}
	}
	have := min(fr.w-fr.r, n)
	if err := fr.grow(ctx, f, n, have); err != nil {
		return err
	}
	f.buf.b = append(f.buf.b, fr.buf.b[fr.r:fr.r+have]...)
	fr.r += have
	fr.idle()
	defer fr.uploading.Store(false)
	for len(f.buf.b) < n {
		have := len(f.buf.b)
		if have == cap(f.buf.b) {
			fr.uploading.Store(false)
			if err := fr.grow(ctx, f, n, have); err != nil {
				return err
			}
		}
		fr.uploading.Store(true)
		m, err := fr.src.Read(f.buf.b[have:min(n, cap(f.buf.b))])
		f.buf.b = f.buf.b[:have+m]
		fr.count(m)
		if err != nil && have+m < n {
			return cut(err)
		}
	}
	return nil
}

// grow gives f room for what may come after have bytes of n.
func (fr *frameReader) grow(ctx context.Context, f *frame, n, have int) error {
	want := bufferSize(min(n, growth*have))
	if err := fr.budget.take(ctx, &f.lease, int64(want)-f.lease.held, fr.beforeWait); err != nil {
		return err
	}
	next := getBuffer(want)
	if f.buf != nil {
		next.b = append(next.b, f.buf.b...)
		putBuffer(f.buf)
	}
	f.buf = next
	return nil
}

// fill reads once into the read buffer.
func (fr *frameReader) fill() error {
	n, err := fr.src.wait(fr)
	fr.w += n
	fr.count(n)
	if n > 0 {
		return nil
	}
	fr.idle()
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// room returns where to read to, taking a buffer when there is none or a small one.
func (fr *frameReader) room() []byte {
	if fr.buf == nil || cap(fr.buf.b) < readBufferBytes {
		fr.move(getBuffer(readBufferBytes))
	}
	b := fr.buf.b[:cap(fr.buf.b)]
	fr.buf.b = b
	if fr.r > 0 && len(b)-fr.w < len(b)/2 {
		fr.w = copy(b, b[fr.r:fr.w])
		fr.r = 0
	}
	return b[fr.w:]
}

// rest is called before a wait that may be long: what is there of a small frame moves to a small buffer.
func (fr *frameReader) rest() {
	fr.idle()
	if n := fr.w - fr.r; n > 0 && n <= readBufferBytes/4 && cap(fr.buf.b) >= readBufferBytes {
		fr.move(getBuffer(n))
	}
}

// move takes the unread bytes to another buffer.
func (fr *frameReader) move(to *buffer) {
	if fr.buf != nil {
		to.b = append(to.b, fr.buf.b[fr.r:fr.w]...)
		putBuffer(fr.buf)
	}
	fr.buf, fr.r, fr.w = to, 0, fr.w-fr.r
}

// idle gives the read buffer back if nothing is in it.
func (fr *frameReader) idle() {
	if fr.r == fr.w {
		putBuffer(fr.buf)
		fr.buf, fr.r, fr.w = nil, 0, 0
	}
}

func (fr *frameReader) count(n int) {
	fr.total += uint64(n)
	fr.progress.Store(fr.total)
}

// cut turns an end of stream inside a frame into one that says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// plainSource reads from any connection; it holds a buffer while it waits.
type plainSource struct{ net.Conn }

func (s plainSource) wait(fr *frameReader) (int, error) { return s.Read(fr.room()) }
