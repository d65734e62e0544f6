package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConnectionLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		limits Limits
		limit  string
	}{
		"total":       {Limits{MaxConnections: 2}, LimitConnections},
		"per address": {Limits{MaxConnectionsByIP: 2}, LimitConnectionsByIP},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, tc.limits, heartbeatAPI)
			ask := func(c *client) {
				t.Helper()
				c.send(requestFrame(1, nil, heartbeat("g"))...)
				c.reply()
			}
			a, b := ts.dial(), ts.dial()
			ask(a)
			ask(b)
			ts.dial().closedByServer()
			ts.seen.await(t, "the rejection", func(r *recorder) bool { return r.rejected[tc.limit] == 1 })
			ask(a)
			_ = a.Close()
			ts.seen.await(t, "the place to be free", func(r *recorder) bool { return r.closed == 1 })
			ask(ts.dial())
			if !strings.Contains(ts.logs.String(), "limit="+tc.limit) {
				t.Errorf("log: %s", ts.logs)
			}
		})
	}
}

// pipeServer serves net.Pipe connections, for tests in a bubble of synthetic time.
type pipeServer struct {
	*Server
	seen   *recorder
	served chan error
}

func startPipes(t *testing.T, limits Limits, apis ...API) *pipeServer {
	registry, err := NewRegistry(apis)
	if err != nil {
		t.Fatal(err)
	}
	ps := &pipeServer{seen: newRecorder(), served: make(chan error, 1)}
	ps.Server = NewServer(Options{Registry: registry, Limits: limits, Observer: ps.seen, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	go func() { ps.served <- ps.Serve(context.WithoutCancel(t.Context())) }()
	synctest.Wait()
	return ps
}

func (ps *pipeServer) stop(t *testing.T) {
	ps.Close()
	if err := <-ps.served; err != nil {
		t.Error(err)
	}
}

// dial connects; the client's side never blocks in a write.
func (ps *pipeServer) dial(t *testing.T) *client {
	server, c := net.Pipe()
	ps.admit("PIPE", server)
	return &client{t, c}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := park()
		ps := startPipes(t, Limits{MaxIdle: 10 * time.Minute}, heartbeatAPI, API{Key: 3, Max: 12, Handle: p.handle})
		defer ps.stop(t)
		idle, busy := ps.dial(t), ps.dial(t)
		start := time.Now()
		busy.send(requestFrame(1, nil, metadata())...)
		r := p.next(t)
		time.Sleep(9 * time.Minute)
		idle.send(requestFrame(1, nil, heartbeat("g"))...)
		idle.reply()
		idle.closedByServer()
		if d := time.Since(start); d < 19*time.Minute || d > 19*time.Minute+5*time.Second {
			t.Errorf("closed after %v, want ten minutes after the last request", d)
		}
		time.Sleep(time.Hour) // a request in progress keeps its connection
		go r.answer()
		busy.reply()
		answered := time.Now()
		busy.closedByServer()
		if d := time.Since(answered); d < 10*time.Minute || d > 10*time.Minute+5*time.Second {
			t.Errorf("closed %v after the reply", d)
		}
		synctest.Wait()
		if _, n := ps.seen.counts(LimitIdle); n != 2 {
			t.Errorf("%d idle connections counted", n)
		}
	})
}

// A client that takes no byte of its reply for a minute is closed.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		payload := &testPayload{data: make([]byte, 400)}
		ps := startPipes(t, Limits{}, bodies([]Part{{Payload: payload}}))
		defer ps.stop(t)
		stalled := ps.dial(t)
		stalled.send(requestFrame(1, nil, fetch())...)
		time.Sleep(stallTime - time.Second)
		if closed, _ := ps.seen.counts(""); closed != 0 {
			t.Error("closed too early")
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		closed, stalls := ps.seen.counts(LimitStalledWrite)
		if stalls != 1 || closed != 1 || payload.releases() != 1 {
			t.Errorf("%d stalled, %d closed, payload released %d times", stalls, closed, payload.releases())
		}
	})
}

// A slow reader is not a stalled one, even while one call writes a payload for longer than the limit.
func TestSlowReaderIsNotStalled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much a peer has acknowledged")
	}
	const stall = 1200 * time.Millisecond
	payload := &testPayload{data: make([]byte, 8<<20)}
	ts := startServer(t, Limits{MaxIdle: stall, SendBuffer: 64 << 10}, bodies([]Part{{Payload: payload}}))
	c := ts.dial()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	c.send(requestFrame(1, nil, fetch())...)
	piece := make([]byte, 200<<10)
	for start := time.Now(); time.Since(start) < 2*stall; time.Sleep(100 * time.Millisecond) {
		if _, err := io.ReadFull(c, piece); err != nil {
			t.Fatalf("closed after %v: %v", time.Since(start), err)
		}
	}
	if payload.releases() != 0 {
		t.Fatal("the payload was sent before the limit passed: the test shows nothing")
	}
	ts.seen.await(t, "the close of a client that stopped", func(r *recorder) bool {
		return r.rejected[LimitStalledWrite] == 1 && r.closed == 1
	})
}

// Clients that ask for large answers and read none of them hold memory for seconds, not for a minute, once they hold too
// much together. One that reads slowly, one whose answers are small, and one whose answer is on the disk are not meant.
func TestStalledReadersGiveWay(t *testing.T) {
	const large, most = 1 << 20, 8 << 20
	metadataAPI := API{Key: int16(kmsg.Metadata), Min: 12, Max: 12, Handle: func(_ context.Context, _ *Request, done Done) {
		done(Response{Body: []Part{{Bytes: make([]byte, large)}}}, nil)
	}}
	onDisk := &testPayload{data: make([]byte, 8<<20)}
	ts := startServer(t, Limits{QueuedBytes: most, SendBuffer: 32 << 10}, metadataAPI, heartbeatAPI, bodies([]Part{{Payload: onDisk}}))
	dial := func(req kmsg.Request) *client {
		c := ts.dial()
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
		c.send(requestFrame(1, nil, req)...)
		return c
	}
	all := kmsg.NewPtrMetadataRequest()
	all.Version = 12
	reading, disk, small := dial(all), dial(fetch()), dial(heartbeat("g"))
	stopped := make(chan struct{})
	var slowly sync.WaitGroup
	slowly.Go(func() { // 100 pieces of 10 KiB
		for piece := make([]byte, large/100); ; time.Sleep(100 * time.Millisecond) {
			if _, err := io.ReadFull(reading.Conn, piece); err != nil {
				t.Errorf("a slow reader: %v", err)
				return
			}
			select {
			case <-stopped:
				return
			default:
			}
		}
	})
	const hostile = 40
	for range hostile {
		dial(all)
	}
	ts.seen.await(t, "the end of those who hold most", func(r *recorder) bool { return r.rejected[LimitStalledWrite] >= hostile-most/large })
	close(stopped)
	slowly.Wait()
	if held := unsentMemory(ts.connections()); held > most {
		t.Errorf("replies hold %d bytes, more than %d", held, most)
	}
	small.reply()
	if onDisk.releases() != 0 {
		t.Error("who waits for an answer on the disk was closed")
	}
	_ = disk.Close()
}

// Replies of a client that does not read bound what it can start: one large reply waits, not many, whether the
// handler answers at once or later.
func TestSlowReaderStopsItself(t *testing.T) {
	for name, run := range map[string]func(func()){"at once": func(f func()) { f() }, "later": func(f func()) { go f() }} {
		t.Run(name, func(t *testing.T) {
			started := make(chan struct{}, 20)
			ts := startServer(t, Limits{}, heartbeatAPI, API{Key: 1, Min: 4, Max: 12, Handle: func(_ context.Context, _ *Request, done Done) {
				started <- struct{}{}
				run(func() { done(Response{Body: []Part{{Payload: &testPayload{data: make([]byte, 16<<20)}}}}, nil) })
			}})
			slow, other := ts.dial(), ts.dial()
			for i := range int32(20) {
				slow.send(requestFrame(i, nil, fetch())...)
			}
			<-started
			for i := range int32(50) {
				other.send(requestFrame(i, nil, heartbeat("g"))...)
				other.reply()
			}
			if n := len(started); n != 0 {
				t.Errorf("%d more replies of 16 MiB were made for a client that reads nothing", n)
			}
			for i := range int32(20) {
				if id, rest := slow.reply(); id != i || len(rest) != 1+16<<20 {
					t.Fatalf("reply %d of %d bytes", id, len(rest))
				}
			}
		})
	}
}

// A throttled client's next request starts when its time is over; others do not wait.
func TestThrottleMutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := startPipes(t, Limits{}, heartbeatAPI, API{Key: 3, Max: 12, Handle: func(_ context.Context, req *Request, done Done) {
			done(Response{Msg: req.Body.ResponseKind(), Throttle: 3 * time.Second}, nil)
		}})
		defer ps.stop(t)
		c, other := ps.dial(t), ps.dial(t)
		start := time.Now()
		c.send(requestFrame(1, nil, metadata())...)
		c.reply()
		if time.Since(start) != 0 {
			t.Errorf("the throttled reply itself waited %v", time.Since(start))
		}
		other.send(requestFrame(1, nil, heartbeat("g"))...)
		other.reply()
		if time.Since(start) != 0 {
			t.Errorf("another client waited %v", time.Since(start))
		}
		c.send(requestFrame(2, nil, heartbeat("g"))...)
		c.reply()
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("the next request was answered after %v", d)
		}
	})
}

// Memory that a slow upload holds is welcome to it until others wait for it; then it must go on or end. The replies
// of who waits are sent before it waits.
func TestSlowUploadGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := park()
		ps := startPipes(t, Limits{QueuedBytes: 1<<20 + 1<<10}, heartbeatAPI, API{Key: 0, Min: 3, Max: 12, Pipelined: true, Handle: handler.handle})
		defer ps.stop(t)
		slow, other := ps.dial(t), ps.dial(t)
		large := requestFrame(1, nil, produce(9, 1<<20-100))
		slow.send(large[:readBufferBytes+10]...)
		time.Sleep(30 * time.Minute / 4) // alone it may take its time
		slow.send(1)
		synctest.Wait()
		if closed, _ := ps.seen.counts(""); closed != 0 || ps.queued.inUse() != 1<<20 {
			t.Fatalf("%d closed, %d of the budget in use", closed, ps.queued.inUse())
		}
		start := time.Now()
		go func() {
			_, _ = other.Write(append(requestFrame(1, nil, heartbeat("g")), requestFrame(2, nil, produce(9, 5000))...))
		}()
		if id, _ := other.reply(); id != 1 || time.Since(start) != 0 {
			t.Errorf("the reply before the wait came after %v", time.Since(start))
		}
		r := <-handler.requests
		if d := time.Since(start); d < stallTime || d > stallTime+5*time.Second {
			t.Errorf("memory came after %v", d)
		}
		go r.answer()
		other.reply()
		slow.closedByServer()
		synctest.Wait()
		if _, n := ps.seen.counts(LimitQueuedBytes); n != 1 {
			t.Errorf("%d connections closed for their slowness", n)
		}
	})
}

// failingListener fails a number of times, as when the process is out of file descriptors, then blocks.
type failingListener struct {
	net.Listener
	fails  atomic.Int32
	times  chan time.Time
	closed chan struct{}
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.fails.Add(-1) < 0 {
		<-l.closed
		return nil, net.ErrClosed
	}
	l.times <- time.Now()
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func TestAcceptBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := startPipes(t, Limits{}, heartbeatAPI)
		l := &failingListener{times: make(chan time.Time, 20), closed: make(chan struct{})}
		l.fails.Store(12)
		var ended atomic.Bool
		go func() { ps.accept(&listener{"L", l}); ended.Store(true) }()
		start := time.Now()
		for range 12 {
			<-l.times
		}
		// 5+10+20+…+640 ms, then a second each.
		if d := time.Since(start); d < 3*time.Second || d > 5*time.Second {
			t.Errorf("twelve failures took %v", d)
		}
		close(l.closed)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if !ended.Load() {
			t.Error("accept goes on after the listener was closed")
		}
		ps.stop(t)
	})
}

func TestDrainAnswersWhatStarted(t *testing.T) {
	pipelined, waits := park(), park()
	ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: pipelined.handle},
		API{Key: 3, Max: 12, Handle: waits.handle})
	c, idle := ts.dial(), ts.dial()
	c.send(append(requestFrame(1, nil, heartbeat("g")), requestFrame(2, nil, heartbeat("g"))...)...)
	r1, r2 := pipelined.next(t), pipelined.next(t)
	c.send(requestFrame(3, nil, metadata())...) // read already, but may not start before 1 and 2
	idle.send(0, 0)                             // half a length
	ts.awaitReading(c, 3)

	drained := make(chan error, 1)
	go func() { drained <- ts.Drain(t.Context()) }()
	idle.closedByServer()
	if _, err := net.Dial("tcp", ts.Addr("PLAIN").String()); err == nil {
		t.Error("a new connection was accepted")
	}
	select {
	case err := <-drained:
		t.Fatalf("drained before the answers: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	c.send(requestFrame(4, nil, heartbeat("g"))...) // too late; must not cost the client its replies
	r2.answer()
	r1.answer()
	for _, want := range []int32{1, 2} {
		if id, _ := c.reply(); id != want {
			t.Fatalf("reply %d came in place of %d", id, want)
		}
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last reply: %v, want a clean end", err)
	}
	_ = c.Close()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if len(waits.requests)+len(pipelined.requests) != 0 {
		t.Error("a request started while the server drained")
	}
}

// awaitReading waits until the server has received n frames' worth of c's bytes.
func (ts *testServer) awaitReading(c *client, n int) {
	ts.t.Helper()
	want := uint64(0)
	for i := range n {
		req := kmsg.Request(heartbeat("g"))
		if i == 2 {
			req = metadata()
		}
		want += uint64(len(requestFrame(0, nil, req)))
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, s := range ts.connections() {
			if s.remote.String() == c.LocalAddr().String() && s.in.progress.Load() == want {
				return
			}
		}
	}
	ts.t.Fatal("the server did not read")
}

func TestDrainGivesUp(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 3, Max: 12, Handle: p.handle})
	c := ts.dial()
	c.send(requestFrame(1, nil, metadata())...)
	r := p.next(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := ts.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 connections") {
		t.Errorf("Drain: %v", err)
	}
	if r.ctx.Err() != nil {
		t.Error("Drain ended the context of a request that runs")
	}
	ts.Close()
	if r.ctx.Err() == nil {
		t.Error("Close left the context of a request")
	}
	c.closedByServer()
	r.answer()
	ts.Close()
}

func TestListenBindsAllOrNone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	registry, _ := NewRegistry([]API{heartbeatAPI})
	s := NewServer(Options{Registry: registry})
	defer s.Close()
	err = s.Listen(t.Context(), []Listener{{"A", "127.0.0.1:0"}, {"B", taken.Addr().String()}})
	if err == nil || !strings.Contains(err.Error(), "listener B on "+taken.Addr().String()) || s.Addr("A") != nil {
		t.Errorf("Listen: %v, A is %v", err, s.Addr("A"))
	}
	if err := s.Listen(t.Context(), []Listener{{"A", "127.0.0.1:0"}, {"B", "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	a, b := s.Addr("A").(*net.TCPAddr), s.Addr("B").(*net.TCPAddr)
	if a.Port == 0 || b.Port == 0 || a.Port == b.Port || s.Addr("C") != nil {
		t.Errorf("bound to %v and %v", a, b)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	registry, _ := NewRegistry([]API{heartbeatAPI})
	s := NewServer(Options{Registry: registry})
	if err := s.Listen(t.Context(), []Listener{{"A", "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	c, err := net.Dial("tcp", s.Addr("A").String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := s.Serve(t.Context()); err == nil {
		t.Error("a closed server serves again")
	}
}
