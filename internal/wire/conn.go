package wire

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is one client connection. Handlers may use its exported methods from any goroutine, also after it ended.
//
// It has one goroutine, the reader, which reads frames and runs handlers. Whoever finds replies ready and nobody
// writing becomes the writer until there are none left: the reader for replies decided while it handled them, a
// goroutine started for the purpose for those decided later. An idle connection therefore costs one goroutine and
// no buffer.
type Conn struct {
	id       uint64
	listener string
	remote   net.Addr
	srv      *Server
	sock     net.Conn
	in       frameReader
	ctx      context.Context
	cancel   context.CancelFunc
	log      *slog.Logger

	lastClientID string // of the reader

	lastActive atomic.Int64  // Server.clock at the last complete frame or written reply
	sent       atomic.Uint64 // bytes
	watch      watch         // of the sweep
	spare      outgoing      // of the writer: empty slices to use again
	pieces     net.Buffers   // of the writer: what a write has of room
	room       [][]byte      // of the writer: empty, to use again

	mu   sync.Mutex
	turn sync.Cond // of mu: something that the reader may wait for has changed
	// queue holds requests in order, from when they start until their reply moves to out.
	queue     fifo
	undecided int  // of queue
	exclusive bool // the last undecided one is not pipelined
	handling  *pending
	out       outgoing
	unsent    outgoingSize // out and what the writer has taken
	writing   bool
	muted     time.Time // throttled until
	ending    bool      // no further request starts; the reader closes when all before is written
	last      bool      // the last reply is in out or sent
	closed    bool
	reason    error
	software  Software
	values    map[any]any
}

// Detached is a connection without a socket, for handlers called by something else than a client: tests and
// requests from inside.
func Detached(ctx context.Context, listener string, remote net.Addr) *Conn {
	c := &Conn{listener: listener, remote: remote, ctx: ctx, cancel: func() {}}
	c.turn.L = &c.mu
	return c
}

// ID rises with each accepted connection.
func (c *Conn) ID() uint64 { return c.id }

// Listener is the name of the listener that accepted it.
func (c *Conn) Listener() string { return c.listener }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Context ends when the connection does or the server stops.
func (c *Conn) Context() context.Context { return c.ctx }

// Software is what ApiVersions v3 and later said, empty before.
func (c *Conn) Software() (name, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.software.Name, c.software.Version
}

// SetSoftware is called by the handler of ApiVersions, which has checked both.
func (c *Conn) SetSoftware(name, version string) {
	now := Software{strings.ToValidUTF8(name, "?"), strings.ToValidUTF8(version, "?")}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.software = now
}

// Value returns what SetValue kept under key, nil if nothing. Keys are of a type of the caller's, as in context.
func (c *Conn) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values[key]
}

// SetValue keeps a value for the life of the connection.
func (c *Conn) SetValue(key, value any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[any]any{}
	}
	c.values[key] = value
}
