package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"
)

const (
	// flushAfter bounds how long a reply waits for others that would share its write.
	flushAfter = 200 * time.Microsecond
	// maxUnsentBytes of replies may wait for the socket before no further request starts.
	maxUnsentBytes = 256 << 10
)

var (
	// errClosed: the connection ended while the reader was waiting.
	errClosed = errors.New("connection closed")
	// errEnding: a reply that ends the connection is on its way.
	errEnding = errors.New("connection ends after the last reply")
	// errDraining: the server stops.
	errDraining = errors.New("server stops")
)

// goneError is an end that the client or the network caused: nothing to warn of.
type goneError struct{ err error }

func (e *goneError) Error() string { return e.err.Error() }
func (e *goneError) Unwrap() error { return e.err }

// read is the reader: it owns the connection from accept to close.
func (c *Conn) read() {
	err := c.readFrames()
	var gone *goneError
	switch {
	case errors.Is(err, errClosed):
	case errors.As(err, &gone):
		c.close(err)
	default:
		c.finish(err)
	}
}

// readFrames serves requests until the stream, the connection or the server ends.
func (c *Conn) readFrames() error {
	for {
		if !c.in.buffered() {
			c.flush()
		}
		f, err := c.in.next(c.ctx)
		if err != nil {
			return c.readError(err)
		}
		c.lastActive.Store(c.srv.clock())
		if err := c.serve(f); err != nil {
			return err
		}
	}
}

// readError sorts an error of the frame reader.
func (c *Conn) readError(err error) error {
	var bad *badLengthError
	switch {
	case errors.As(err, &bad):
		c.srv.observer.Rejected(LimitRequestBytes)
		return err
	case !errors.Is(err, os.ErrDeadlineExceeded): // the reader sets no deadline: see endReads
		return &goneError{err}
	case c.srv.draining.Load():
		return errDraining
	}
	return errEnding
}

// endReads wakes the reader for good.
func (c *Conn) endReads() { _ = c.sock.SetReadDeadline(time.Unix(1, 0)) }

// serve parses a frame, waits until it may start, and runs its handler. It takes over the frame.
func (c *Conn) serve(f *frame) error {
	p := &pending{conn: c, frame: f, bytesIn: int64(len(f.bytes())) + 4}
	p.Conn, p.Received = c, time.Now()
	err := c.parse(p)
	if err == nil {
		err = c.awaitTurn(p)
	}
	if err != nil {
		f.release()
		return err
	}
	if !p.route.Pipelined {
		c.flush() // it may take its time
	}
	p.started = time.Now()
	if p.mismatch {
		p.finish(Response{}, nil)
	} else if err := p.decode(c.ctx); err != nil {
		if rich := (*tooRichError)(nil); errors.As(err, &rich) {
			c.srv.observer.Rejected(LimitQueuedBytes)
		}
		p.finish(Response{}, err)
	} else {
		c.handle(p)
	}
	c.mu.Lock()
	c.handling = nil
	late := c.out.size.replies > 0 && time.Since(c.out.since) > flushAfter
	full := c.unsent.bytes > maxUnsentBytes/2
	c.mu.Unlock()
	if late || full {
		c.flush()
	}
	return nil
}

// parse reads the header and finds the API.
func (c *Conn) parse(p *pending) error {
	h, rest, err := parseFixed(p.frame.bytes())
	if err != nil {
		return err
	}
	p.Key, p.Version, p.CorrelationID = h.key, h.version, h.correlationID
	p.route = c.srv.registry.lookup(h.key)
	if p.route == nil {
		return fmt.Errorf("api key %d is not served", h.key)
	}
	if !p.route.serves(h.version) {
		if p.mismatch = h.key == apiVersionsKey; p.mismatch {
			return nil
		}
		return fmt.Errorf("%s v%d is not served, only %d to %d", p.route.name, h.version, p.route.Min, p.route.Max)
	}
	if p.body, err = h.parseClient(rest, p.route.flexible(h.version)); err != nil {
		return fmt.Errorf("%s v%d: %w", p.route.name, h.version, err)
	}
	p.ClientID, p.name = c.clientID(h.clientID), p.route.name
	return nil
}

// clientID makes a string of a client id; a connection seldom has two.
func (c *Conn) clientID(b []byte) string {
	if string(b) != c.lastClientID {
		c.lastClientID = string(b)
	}
	return c.lastClientID
}

// awaitTurn waits until p may start and puts it in the queue. Pipelined requests wait for anything that is not,
// others for all; each waits while too much is in flight or not yet taken by the client.
func (c *Conn) awaitTurn(p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return errClosed
		case c.ending:
			return errEnding
		case c.srv.draining.Load():
			return errDraining
		case c.mustWaitLocked(p):
			if c.out.size.replies > 0 && !c.writing {
				c.writing = true
				c.mu.Unlock()
				c.write()
				c.mu.Lock()
				continue
			}
			c.turn.Wait()
		case !c.muted.IsZero():
			until := c.muted
			c.muted = time.Time{}
			c.mu.Unlock()
			c.pause(time.Until(until))
			c.mu.Lock()
		default:
			c.queue.push(p)
			c.undecided++
			c.exclusive = !p.route.Pipelined || p.mismatch
			c.handling = p
			return nil
		}
	}
}

func (c *Conn) mustWaitLocked(p *pending) bool {
	if c.undecided > 0 && (c.exclusive || !p.route.Pipelined || p.mismatch) {
		return true
	}
	return c.queue.len()+c.unsent.replies >= c.srv.limits.MaxInFlight || c.unsent.bytes > maxUnsentBytes
}

// pause flushes and waits, for a client over its quota.
func (c *Conn) pause(d time.Duration) {
	c.flush()
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	case <-c.srv.drain:
	}
}

// handle runs the handler. A panic ends this connection and no other.
func (c *Conn) handle(p *pending) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("handler panicked", "api", p.route.name, "version", p.Version, "panic", v,
				"stack", string(debug.Stack()))
			p.abandon()
			c.close(fmt.Errorf("handler of %s panicked", p.route.name))
		}
	}()
	p.route.Handle(c.ctx, &p.Request, p.finish)
}

// finish lets the requests that started be answered, then closes so that the client gets the answers.
func (c *Conn) finish(reason error) {
	c.mu.Lock()
	if c.reason == nil {
		c.reason = reason
	}
	c.ending = true
	for !c.closed && (c.queue.len() > 0 && !c.last || c.unsent.replies > 0) {
		if c.out.size.replies > 0 && !c.writing {
			c.writing = true
			c.mu.Unlock()
			c.write()
			c.mu.Lock()
			continue
		}
		c.turn.Wait()
	}
	closed := c.closed
	c.mu.Unlock()
	if !closed && c.sent.Load() > 0 {
		c.linger()
	}
	c.close(reason)
}

// linger ends the sending side and reads what the client has sent meanwhile: closing over unread bytes would reset
// the connection, and the client could lose replies that are on their way.
func (c *Conn) linger() {
	tcp, ok := c.sock.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil {
		return
	}
	_ = tcp.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, tcp, lingerBytes)
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 16 << 20
)
