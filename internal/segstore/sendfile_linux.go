package segstore

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// sendfileChunk bounds one call, so that a fast peer does not hold a thread.
const sendfileChunk = 4 << 20

// sendfile sends n bytes at off of a file by explicit offset, so that many can
// share the descriptor (net.TCPConn.ReadFrom would move its one position).
// handled is false if the kernel cannot do it and nothing was sent.
func sendfile(conn *net.TCPConn, fd uintptr, off, n int64) (sent int64, handled bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, true, err
	}
	var fault error
	err = raw.Write(func(sock uintptr) bool {
		for sent < n {
			at := off + sent
			m, err := syscall.Sendfile(int(sock), int(fd), &at, int(min(n-sent, sendfileChunk)))
			switch {
			case m > 0:
				sent += int64(m)
			case err == syscall.EAGAIN:
				return false
			case err == syscall.EINTR:
			case err == nil:
				fault = &readFault{io.ErrUnexpectedEOF}
				return true
			case ofFile(err):
				fault = &readFault{os.NewSyscallError("sendfile", err)}
				return true
			default:
				fault = err
				return true
			}
		}
		return true
	})
	if sent == 0 && (errors.Is(fault, syscall.EINVAL) || errors.Is(fault, syscall.ENOSYS) || errors.Is(fault, syscall.EOPNOTSUPP)) {
		return 0, false, nil
	}
	if err == nil {
		err = fault
	}
	return sent, true, err
}

// ofFile says whether an error of sendfile is one that a file system gives and
// a socket does not: a bad sector, a bad checksum (ext4 and XFS name it EBADMSG
// and EUCLEAN), or a file that is no longer there for this machine.
func ofFile(err error) bool {
	switch err {
	case syscall.EIO, syscall.EBADMSG, syscall.EUCLEAN, syscall.ESTALE, syscall.ENODATA, syscall.EREMOTEIO, syscall.ENXIO:
		return true
	}
	return false
}
