//go:build !unix

package wire

import "net"

func newSource(c net.Conn) source { return plainSource{c} }
