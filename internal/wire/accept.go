package wire

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second

	maxHeldBack = 1_000 // connections; further ones are closed at once
)

// accept serves one listener until it is closed.
func (s *Server) accept(l *listener) {
	pause := time.Duration(0)
	for {
		sock, err := l.Accept()
		if err == nil {
			pause = 0
			s.admit(l.name, sock)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors or memory, most likely: clients wait in the backlog meanwhile.
		pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
		if ok, more := s.refused.open(time.Now()); ok {
			s.log.Warn("accept: trying again", "listener", l.name, "pause", pause, "err", err, "suppressed", more)
		}
		select {
		case <-time.After(pause):
		case <-s.done:
			return
		}
	}
}

// admit starts serving a connection, or closes it if that would be one too many.
func (s *Server) admit(name string, sock net.Conn) {
	address := addressOf(sock)
	if s.throttle != nil {
		if wait := s.throttle(address); wait > 0 {
			s.reject(LimitConnectionRate, name, sock.RemoteAddr())
			s.holdBack(sock, wait)
			return
		}
	}
	s.mu.Lock()
	limit := ""
	switch {
	case s.closed || s.draining.Load():
		limit = "stopping"
	case len(s.conns) >= s.limits.MaxConnections:
		limit = LimitConnections
	case s.byAddress[address] >= s.limits.MaxConnectionsByIP:
		limit = LimitConnectionsByIP
	}
	if limit != "" {
		s.mu.Unlock()
		_ = sock.Close()
		if limit != "stopping" {
			s.reject(limit, name, sock.RemoteAddr())
		}
		return
	}
	c := s.newConn(name, sock)
	s.conns[c] = struct{}{}
	s.byAddress[address]++
	s.readers.Add(1)
	s.mu.Unlock()
	s.observer.ConnOpened(name)
	go func() {
		defer s.readers.Done()
		c.read()
	}()
}

// holdBack closes a connection after a while: a client that connects again at once is slowed down by that (KIP-612).
func (s *Server) holdBack(sock net.Conn, wait time.Duration) {
	if s.held.Add(1) > maxHeldBack {
		wait = 0
	}
	time.AfterFunc(wait, func() {
		_ = sock.Close()
		s.held.Add(-1)
	})
}

func (s *Server) reject(limit, listener string, remote net.Addr) {
	s.observer.Rejected(limit)
	if ok, more := s.refused.open(time.Now()); ok {
		s.log.Warn("connection refused: limit reached", "limit", limit, "listener", listener,
			"remote", remote.String(), "suppressed", more)
	}
}

func (s *Server) newConn(name string, sock net.Conn) *Conn {
	if tcp, ok := sock.(*net.TCPConn); ok {
		// TCP_NODELAY and keepalive are on by default.
		if n := s.limits.SendBuffer; n > 0 {
			_ = tcp.SetWriteBuffer(n)
		}
		if n := s.limits.ReceiveBuffer; n > 0 {
			_ = tcp.SetReadBuffer(n)
		}
	}
	c := &Conn{
		id: s.lastID.Add(1), listener: name, remote: sock.RemoteAddr(), srv: s, sock: sock, log: s.log,
	}
	c.turn.L = &c.mu
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.in = frameReader{src: newSource(sock), budget: &s.queued, max: s.limits.MaxRequestBytes, beforeWait: c.flush}
	c.lastActive.Store(s.clock())
	return c
}

// forget is called once by a connection that was closed.
func (s *Server) forget(c *Conn, reason error) {
	address := addressOf(c.sock)
	s.mu.Lock()
	delete(s.conns, c)
	if s.byAddress[address]--; s.byAddress[address] <= 0 {
		delete(s.byAddress, address)
	}
	s.mu.Unlock()
	s.logClose(c, reason)
	name, version := c.Software()
	s.observer.ConnClosed(c.listener, Software{name, version})
}

// logClose writes one line about a connection that did not end by the client's will, and not more than a few a
// second: hostile clients must not fill the log.
func (s *Server) logClose(c *Conn, reason error) {
	var gone *goneError
	switch {
	case reason == nil, errors.Is(reason, errDraining), errors.As(reason, &gone):
		s.log.Debug("connection closed", "listener", c.listener, "remote", c.remote.String(), "err", reason)
	default:
		if ok, more := s.refused.open(time.Now()); ok {
			s.log.Warn("connection closed", "listener", c.listener, "remote", c.remote.String(), "err", reason,
				"suppressed", more)
		}
	}
}

// addressOf is the client's address without its port, zero if it has none.
func addressOf(sock net.Conn) netip.Addr {
	if a, ok := sock.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
