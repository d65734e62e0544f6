package wire

import (
	"fmt"
	"net"
	"time"
)

// outgoing is what waits for the socket, in order.
type outgoing struct {
	segments []segment
	requests []*pending
	size     outgoingSize
	since    time.Time // when the oldest reply came
}

type outgoingSize struct {
	replies int
	bytes   int64
	memory  int64 // bytes that are no payload
}

// collectLocked moves the replies that are ready, up to the first that is not, from queue to out.
func (c *Conn) collectLocked() {
	for !c.last && c.queue.len() > 0 && c.queue.front().ready {
		p := c.queue.pop()
		if len(c.out.requests) == 0 {
			c.out.since = p.decided
		}
		c.out.requests = append(c.out.requests, p)
		for _, s := range p.reply.segments {
			c.out.append(s)
		}
		p.reply.segments = nil
		c.out.size.replies++
		c.out.size.bytes += p.reply.bytes
		c.unsent.replies++
		c.unsent.bytes += p.reply.bytes
		c.out.size.memory += p.reply.memory
		c.unsent.memory += p.reply.memory
		if p.reply.throttle > 0 {
			c.muted = time.Now().Add(p.reply.throttle)
		}
		if p.reply.err != nil {
			c.reason, c.ending, c.last = p.reply.err, true, true
		}
	}
}

// append adds a segment; small ones are copied to the end of the one before.
func (o *outgoing) append(s segment) {
	if s.buf != nil && len(o.segments) > 0 {
		if last := &o.segments[len(o.segments)-1]; last.buf != nil && len(s.buf.b) <= smallReply &&
			len(last.buf.b)+len(s.buf.b) <= readBufferBytes {
			last.buf.b = append(last.buf.b, s.buf.b...)
			s.release()
			return
		}
	}
	o.segments = append(o.segments, s)
}

// flush writes what is ready if nobody does.
func (c *Conn) flush() {
	c.mu.Lock()
	start := c.out.size.replies > 0 && !c.writing && !c.closed
	if start {
		c.writing = true
	}
	c.mu.Unlock()
	if start {
		c.write()
	}
}

// write sends until nothing is left. The caller has set writing.
func (c *Conn) write() {
	for {
		c.mu.Lock()
		if c.closed || c.out.size.replies == 0 {
			c.writing = false
			last := c.last
			c.turn.Broadcast()
			c.mu.Unlock()
			if last {
				c.endReads()
			}
			return
		}
		taken := c.out
		c.out = c.spare
		c.mu.Unlock()

		err := c.send(taken.segments)
		now := time.Now()
		c.lastActive.Store(c.srv.clock())
		for i, p := range taken.requests {
			p.report(now, err != nil)
			taken.requests[i] = nil
		}
		c.mu.Lock()
		c.unsent.replies -= taken.size.replies
		c.unsent.bytes -= taken.size.bytes
		c.unsent.memory -= taken.size.memory
		c.spare = outgoing{segments: taken.segments[:0], requests: taken.requests[:0]}
		c.turn.Broadcast()
		c.mu.Unlock()
		if err != nil {
			c.close(err)
		}
	}
}

// send writes segments in order and releases all of them, whatever happens.
func (c *Conn) send(segments []segment) error {
	defer func() {
		for i := range segments {
			segments[i].release()
		}
	}()
	pieces := &c.pieces
	*pieces = c.room[:0]
	for i := range segments {
		s := &segments[i]
		switch {
		case s.payload == nil && s.buf != nil:
			*pieces = append(*pieces, s.buf.b)
		case s.payload == nil:
			*pieces = append(*pieces, s.bytes)
		case s.memory() != nil:
			*pieces = append(*pieces, s.memory())
		case s.length <= copyBelow:
			buf := getBuffer(s.length)
			b, err := s.payload.AppendTo(buf.b)
			if err == nil && len(b) != s.length {
				err = fmt.Errorf("payload of %d bytes gave %d", s.length, len(b))
			}
			if err != nil {
				return fmt.Errorf("read payload: %w", err)
			}
			buf.b = b
			s.buf = buf
			*pieces = append(*pieces, b)
		default:
			if err := c.writePieces(pieces); err != nil {
				return err
			}
			n, err := s.payload.WriteTo(c.sock)
			c.sent.Add(uint64(n))
			if err != nil {
				return &goneError{fmt.Errorf("write payload: %w", err)}
			}
			if n != int64(s.length) {
				return fmt.Errorf("payload of %d bytes wrote %d", s.length, n)
			}
		}
	}
	return c.writePieces(pieces)
}

// memory is where all bytes of a payload lie, or nil.
func (s *segment) memory() []byte {
	p, ok := s.payload.(memoryPayload)
	if !ok {
		return nil
	}
	b := p.Memory()
	if len(b) != s.length {
		return nil
	}
	return b
}

// keptPieces is for how many pieces a connection keeps memory between writes.
const keptPieces = 64

// writePieces sends with one writev where the system has it.
func (c *Conn) writePieces(pieces *net.Buffers) error {
	var n int64
	var err error
	all := *pieces // WriteTo takes what it has written off the slice
	switch len(all) {
	case 0:
		return nil
	case 1:
		var m int
		m, err = c.sock.Write(all[0])
		n = int64(m)
	default:
		n, err = pieces.WriteTo(c.sock)
	}
	if clear(all); cap(all) > keptPieces {
		all = nil
	}
	c.room, *pieces = all, all[:0]
	c.sent.Add(uint64(n))
	if err != nil {
		return &goneError{fmt.Errorf("write reply: %w", err)}
	}
	return nil
}

// close ends the connection once. Replies that are not sent are released; requests that run keep their frames
// until they answer.
func (c *Conn) close(reason error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	if c.reason == nil {
		c.reason = reason
	}
	reason = c.reason
	var unsent []*pending
	for c.queue.len() > 0 {
		if p := c.queue.pop(); p.ready {
			unsent = append(unsent, p)
		}
	}
	out := c.out
	c.out = outgoing{}
	c.turn.Broadcast()
	c.mu.Unlock()

	c.cancel()
	_ = c.sock.Close()
	for i := range out.segments {
		out.segments[i].release()
	}
	for _, p := range append(out.requests, unsent...) {
		p.drop()
	}
	c.srv.forget(c, reason)
}

// fifo is a queue of requests that keeps its memory.
type fifo struct {
	items []*pending
	head  int
}

func (q *fifo) len() int        { return len(q.items) - q.head }
func (q *fifo) front() *pending { return q.items[q.head] }

func (q *fifo) push(p *pending) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, p)
}

func (q *fifo) pop() *pending {
	p := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return p
}
