package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// parked is a handler that keeps its requests for the test to answer.
type parked struct {
	requests chan parkedRequest
}

type parkedRequest struct {
	*Request
	ctx  context.Context
	done Done
}

func park() *parked { return &parked{requests: make(chan parkedRequest, 256)} }

func (p *parked) handle(ctx context.Context, req *Request, done Done) {
	p.requests <- parkedRequest{req, ctx, done}
}

func (p *parked) next(t *testing.T) parkedRequest {
	t.Helper()
	select {
	case r := <-p.requests:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("no request came")
		return parkedRequest{}
	}
}

func (r parkedRequest) answer() {
	resp := r.Body.ResponseKind()
	r.done(Response{Msg: resp}, nil)
}

func metadata() *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12
	return r
}

func TestRequestAndReply(t *testing.T) {
	ts := startServer(t, Limits{}, heartbeatAPI)
	c := ts.dial()
	for i := range int32(3) {
		c.send(requestFrame(100+i, kmsg.StringPtr("me"), heartbeat("four"))...)
		id, rest := c.reply()
		if id != 100+i || rest[0] != 0 {
			t.Fatalf("correlation %d, header tags %d", id, rest[0])
		}
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.Version = 4
		if err := resp.ReadFrom(rest[1:]); err != nil || resp.ThrottleMillis != 4 {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	ts.seen.await(t, "three requests", func(r *recorder) bool { return len(r.requests) == 3 })
	if s := ts.seen.requests[0]; s.Name != "Heartbeat" || s.Version != 4 || s.Failed || s.Total <= 0 ||
		s.BytesIn != int64(len(requestFrame(0, kmsg.StringPtr("me"), heartbeat("four")))) || s.BytesOut != 4+4+1+4+2+1 {
		t.Errorf("observed %+v", s)
	}
}

// What the handler sees of the header, for every shape of it. A flexible header has its tags consumed also when the
// client id is null or empty.
func TestHeaders(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
	body := heartbeat("g").AppendTo(nil)
	old := heartbeat("g")
	old.Version = 3
	oldBody := old.AppendTo(nil)
	for name, tc := range map[string]struct {
		version  int16
		clientID string // as on the wire
		tags     string
		body     []byte
		want     string
	}{
		"v1 null client id":         {3, "\xff\xff", "", oldBody, ""},
		"v1 client id":              {3, "\x00\x02me", "", oldBody, "me"},
		"v2 null client id":         {4, "\xff\xff", "\x00", body, ""},
		"v2 empty client id":        {4, "\x00\x00", "\x00", body, ""},
		"v2 client id":              {4, "\x00\x02me", "\x00", body, "me"},
		"v2 negative client id":     {4, "\xff\xf0", "\x00", body, ""},
		"v2 null id, unknown tags":  {4, "\xff\xff", "\x02\x05\x03abc\x07\x00", body, ""},
		"v2 control characters":     {4, "\x00\x02\n\x00", "\x00", body, "\n\x00"},
		"v2 trailing bytes in body": {4, "\x00\x02me", "\x00", append(body[:len(body):len(body)], 1, 2, 3), "me"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.dial()
			f := binary.BigEndian.AppendUint16(nil, 12)
			f = binary.BigEndian.AppendUint16(f, uint16(tc.version))
			f = append(f, 0, 0, 0, 9)
			f = append(append(append(f, tc.clientID...), tc.tags...), tc.body...)
			c.send(binary.BigEndian.AppendUint32(nil, uint32(len(f)))...)
			c.send(f...)
			r := p.next(t)
			hb := r.Body.(*kmsg.HeartbeatRequest)
			if r.ClientID != tc.want || hb.Group != "g" || r.Version != tc.version || r.Key != 12 || r.CorrelationID != 9 {
				t.Errorf("client id %q, group %q", r.ClientID, hb.Group)
			}
			if r.Conn.Listener() != "PLAIN" || r.Conn.ID() == 0 || r.Conn.RemoteAddr().String() != c.LocalAddr().String() {
				t.Errorf("connection %d on %s from %v", r.Conn.ID(), r.Conn.Listener(), r.Conn.RemoteAddr())
			}
			r.answer()
			if id, _ := c.reply(); id != 9 {
				t.Errorf("correlation %d", id)
			}
		})
	}
}

// the answer to a version that is not served is version 0 and lists only ApiVersions; the connection
// stays usable; a flexible answer has the old header.
func TestApiVersions(t *testing.T) {
	ts := startServer(t, Limits{}, heartbeatAPI, API{Key: 18, Max: 4, Handle: func(_ context.Context, req *Request, done Done) {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = 7
		done(Response{Msg: resp}, nil)
	}})
	c := ts.dial()
	for _, version := range []uint16{5, 99, 0xffff} {
		f := binary.BigEndian.AppendUint16([]byte{0, 18}, version)
		f = append(f, 0, 0, 0, 3, 0xff, 0xff, 0xaa) // whatever follows the correlation id is not looked at
		c.send(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)...)
		id, rest := c.reply()
		if want := "\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"; id != 3 || string(rest) != want {
			t.Fatalf("version %d: correlation %d, %x", version, id, rest)
		}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 4
	c.send(requestFrame(4, nil, req)...)
	_, rest := c.reply()
	if rest[0] != 0 || rest[1] != 7 {
		t.Fatalf("the header of a flexible ApiVersions answer is not version 0: %x", rest)
	}
	c.send(requestFrame(5, nil, heartbeat("g"))...)
	if id, rest := c.reply(); id != 5 || rest[0] != 0 || len(rest) != 1+4+2+1 {
		t.Fatalf("correlation %d, %x", id, rest)
	}
}

func TestRepliesKeepOrder(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{MaxInFlight: 300}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 300
	c := ts.dial()
	go func() {
		for i := range int32(n) {
			c.send(requestFrame(i, nil, heartbeat("g"))...)
		}
	}()
	order := make(chan error, 1)
	go func() {
		for i := range int32(n) {
			if id, _, err := c.tryReply(); err != nil || id != i {
				order <- fmt.Errorf("reply %d came in place of %d, %v", id, i, err)
				return
			}
		}
		order <- nil
	}()
	var answering sync.WaitGroup
	var held []parkedRequest
	for got := 0; got < n || len(held) > 0; {
		if got < n && (len(held) < 40 && rng.IntN(3) > 0 || len(held) == 0) {
			held = append(held, p.next(t))
			got++
			continue
		}
		i := rng.IntN(len(held))
		r := held[i]
		held = append(held[:i], held[i+1:]...)
		if rng.IntN(2) == 0 {
			answering.Go(r.answer)
		} else {
			r.answer()
		}
	}
	if err := <-order; err != nil {
		t.Fatal(err)
	}
	answering.Wait()
}

// A request that is not pipelined starts when all before it are decided, and holds up all behind it.
func TestOnlyPipelinedRequestsOverlap(t *testing.T) {
	pipelined, exclusive := park(), park()
	ts := startServer(t, Limits{},
		API{Key: 12, Max: 4, Pipelined: true, Handle: pipelined.handle},
		API{Key: 3, Max: 12, Handle: exclusive.handle})
	c := ts.dial()
	var all []byte
	for i, r := range []kmsg.Request{heartbeat("0"), heartbeat("1"), metadata(), heartbeat("3"), metadata()} {
		all = append(all, requestFrame(int32(i), nil, r)...)
	}
	c.send(all...)
	h0, h1 := pipelined.next(t), pipelined.next(t)
	none := func(p *parked, why string) {
		t.Helper()
		select {
		case r := <-p.requests:
			t.Fatalf("request %d started %s", r.CorrelationID, why)
		case <-time.After(20 * time.Millisecond):
		}
	}
	none(exclusive, "before the replies before it were decided")
	h1.answer()
	none(exclusive, "before the replies before it were decided")
	h0.answer()
	m2 := exclusive.next(t)
	none(pipelined, "beside one that is not pipelined")
	m2.answer()
	h3 := pipelined.next(t)
	none(exclusive, "beside a pipelined one")
	h3.answer()
	exclusive.next(t).answer()
	for i := range int32(5) {
		if id, _ := c.reply(); id != i {
			t.Fatalf("reply %d came in place of %d", id, i)
		}
	}
}

// B-17: the zero Response sends nothing, and the replies behind it still come in order.
func TestNoReply(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
	c := ts.dial()
	for i := range int32(4) {
		c.send(requestFrame(i, nil, heartbeat("g"))...)
	}
	r := []parkedRequest{p.next(t), p.next(t), p.next(t), p.next(t)}
	r[3].answer()
	r[2].done(Response{}, nil)
	r[1].answer()
	r[0].done(Response{}, nil)
	for _, want := range []int32{1, 3} {
		if id, _ := c.reply(); id != want {
			t.Fatalf("reply %d came in place of %d", id, want)
		}
	}
	ts.seen.await(t, "four requests", func(r *recorder) bool { return len(r.requests) == 4 })
}

// An error closes the connection, after the replies before it and after a last response if there is one.
func TestHandlerErrorCloses(t *testing.T) {
	for _, last := range []bool{false, true} {
		t.Run(fmt.Sprintf("with response %v", last), func(t *testing.T) {
			p := park()
			ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
			c := ts.dial()
			for i := range int32(3) {
				c.send(requestFrame(i, nil, heartbeat("g"))...)
			}
			r := []parkedRequest{p.next(t), p.next(t), p.next(t)}
			r[2].answer() // behind the error: must not be sent
			resp := Response{}
			if last {
				resp.Msg = kmsg.NewPtrHeartbeatResponse()
			}
			r[1].done(resp, errors.New("wrong password"))
			r[0].answer()
			if id, _ := c.reply(); id != 0 {
				t.Fatalf("reply %d", id)
			}
			if last {
				if id, _ := c.reply(); id != 1 {
					t.Fatalf("reply %d", id)
				}
			}
			c.closedByServer()
			_ = c.Close()
			ts.seen.await(t, "the close", func(r *recorder) bool { return r.closed == 1 && len(r.requests) == 3 })
			if n := strings.Count(ts.logs.String(), "wrong password"); n != 1 {
				t.Errorf("the error was logged %d times:\n%s", n, ts.logs)
			}
		})
	}
}

func TestHandlerPanicClosesOnlyItsConnection(t *testing.T) {
	ts := startServer(t, Limits{}, heartbeatAPI, API{Key: 3, Max: 12, Handle: func(context.Context, *Request, Done) {
		panic("oops")
	}})
	other := ts.dial()
	c := ts.dial()
	c.send(requestFrame(1, nil, metadata())...)
	c.closedByServer()
	other.send(requestFrame(2, nil, heartbeat("g"))...)
	other.reply()
	if logs := ts.logs.String(); !strings.Contains(logs, "oops") || !strings.Contains(logs, "conn_test.go") {
		t.Errorf("no panic with its stack in the log:\n%s", logs)
	}
}

func TestSecondAnswerIsIgnored(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
	c := ts.dial()
	c.send(requestFrame(1, nil, heartbeat("g"))...)
	r := p.next(t)
	r.answer()
	second := &testPayload{data: make([]byte, 10)}
	r.done(Response{Body: []Part{{Payload: second}}}, nil)
	c.send(requestFrame(2, nil, heartbeat("g"))...)
	p.next(t).answer()
	for _, want := range []int32{1, 2} {
		if id, _ := c.reply(); id != want {
			t.Fatalf("reply %d came in place of %d", id, want)
		}
	}
	if second.releases() != 1 || !strings.Contains(ts.logs.String(), "answered twice") {
		t.Errorf("released %d times, log:\n%s", second.releases(), ts.logs)
	}
}

// The handler's context ends when the client leaves, which is how a parked request learns of it.
func TestContextEndsWithTheConnection(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 3, Max: 12, Handle: p.handle})
	c := ts.dial()
	c.send(requestFrame(1, nil, metadata())...)
	r := p.next(t)
	if r.ctx.Err() != nil || r.Conn.Context() != r.ctx {
		t.Fatal("context ended early or is not the connection's")
	}
	_ = c.Close()
	select {
	case <-r.ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the context did not end")
	}
	r.answer()
	ts.seen.await(t, "the failed request", func(r *recorder) bool { return len(r.requests) == 1 && r.requests[0].Failed })
}

func TestMaxInFlightStopsReading(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{MaxInFlight: 3}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
	c := ts.dial()
	for i := range int32(10) {
		c.send(requestFrame(i, nil, heartbeat("g"))...)
	}
	held := []parkedRequest{p.next(t), p.next(t), p.next(t)}
	for i := range int32(10) {
		select {
		case r := <-p.requests:
			t.Fatalf("request %d started as the fourth", r.CorrelationID)
		case <-time.After(5 * time.Millisecond):
		}
		held[0].answer()
		held = held[1:]
		if i < 7 {
			held = append(held, p.next(t))
		}
		if id, _ := c.reply(); id != i {
			t.Fatalf("reply %d came in place of %d", id, i)
		}
	}
}

func TestSoftwareAndValues(t *testing.T) {
	type key struct{}
	c := Detached(t.Context(), "L", nil)
	c.SetSoftware("lib", "1.0\xff")
	if n, v := c.Software(); n != "lib" || v != "1.0?" {
		t.Errorf("software %q %q", n, v)
	}
	if c.Value(key{}) != nil {
		t.Error("a value from nowhere")
	}
	c.SetValue(key{}, 5)
	if c.Value(key{}) != 5 || c.Context() != t.Context() || c.Listener() != "L" {
		t.Error("value, context or listener is lost")
	}
}
