package stress

import (
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// proxy stands between clients and the broker and cuts connections.
type proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	pairs  map[*pair]struct{}
	closed bool
}

// pair is one client's connection and its way to the broker.
type pair struct{ client, server net.Conn }

func (p *pair) cut() {
	_ = p.client.Close()
	_ = p.server.Close()
}

func newProxy(t testing.TB, targetPort int) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: "127.0.0.1:" + strconv.Itoa(targetPort), pairs: map[*pair]struct{}{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		_ = l.Close()
		p.cut(rand.New(rand.NewPCG(0, 0)), 1)
		p.done.Wait()
	})
	return p
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

// serve leads a client to the broker once there is one.
func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	for err != nil && !p.ended() {
		time.Sleep(10 * time.Millisecond)
		server, err = net.Dial("tcp", p.target)
	}
	if err != nil {
		_ = client.Close()
		return
	}
	c := &pair{client, server}
	p.mu.Lock()
	p.pairs[c] = struct{}{}
	if p.closed {
		c.cut()
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); c.cut() })
	both.Go(func() { _, _ = io.Copy(client, server); c.cut() })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

func (p *proxy) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// cut ends each connection with a probability, at whatever byte it is.
func (p *proxy) cut(random *rand.Rand, share float64) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if random.Float64() < share {
			c.cut()
			n++
		}
	}
	return n
}
