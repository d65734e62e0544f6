package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// acknowledged is how many bytes the peer's TCP has acknowledged, 0 if unknown.
func acknowledged(sock net.Conn) (n uint64) {
	tcp, ok := sock.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}
