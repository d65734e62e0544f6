package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// testPayload is data that may lie about its length or fail.
type testPayload struct {
	data     []byte
	claim    int // instead of the length, if not 0
	fail     error
	released atomic.Int32
	onWrite  func()
}

func (p *testPayload) Len() int {
	if p.claim != 0 {
		return p.claim
	}
	return len(p.data)
}

func (p *testPayload) AppendTo(b []byte) ([]byte, error) { return append(b, p.data...), p.fail }

func (p *testPayload) WriteTo(w io.Writer) (int64, error) {
	if p.onWrite != nil {
		p.onWrite()
	}
	n, err := w.Write(p.data)
	if err == nil {
		err = p.fail
	}
	return int64(n), err
}

func (p *testPayload) Release()      { p.released.Add(1) }
func (p *testPayload) releases() int { return int(p.released.Load()) }

// bodies answers each Fetch with the next of its bodies.
func bodies(parts ...[]Part) API {
	var i atomic.Int32
	return API{Key: 1, Min: 4, Max: 12, Handle: func(_ context.Context, _ *Request, done Done) {
		done(Response{Body: parts[i.Add(1)-1]}, nil)
	}}
}

func fetch() *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version = 12
	return r
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}

func TestBodyParts(t *testing.T) {
	small := &testPayload{data: pattern(100, 1)}
	large := &testPayload{data: pattern(3<<20, 2)}
	empty := &testPayload{}
	text := pattern(40<<10, 3)
	ts := startServer(t, Limits{}, bodies(
		[]Part{{Bytes: []byte("head")}, {Payload: small}, {Bytes: []byte("middle")}, {Payload: large}, {},
			{Payload: empty}, {Bytes: text}, {Bytes: []byte("end")}},
		[]Part{{Bytes: []byte("only")}}))
	c := ts.dial()
	c.send(append(requestFrame(1, nil, fetch()), requestFrame(2, nil, fetch())...)...)
	_, rest := c.reply()
	want := bytes.Join([][]byte{{0}, []byte("head"), small.data, []byte("middle"), large.data, text, []byte("end")}, nil)
	if !bytes.Equal(rest, want) {
		t.Fatalf("%d bytes came instead of %d, or others", len(rest), len(want))
	}
	if _, rest := c.reply(); string(rest) != "\x00only" {
		t.Fatalf("%q", rest)
	}
	ts.seen.await(t, "both requests", func(r *recorder) bool { return len(r.requests) == 2 })
	for _, p := range []*testPayload{small, large, empty} {
		if p.releases() != 1 {
			t.Errorf("a payload of %d bytes was released %d times", len(p.data), p.releases())
		}
	}
}

// A payload that does not give what it promised ends the connection: the client must never see a frame filled with
// something else. All payloads are released all the same.
func TestBrokenPayloads(t *testing.T) {
	for name, p := range map[string]*testPayload{
		"small and short": {data: make([]byte, 50), claim: 51},
		"small and long":  {data: make([]byte, 50), claim: 49},
		"small and fails": {data: make([]byte, 50), fail: errors.New("disk")},
		"large and short": {data: make([]byte, 99<<10), claim: 100 << 10},
		"large and fails": {data: make([]byte, 99<<10), fail: errors.New("disk")},
	} {
		t.Run(name, func(t *testing.T) {
			behind := &testPayload{data: make([]byte, 50<<10)}
			ts := startServer(t, Limits{}, bodies([]Part{{Bytes: []byte("head")}, {Payload: p}, {Payload: behind}}))
			c := ts.dial()
			c.send(requestFrame(1, nil, fetch())...)
			if _, rest, err := c.tryReply(); err == nil {
				t.Fatalf("a whole reply of %d bytes came", len(rest))
			}
			ts.seen.await(t, "the close", func(r *recorder) bool { return r.closed == 1 && len(r.requests) == 1 })
			if p.releases() != 1 || behind.releases() != 1 || !ts.seen.requests[0].Failed {
				t.Errorf("released %d and %d times, %+v", p.releases(), behind.releases(), ts.seen.requests[0])
			}
		})
	}
}

// Whatever moment the connection dies in, each payload is released once.
func TestPayloadsOfDeadConnections(t *testing.T) {
	t.Run("before the answer", func(t *testing.T) {
		p := park()
		ts := startServer(t, Limits{}, API{Key: 1, Min: 4, Max: 12, Handle: p.handle})
		c := ts.dial()
		c.send(requestFrame(1, nil, fetch())...)
		r := p.next(t)
		_ = c.Close()
		<-r.ctx.Done()
		payload := &testPayload{data: make([]byte, 10)}
		r.done(Response{Body: []Part{{Payload: payload}}}, nil)
		if payload.releases() != 1 {
			t.Errorf("released %d times", payload.releases())
		}
	})
	t.Run("while it waits for an earlier reply", func(t *testing.T) {
		p := park()
		ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
		c := ts.dial()
		c.send(append(requestFrame(1, nil, heartbeat("")), requestFrame(2, nil, heartbeat(""))...)...)
		first, second := p.next(t), p.next(t)
		payload := &testPayload{data: make([]byte, 10)}
		second.done(Response{Body: []Part{{Payload: payload}}}, nil)
		_ = c.Close()
		ts.seen.await(t, "the close", func(r *recorder) bool { return r.closed == 1 })
		first.answer()
		ts.seen.await(t, "both requests", func(r *recorder) bool { return len(r.requests) == 2 })
		if payload.releases() != 1 {
			t.Errorf("released %d times", payload.releases())
		}
	})
	t.Run("while it is written", func(t *testing.T) {
		writing := make(chan struct{})
		payload := &testPayload{data: make([]byte, 64<<20), onWrite: func() { close(writing) }}
		ts := startServer(t, Limits{}, bodies([]Part{{Payload: payload}}))
		c := ts.dial()
		c.send(requestFrame(1, nil, fetch())...)
		<-writing
		_ = c.Close()
		ts.seen.await(t, "the failed request", func(r *recorder) bool { return len(r.requests) == 1 && r.requests[0].Failed })
		if payload.releases() != 1 {
			t.Errorf("released %d times", payload.releases())
		}
	})
}

// memoryData is a payload that lies in memory.
type memoryData struct{ testPayload }

func (p *memoryData) Memory() []byte { return p.data }

// What lies in memory leaves between its neighbours without a write of its own; one that is not as long as it says is
// not trusted.
func TestPayloadInMemory(t *testing.T) {
	alone := func() { t.Error("written apart from its neighbours") }
	one, two := &memoryData{testPayload{data: pattern(40<<10, 1), onWrite: alone}}, &memoryData{testPayload{data: pattern(20<<10, 2), onWrite: alone}}
	lying := &memoryData{testPayload{data: pattern(40<<10, 3), claim: 50 << 10}}
	ts := startServer(t, Limits{}, bodies(
		[]Part{{Bytes: []byte("head")}, {Payload: one}, {Bytes: []byte("middle")}, {Payload: two}, {Bytes: []byte("end")}},
		[]Part{{Payload: lying}}))
	c := ts.dial()
	c.send(requestFrame(1, nil, fetch())...)
	_, rest := c.reply()
	if want := bytes.Join([][]byte{{0}, []byte("head"), one.data, []byte("middle"), two.data, []byte("end")}, nil); !bytes.Equal(rest, want) {
		t.Errorf("got %d bytes, want %d", len(rest), len(want))
	}
	c.send(requestFrame(2, nil, fetch())...)
	if _, _, err := c.tryReply(); err == nil {
		t.Error("a payload that lies about its length was answered")
	}
	ts.seen.await(t, "both requests", func(r *recorder) bool { return len(r.requests) == 2 })
	for i, p := range []*memoryData{one, two, lying} {
		if n := p.releases(); n != 1 {
			t.Errorf("payload %d was released %d times", i, n)
		}
	}
}
