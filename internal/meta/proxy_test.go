package meta_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// proxy stands between a store and Postgres and breaks connections at the worst moment.
type proxy struct {
	listener net.Listener
	target   string
	url      string

	mu    sync.Mutex
	armed func(request []byte) action
	cuts  int
}

// action is what happens to a request of the client.
type action int

const (
	pass    action = iota
	lose           // the server never sees it, the connection breaks
	swallow        // the server answers, the client never sees it, the connection breaks
)

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	cfg, err := pgx.ParseConfig(target)
	fatal(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	u, err := url.Parse(target)
	fatal(t, err)
	u.Host = l.Addr().String()
	p := &proxy{listener: l, target: fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), url: u.String()}
	var conns sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.serve(client) })
		}
	})
	return p
}

// arm decides about requests until one is not passed.
func (p *proxy) arm(fn func(request []byte) action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = fn
}

func (p *proxy) decide(request []byte) action {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed == nil {
		return pass
	}
	a := p.armed(request)
	if a != pass {
		p.armed = nil
		p.cuts++
	}
	return a
}

func (p *proxy) cutCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	muted := make(chan struct{})
	back.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				client.Close()
				return
			}
			select {
			case <-muted: // the answer that is swallowed: the server has done its work
				client.Close()
				server.Close()
				return
			default:
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			break
		}
		switch p.decide(buf[:n]) {
		case lose:
			server.Close()
		case swallow:
			close(muted)
			_, _ = server.Write(buf[:n])
			_, _ = io.Copy(io.Discard, client) // until the answer has come
			server.Close()
		default:
			if _, err := server.Write(buf[:n]); err == nil {
				continue
			}
		}
		break
	}
	back.Wait()
}
