package broker

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// release calls answer once this broker may speak for what it leads: at once while the lease is trusted, after a
// short wait while Postgres is silent, with errNotLeader when another process took over (replication.md 6.2 (3) in
// docs/architecture.md's words: an answer is never given by a process that may have been replaced).
func (b *Broker) release(answer func(err error)) {
	if b.lease.MayAnswer() {
		answer(nil)
		return
	}
	b.lease.WhenMayAnswer(func(may bool) {
		if may {
			answer(nil)
			return
		}
		answer(errNotLeader)
	})
}

// mayChange is asked before records are appended or removed: a process that was paused, or cut off, first learns whether
// another one has taken over, and then leaves its logs alone (errNotLeader). It waits until ctx ends.
func (b *Broker) mayChange(ctx context.Context) error {
	if b.lease.MayAnswer() {
		return nil
	}
	known := make(chan bool, 1)
	b.lease.WhenMayAnswer(func(may bool) { known <- may })
	select {
	case may := <-known:
		if may {
			return nil
		}
	case <-ctx.Done():
	}
	return errNotLeader
}

// replaced ends the process, since another one has taken over. From now on nothing is answered that depends on leadership,
// and no file is written.
func (b *Broker) replaced(err error) {
	b.fenced.Store(true)
	b.lease.Fenced()
	b.fail(fmt.Errorf("node.id=%d: another process has taken over: %w", b.nodeID, err))
}

// noteUnmapped logs an error that has no Kafka code, since a client can make nothing of UNKNOWN_SERVER_ERROR.
func (b *Broker) noteUnmapped(api string, err error) {
	if codeOf(err) == kerr.UnknownServerError.Code {
		b.log.Error("an error without a Kafka code was answered as UNKNOWN_SERVER_ERROR", "api", api, "err", err)
	}
}

// parkedFetches are the long polls that wait now, so that a stop can answer them.
type parkedFetches struct {
	mu      sync.Mutex
	calls   map[*fetchCall]struct{}
	stopped bool
}

func (p *parkedFetches) add(c *fetchCall) {
	p.mu.Lock()
	if p.calls == nil {
		p.calls = map[*fetchCall]struct{}{}
	}
	p.calls[c] = struct{}{}
	stopped := p.stopped
	p.mu.Unlock()
	if stopped {
		go c.expire()
	}
}

func (p *parkedFetches) remove(c *fetchCall) {
	p.mu.Lock()
	delete(p.calls, c)
	p.mu.Unlock()
}

// count is the number of fetches that wait.
func (p *parkedFetches) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// releaseParked answers every waiting fetch with what there is, and makes later ones not wait.
func (b *Broker) releaseParked() {
	b.parked.mu.Lock()
	b.parked.stopped = true
	var calls []*fetchCall
	for c := range b.parked.calls {
		calls = append(calls, c)
	}
	b.parked.mu.Unlock()
	for _, c := range calls {
		go c.expire() // Drain waits for their answers
	}
}

// portOf is the port of a bound address.
func portOf(a net.Addr) int32 {
	var tcp *net.TCPAddr
	if t, ok := a.(*net.TCPAddr); ok {
		tcp = t
	}
	if tcp == nil {
		return 0
	}
	return int32(tcp.Port)
}
