package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server on loopback whose log and observations a test can read.
type testServer struct {
	*Server
	t    *testing.T
	logs *syncBuffer
	seen *recorder
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// recorder is an Observer that keeps everything.
type recorder struct {
	mu       sync.Mutex
	opened   int
	closed   int
	requests []RequestStats
	rejected map[string]int
	changed  chan struct{}
}

func newRecorder() *recorder {
	return &recorder{rejected: map[string]int{}, changed: make(chan struct{}, 1)}
}

func (r *recorder) note(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) ConnOpened(string)           { r.note(func() { r.opened++ }) }
func (r *recorder) ConnClosed(string, Software) { r.note(func() { r.closed++ }) }
func (r *recorder) RequestDone(s RequestStats)  { r.note(func() { r.requests = append(r.requests, s) }) }
func (r *recorder) Rejected(limit string)       { r.note(func() { r.rejected[limit]++ }) }

// counts is how many connections were closed, and how many because of the limit.
func (r *recorder) counts(limit string) (closed, rejected int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed, r.rejected[limit]
}

// await waits until ok holds.
func (r *recorder) await(t *testing.T, what string, ok func(*recorder) bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		done := ok(r)
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-r.changed:
		case <-deadline:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// startServer serves apis on loopback until the test ends.
func startServer(t *testing.T, limits Limits, apis ...API) *testServer {
	t.Helper()
	registry, err := NewRegistry(apis)
	if err != nil {
		t.Fatal(err)
	}
	ts := &testServer{t: t, logs: &syncBuffer{}, seen: newRecorder()}
	ts.Server = NewServer(Options{
		Registry: registry, Limits: limits, Observer: ts.seen,
		Log: slog.New(slog.NewTextHandler(ts.logs, nil)),
	})
	if err := ts.Listen(t.Context(), []Listener{{Name: "PLAIN", Address: "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ts.Serve(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		ts.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if used := ts.queued.inUse(); used != 0 {
			t.Errorf("%d bytes of the budget were not given back", used)
		}
	})
	return ts
}

// client is a raw connection.
type client struct {
	t *testing.T
	net.Conn
}

func (ts *testServer) dial() *client {
	ts.t.Helper()
	c, err := net.Dial("tcp", ts.Addr("PLAIN").String())
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	return &client{ts.t, c}
}

// requestFrame encodes a request as a client does.
func requestFrame(correlation int32, clientID *string, req kmsg.Request) []byte {
	f := kmsg.NewRequestFormatter()
	if clientID != nil {
		f = kmsg.NewRequestFormatter(kmsg.FormatterClientID(*clientID))
	}
	return f.AppendRequest(nil, req, correlation)
}

// send may be called from any goroutine.
func (c *client) send(b ...byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Errorf("write: %v", err)
	}
}

// reply reads one frame and splits off the correlation id.
func (c *client) reply() (correlation int32, rest []byte) {
	c.t.Helper()
	correlation, rest, err := c.tryReply()
	if err != nil {
		c.t.Fatalf("reply: %v", err)
	}
	return correlation, rest
}

func (c *client) tryReply() (int32, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 4 || n > 200<<20 {
		return 0, nil, fmt.Errorf("length %d", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

// closedByServer asserts that nothing more comes.
func (c *client) closedByServer() {
	c.t.Helper()
	b := make([]byte, 1)
	n, err := c.Read(b)
	if n != 0 || err == nil {
		c.t.Fatalf("read %d bytes %x, err %v; want the connection closed", n, b[:n], err)
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection is still open")
	}
}

// heartbeat is a small request; its group names it.
func heartbeat(group string) *kmsg.HeartbeatRequest {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version = 4
	r.Group = group
	return r
}

// echoHeartbeat answers at once with the length of the group as throttle time.
func echoHeartbeat(_ context.Context, req *Request, done Done) {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ThrottleMillis = int32(len(req.Body.(*kmsg.HeartbeatRequest).Group))
	done(Response{Msg: resp}, nil)
}

var heartbeatAPI = API{Key: 12, Min: 0, Max: 4, Pipelined: true, Handle: echoHeartbeat}
