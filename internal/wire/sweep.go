package wire

import (
	"fmt"
	"time"
)

const (
	minSweep = 10 * time.Millisecond
	maxSweep = time.Second
	// crowdedStall is how long a client may take no byte while the replies that wait for their clients take more memory
	// than requests may, and its own share is large.
	crowdedStall = 2 * time.Second
)

// watch is what the sweep remembers of a connection between its rounds, in Server.clock time.
type watch struct {
	writeSince, readSince int64
	written               uint64
	received, seen        uint64
}

// sweep closes idle and stalled connections. One goroutine looks at all of them, once a second: a timer for each
// read and write would cost more than the connections do.
func (s *Server) sweep() {
	every := maxSweep
	if s.limits.MaxIdle > 0 {
		every = min(max(s.limits.MaxIdle/8, minSweep), maxSweep)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-t.C:
		}
		now, pressed, conns := s.clock(), s.queued.pressed(), s.connections()
		held := unsentMemory(conns)
		for _, c := range conns {
			if limit, err := c.overdue(now, pressed, held > s.limits.QueuedBytes); err != nil {
				held -= unsentMemory([]*Conn{c})
				s.observer.Rejected(limit)
				c.close(&goneError{err})
			}
		}
	}
}

// unsentMemory is what all replies hold that wait for their clients.
func unsentMemory(conns []*Conn) (n int64) {
	for _, c := range conns {
		c.mu.Lock()
		n += c.unsent.memory
		c.mu.Unlock()
	}
	return n
}

// overdue says which limit of time the connection has passed. pressed means that others wait for memory of requests,
// crowded that replies take more than there is for them.
func (c *Conn) overdue(now int64, pressed, crowded bool) (limit string, err error) {
	c.mu.Lock()
	busy, writing := c.queue.len() > 0 || c.unsent.replies > 0, c.writing
	crowded = crowded && c.unsent.memory > maxUnsentBytes
	c.mu.Unlock()
	w := &c.watch
	received := c.in.progress.Load()
	if received != w.seen {
		w.seen = received
		c.lastActive.Store(now)
	}
	stall := int64(stallTime)
	if idle := int64(c.srv.limits.MaxIdle); idle > 0 {
		stall = min(stall, idle)
		if !busy && now-c.lastActive.Load() > idle {
			return LimitIdle, fmt.Errorf("idle for %v", time.Duration(now-c.lastActive.Load()).Round(time.Millisecond))
		}
	}
	taking := stall
	if crowded {
		taking = min(taking, int64(crowdedStall))
	}
	if !writing {
		w.writeSince = now
	} else if written := c.written(); written != w.written {
		w.written, w.writeSince = written, now
	} else if now-w.writeSince > taking {
		return LimitStalledWrite, fmt.Errorf("the client took no byte of its replies for %v", time.Duration(taking))
	}
	// A slow upload is welcome until others wait for the memory that it holds.
	if !c.in.uploading.Load() || !pressed {
		w.readSince = now
		w.received = received
	} else if now-w.readSince > stall {
		if received-w.received < uint64(stall/int64(time.Second))*minUploadRate {
			return LimitQueuedBytes, fmt.Errorf("a frame came too slowly while others waited for memory")
		}
		w.readSince, w.received = now, received
	}
	return "", nil
}

// minUploadRate in bytes per second.
const minUploadRate = 4 << 10

// written is a number that changes while the client takes bytes: those handed to the system, and where the system
// tells, those that the client has acknowledged, since one sendfile of a large payload is a single call.
func (c *Conn) written() uint64 { return c.sent.Load() + acknowledged(c.sock) }
