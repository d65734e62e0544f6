package chaos

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// gate stands between the broker and Postgres. It can hold a session back once a certain statement was seen: the statement
// itself (Postgres never hears of it) or the answers to it (it is carried out and the broker does not know).
type gate struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	text  []byte     // of the statement; nil: all go through
	keep  held
	met   chan struct{} // closed when it was seen
	open  chan struct{} // closed when what is held may go on
	conns map[net.Conn]struct{}
}

// held says which way is held back.
type held int

const (
	statements held = iota
	answers
)

// newGate leads to the server of a connection URL and returns the URL that leads through it.
func newGate(t testing.TB, target string) (*gate, string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, target: u.Host, conns: map[net.Conn]struct{}{}}
	u.Host = l.Addr().String()
	g.done.Go(g.accept)
	t.Cleanup(func() {
		_ = l.Close()
		g.release()
		g.cut()
		g.done.Wait()
	})
	return g, u.String()
}

// cut ends all sessions, as the end of their process does.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.Close()
	}
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.done.Go(func() { g.serve(client) })
	}
}

func (g *gate) serve(client net.Conn) {
	server, err := net.Dial("tcp", g.target)
	if err != nil {
		_ = client.Close()
		return
	}
	g.mu.Lock()
	g.conns[client], g.conns[server] = struct{}{}, struct{}{}
	g.mu.Unlock()
	var both sync.WaitGroup
	var holding sync.Mutex // guards wait
	var wait chan struct{} // that the answers of this session wait for
	end := func() { _ = client.Close(); _ = server.Close() }
	both.Go(func() {
		defer end()
		pump(server, client, func(b []byte) {
			if open, keep := g.meets(b); open != nil && keep == answers {
				holding.Lock()
				wait = open
				holding.Unlock()
			} else if open != nil {
				<-open
			}
		})
	})
	both.Go(func() {
		defer end()
		pump(client, server, func([]byte) {
			holding.Lock()
			open := wait
			holding.Unlock()
			if open != nil {
				<-open
			}
		})
	})
	both.Wait()
	g.mu.Lock()
	delete(g.conns, client)
	delete(g.conns, server)
	g.mu.Unlock()
}

// pump carries bytes, each piece after its check.
func pump(to io.Writer, from io.Reader, check func([]byte)) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			check(b[:n])
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// meets says what a piece with the statement waits for; nil for others.
func (g *gate) meets(b []byte) (open chan struct{}, keep held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.text == nil || !bytes.Contains(b, g.text) {
		return nil, 0
	}
	g.text = nil
	close(g.met)
	return g.open, g.keep
}

// hold holds the next session back that sends a text. The channel is closed when it has.
func (g *gate) hold(keep held, text string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text, g.keep, g.met, g.open = []byte(text), keep, make(chan struct{}), make(chan struct{})
	return g.met
}

// release lets go on what is held.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
	}
	g.text, g.open = nil, nil
}

// await waits for what a hold is about.
func await(t testing.TB, met <-chan struct{}) {
	t.Helper()
	select {
	case <-met:
	case <-time.After(10 * time.Second):
		t.Fatal("the statement was not sent")
	}
}
