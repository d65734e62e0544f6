package harness

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Cut is a place in the traffic at which Proxy ends a connection.
type Cut int

const (
	BeforeRequest  Cut = iota // the request never arrives
	HalfRequest               // a part of it arrives
	AfterRequest              // it arrives whole, and nobody hears the answer
	BeforeResponse            // it was carried out, and nobody hears the answer
	HalfResponse              // a part of the answer arrives
	AfterResponse             // the answer arrives
	Cuts
)

func (c Cut) String() string {
	return [Cuts]string{"before-request", "half-request", "after-request", "before-response", "half-response", "after-response"}[c]
}

// Proxy stands between clients and the broker and cuts connections.
type Proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	pairs  map[*pair]struct{}
	closed bool
	armed  []Cut       // cuts to make, the first one first
	made   map[Cut]int // cuts that were made
}

// pair is one client's connection and its way to the broker.
type pair struct{ client, server net.Conn }

func (p *pair) cut() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// NewProxy leads to a port of this machine. It ends with the test.
func NewProxy(t testing.TB, targetPort int) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: "127.0.0.1:" + strconv.Itoa(targetPort), pairs: map[*pair]struct{}{}, made: map[Cut]int{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		_ = l.Close()
		p.CutShare(rand.New(rand.NewPCG(0, 0)), 1)
		p.done.Wait()
	})
	return p
}

// Port is where clients connect.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Bootstrap is the same as an address.
func (p *Proxy) Bootstrap() string { return "127.0.0.1:" + strconv.Itoa(p.Port()) }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

// serve leads a client to the broker once there is one.
func (p *Proxy) serve(client net.Conn) {
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
	both.Go(func() { p.frames(server, client, BeforeRequest); c.cut() })
	both.Go(func() { p.frames(client, server, BeforeResponse); c.cut() })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// frames carries whole frames (four bytes of length, then as many bytes) until a cut that was armed for this direction.
// Bytes are carried as they come, so a frame that never ends arrives as far as it goes.
func (p *Proxy) frames(to io.Writer, from io.Reader, before Cut) {
	var length [4]byte
	for {
		if n, err := io.ReadFull(from, length[:]); err != nil {
			_, _ = to.Write(length[:n])
			return
		}
		size := int64(binary.BigEndian.Uint32(length[:]))
		cut, hit := p.take(before)
		if hit && cut == before {
			return
		}
		if hit && cut == before+1 {
			size /= 2
		}
		if _, err := to.Write(length[:]); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, size); err != nil || hit {
			return
		}
	}
}

// take is the first cut that was armed, if it is one of this direction, and counts it.
func (p *Proxy) take(before Cut) (Cut, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.armed) == 0 || p.armed[0] < before || p.armed[0] > before+2 {
		return 0, false
	}
	c := p.armed[0]
	p.armed = p.armed[1:]
	p.made[c]++
	return c, true
}

// Arm has the next frames meet cuts, one each, on whatever connection they travel.
func (p *Proxy) Arm(cuts ...Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, cuts...)
}

// Disarm forgets the cuts that no frame has met.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// Made counts the cuts that Arm has led to.
func (p *Proxy) Made() map[Cut]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := make(map[Cut]int, len(p.made))
	for c, n := range p.made {
		made[c] = n
	}
	return made
}

func (p *Proxy) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// CutShare ends each connection with a probability, at whatever byte it is, and returns how many.
func (p *Proxy) CutShare(random *rand.Rand, share float64) (n int) {
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
