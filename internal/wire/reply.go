package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pending is a request from its frame to its written reply.
type pending struct {
	Request
	conn     *Conn
	route    *route
	frame    *frame
	body     []byte // of the frame
	mismatch bool   // an ApiVersions of an unknown version

	started, decided time.Time
	bytesIn          int64
	name             string

	// Guarded by conn.mu, except while whoever set taken works on it.
	taken bool // finish was called
	ready bool // reply is complete
	reply reply
	first [1]segment // memory for the reply's first segment, mostly its only one
}

// reply is what goes out for one request: nothing, bytes, or bytes with payloads between them.
type reply struct {
	segments []segment
	bytes    int64
	memory   int64 // bytes that are no payload
	throttle time.Duration
	err      error // close after it
}

// segment is a stretch of a reply: a pooled buffer, a handler's bytes, or a payload.
type segment struct {
	buf     *buffer
	bytes   []byte
	payload Payload
	length  int // of payload
}

func (s *segment) release() {
	putBuffer(s.buf)
	if s.payload != nil {
		s.payload.Release()
	}
	*s = segment{}
}

func (r *reply) release() {
	for i := range r.segments {
		r.segments[i].release()
	}
	r.segments = nil
}

// requestName tells a follower's Fetch from a consumer's.
func requestName(rt *route, msg kmsg.Request) string {
	if f, ok := msg.(*kmsg.FetchRequest); ok && (f.ReplicaID >= 0 && f.Version < 15 || f.ReplicaState.ID >= 0 && f.Version >= 15) {
		return "FetchFollower"
	}
	return rt.name
}

// finish is the handler's Done.
func (p *pending) finish(resp Response, err error) {
	c := p.conn
	if !p.take() {
		releaseParts(resp.Body)
		c.log.Error("handler answered twice", "api", p.route.name, "stack", string(debug.Stack()))
		return
	}
	p.decided = time.Now()
	if m := c.srv.metrics; m != nil && resp.Msg != nil && !p.mismatch {
		m.answered(p.Key, p.name, resp.Msg)
	}
	r, encodeErr := p.encode(resp)
	if err == nil {
		err = encodeErr
	}
	r.err, r.throttle = err, resp.Throttle
	p.frame.release()
	p.body = nil

	c.mu.Lock()
	p.reply, p.ready = r, true
	c.undecided--
	if c.closed {
		c.mu.Unlock()
		p.drop()
		return
	}
	c.collectLocked()
	start := c.out.size.replies > 0 && !c.writing && c.handling != p
	if start {
		c.writing = true
		c.srv.writers.Add(1)
	}
	c.turn.Broadcast()
	c.mu.Unlock()
	if start {
		go func() {
			defer c.srv.writers.Done()
			c.write()
		}()
	}
}

// take marks p as answered; false if it was.
func (p *pending) take() bool {
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	was := p.taken
	p.taken = true
	return !was
}

// abandon is called for a request whose handler panicked. Its frame is left to the garbage collector, since
// something of the handler may still run; only its share of the budget is given back.
func (p *pending) abandon() {
	if p.take() {
		p.frame.lease.give()
		p.conn.mu.Lock()
		p.conn.undecided--
		p.conn.mu.Unlock()
	}
}

// drop is for a reply that cannot be sent any more.
func (p *pending) drop() {
	p.reply.release()
	p.report(time.Now(), true)
}

// report tells the observer.
func (p *pending) report(now time.Time, failed bool) {
	p.conn.srv.observer.RequestDone(RequestStats{
		Key: p.Key, Version: p.Version, Name: p.name,
		Total: now.Sub(p.Received), Queue: p.started.Sub(p.Received),
		Handler: p.decided.Sub(p.started), Send: now.Sub(p.decided),
		BytesIn: p.bytesIn, BytesOut: p.reply.bytes, Failed: failed,
	})
}

func releaseParts(parts []Part) {
	for _, part := range parts {
		if part.Payload != nil {
			part.Payload.Release()
		}
	}
}

const (
	smallReply = 512
	// copyBelow is the size up to which bytes are copied next to their neighbours rather than given to the kernel
	// as a piece, or a system call, of their own.
	copyBelow = 16 << 10
)

// encode makes the reply. It runs on the goroutine that called Done, under no lock.
func (p *pending) encode(resp Response) (r reply, err error) {
	buf := getBuffer(smallReply)
	defer func() {
		if v := recover(); v != nil {
			r.release()
			releaseParts(resp.Body)
			r, err = reply{}, fmt.Errorf("encode %s v%d: panic: %v\n%s", p.route.name, p.Version, v, debug.Stack())
		}
	}()
	switch {
	case p.mismatch:
		buf.b = appendVersionsMismatch(buf.b, p.route, p.CorrelationID)
	case resp.Msg != nil:
		resp.Msg.SetVersion(p.Version)
		buf.b = appendReplyHeader(buf.b, p.route, p.Version, p.CorrelationID)
		buf.b = resp.Msg.AppendTo(buf.b)
	case len(resp.Body) > 0:
		return p.encodeParts(buf, resp.Body)
	default:
		putBuffer(buf)
		return reply{}, nil
	}
	r = p.begin(buf)
	r.memory = r.bytes
	return r, r.setLength(buf.b)
}

// begin is a reply that begins with buf.
func (p *pending) begin(buf *buffer) reply {
	p.first[0] = segment{buf: buf}
	return reply{segments: p.first[:], bytes: int64(len(buf.b))}
}

// encodeParts strings a body of parts together.
func (p *pending) encodeParts(buf *buffer, parts []Part) (reply, error) {
	buf.b = appendReplyHeader(buf.b, p.route, p.Version, p.CorrelationID)
	first := buf
	r := p.begin(buf)
	payloads := int64(0)
	for _, part := range parts {
		switch n := len(part.Bytes); {
		case part.Bytes == nil && part.Payload == nil:
		case part.Bytes == nil:
			n := part.Payload.Len()
			r.segments = append(r.segments, segment{payload: part.Payload, length: n})
			r.bytes, payloads = r.bytes+int64(n), payloads+int64(n)
			buf = nil
		case n > copyBelow:
			r.segments = append(r.segments, segment{bytes: part.Bytes})
			r.bytes += int64(n)
			buf = nil
		default:
			if buf == nil {
				buf = getBuffer(max(n, smallReply))
				r.segments = append(r.segments, segment{buf: buf})
			}
			buf.b = append(buf.b, part.Bytes...)
			r.bytes += int64(n)
		}
	}
	r.memory = r.bytes - payloads
	return r, r.setLength(first.b)
}

var errReplyTooLong = errors.New("reply is longer than a frame can be")

// setLength writes the frame length to the start of head.
func (r *reply) setLength(head []byte) error {
	if r.bytes-4 > 1<<31-1 {
		r.release()
		return errReplyTooLong
	}
	binary.BigEndian.PutUint32(head, uint32(r.bytes-4))
	return nil
}
