package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Limits; the first three are Kafka's.
const (
	DefaultMaxRequestBytes = 100 << 20
	DefaultMaxConnections  = 1<<31 - 1
	DefaultMaxIdle         = 10 * time.Minute
	DefaultQueuedBytes     = 256 << 20
	DefaultMaxInFlight     = 128
)

// stallTime is how long a client may take no byte of a waiting reply, or leave a frame that others wait for
// unfinished.
const stallTime = time.Minute

// Options of a Server.
type Options struct {
	Registry *Registry
	Limits   Limits
	Log      *slog.Logger
	// Registerer gets the metrics of this package; nil for none.
	Registerer prometheus.Registerer
	// Throttle says of a connection that is about to be served whether its address makes too many, and then for how long it
	// is kept, without a word, before it is closed; nil for no such limit. Calls overlap.
	Throttle func(netip.Addr) time.Duration
	// Observer hears of each request and connection besides the metrics; nil for nobody.
	Observer Observer
}

// Server accepts connections and serves their requests. Order of use: Listen, Serve; then StopAccepting, Drain,
// Close, each of which may be left out.
type Server struct {
	registry *Registry
	limits   Limits
	log      *slog.Logger
	observer Observer
	metrics  *metrics // nil without a Registerer
	queued   budget
	refused  logGate
	throttle func(netip.Addr) time.Duration
	held     atomic.Int64 // connections that only wait to be closed
	started  time.Time

	draining atomic.Bool
	drain    chan struct{} // closed with draining
	done     chan struct{} // closed by Close
	lastID   atomic.Uint64
	readers  sync.WaitGroup
	writers  sync.WaitGroup
	loops    sync.WaitGroup

	mu        sync.Mutex
	ctx       context.Context // of Serve; nil before
	cancel    context.CancelFunc
	listeners []*listener
	conns     map[*Conn]struct{}
	byAddress map[netip.Addr]int
	accepting bool
	closed    bool
}

type listener struct {
	name string
	net.Listener
}

// NewServer makes a server. It panics if its metrics are registered already.
func NewServer(o Options) *Server {
	s := &Server{
		registry: o.Registry, limits: o.Limits.withDefaults(), log: o.Log, observer: o.Observer, throttle: o.Throttle,
		started: time.Now(),
		drain:   make(chan struct{}), done: make(chan struct{}),
		conns: map[*Conn]struct{}{}, byAddress: map[netip.Addr]int{},
		accepting: true,
	}
	s.queued.max = s.limits.QueuedBytes
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.observer == nil {
		s.observer = silent{}
	}
	if o.Registerer != nil {
		s.metrics = newMetrics(s, s.observer)
		s.observer = s.metrics
		o.Registerer.MustRegister(s.metrics)
	}
	return s
}

func (l Limits) withDefaults() Limits {
	if l.MaxRequestBytes <= 0 {
		l.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if l.MaxConnections <= 0 {
		l.MaxConnections = DefaultMaxConnections
	}
	if l.MaxConnectionsByIP <= 0 {
		l.MaxConnectionsByIP = DefaultMaxConnections
	}
	if l.MaxIdle == 0 {
		l.MaxIdle = DefaultMaxIdle
	}
	if l.QueuedBytes <= 0 {
		l.QueuedBytes = DefaultQueuedBytes
	}
	if l.MaxInFlight <= 0 {
		l.MaxInFlight = DefaultMaxInFlight
	}
	return l
}

// clock is the monotonic time since the server was made, in nanoseconds.
func (s *Server) clock() int64 { return int64(time.Since(s.started)) }

// Listen binds all addresses or none. Clients may connect from now on and are served by Serve.
func (s *Server) Listen(ctx context.Context, ls []Listener) error {
	var bound []*listener
	var config net.ListenConfig
	for _, l := range ls {
		n, err := config.Listen(ctx, "tcp", l.Address)
		if err != nil {
			for _, b := range bound {
				_ = b.Close()
			}
			return fmt.Errorf("listener %s on %s: %w", l.Name, l.Address, err)
		}
		bound = append(bound, &listener{name: l.Name, Listener: n})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.accepting {
		for _, b := range bound {
			_ = b.Close()
		}
		return errors.New("listen: the server was stopped")
	}
	s.listeners = append(s.listeners, bound...)
	return nil
}

// Addr is the address that the named listener is bound to, with the port that the system chose; nil before Listen
// and for an unknown name.
func (s *Server) Addr(name string) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if l.name == name {
			return l.Addr()
		}
	}
	return nil
}

// Serve accepts and serves until Close, or until ctx ends, which closes everything at once; stop with StopAccepting
// and Drain first to let requests finish. It returns when no goroutine of the server is left.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	if s.ctx != nil || s.closed {
		s.mu.Unlock()
		return errors.New("serve: the server was started or closed before")
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	listeners := s.listeners
	s.loops.Add(len(listeners) + 1)
	s.mu.Unlock()
	for _, l := range listeners {
		go func() {
			defer s.loops.Done()
			s.accept(l)
		}()
	}
	go func() {
		defer s.loops.Done()
		s.sweep()
	}()
	select {
	case <-ctx.Done():
	case <-s.done:
	}
	s.Close()
	return nil
}

// StopAccepting closes the listeners. Connections stay.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	s.accepting = false
	listeners := s.listeners
	s.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
}

// Drain starts no new requests, lets those that started be answered and the clients read the answers, and closes
// the connections. It returns when all are closed, or with ctx's error when it ends.
func (s *Server) Drain(ctx context.Context) error {
	s.StopAccepting()
	if s.draining.CompareAndSwap(false, true) {
		close(s.drain)
	}
	for _, c := range s.connections() {
		c.endReads()
		c.mu.Lock()
		c.turn.Broadcast()
		c.mu.Unlock()
	}
	drained := make(chan struct{})
	go func() {
		s.readers.Wait()
		close(drained)
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: %d connections are still busy: %w", len(s.connections()), ctx.Err())
	}
}

// Close ends all connections at once and waits for the server's goroutines. Handlers that have not answered may
// still do so, to nobody. It may be called more than once.
func (s *Server) Close() {
	s.StopAccepting()
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	for _, c := range s.connections() {
		c.close(nil)
	}
	s.loops.Wait()
	s.readers.Wait()
	s.writers.Wait()
}

// connections is a snapshot.
func (s *Server) connections() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}
