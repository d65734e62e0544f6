//go:build unix

package wire

import (
	"io"
	"net"
	"syscall"
)

// tcpSource waits for a socket to be readable before it takes a buffer, so that ten thousand idle connections hold
// no read buffers. It costs no system call more than a plain read: both try first and park on EAGAIN.
type tcpSource struct {
	*net.TCPConn
	raw  syscall.RawConn
	read func(fd uintptr) bool // tryRead, bound once

	// The call in progress; one goroutine reads.
	to  *frameReader
	n   int
	err error
}

func newSource(c net.Conn) source {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return plainSource{c}
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return plainSource{c}
	}
	s := &tcpSource{TCPConn: t, raw: raw}
	s.read = s.tryRead
	return s
}

func (s *tcpSource) wait(fr *frameReader) (int, error) {
	s.to, s.n, s.err = fr, 0, nil
	err := s.raw.Read(s.read)
	s.to = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, s.err
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// tryRead reads what is there; false parks the goroutine until there is more.
func (s *tcpSource) tryRead(fd uintptr) bool {
	for {
		n, err := syscall.Read(int(fd), s.to.room())
		switch err {
		case nil:
			s.n = n
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			s.to.rest()
			return false
		default:
			s.err = err
			return true
		}
	}
}
