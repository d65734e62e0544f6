package chaos

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// mortal dials for a client that may die as a process does: its connections end at once, no more come, and nothing that it
// still wants to say is heard.
type mortal struct {
	mu    sync.Mutex // guards the fields below
	dead  bool
	conns []net.Conn
}

func (m *mortal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		_ = c.Close()
		return nil, errors.New("this client is dead")
	}
	m.conns = append(m.conns, c)
	return c, nil
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		_ = c.Close()
	}
}
