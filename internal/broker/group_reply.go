package broker

import (
	"net"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// releaseGroup calls answer once this broker may speak for its groups, with what the coordinator said, or with
// ErrNotCoordinator when another process took over.
func (b *Broker) releaseGroup(said error, answer func(err error)) {
	b.release(func(err error) {
		if err != nil {
			said = coordinator.ErrNotCoordinator
		}
		answer(said)
	})
}

// clientHost is the client's address as Kafka prints it in group descriptions: "/10.0.0.7".
func clientHost(c *wire.Conn) string {
	switch a := c.RemoteAddr().(type) {
	case *net.TCPAddr:
		return "/" + a.IP.String()
	case nil:
		return ""
	default:
		return "/" + a.String()
	}
}

// orEmpty is the text behind a nullable field.
func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
