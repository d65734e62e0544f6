package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawFrame puts a length before the words.
func rawFrame(parts ...string) []byte {
	body := strings.Join(parts, "")
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// The connection ends without an answer, one line says why, and a client beside it notices nothing.
func TestHostileFirstBytes(t *testing.T) {
	head := func(key, version string) string { return key + version + "\x00\x00\x00\x01" }
	hb4 := head("\x00\x0c", "\x00\x04")
	for name, tc := range map[string]struct {
		send []byte
		logs string
	}{
		"HTTP":                      {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP request"},
		"HTTP/2":                    {[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "HTTP/2"},
		"SSH":                       {[]byte("SSH-2.0-OpenSSH_9\r\n"), "SSH"},
		"PROXY":                     {[]byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"), "PROXY"},
		"TLS hello":                 {[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "TLS hello"},
		"negative length":           {[]byte("\xff\xff\xff\xff"), "frame length -1 "},
		"most negative length":      {[]byte("\x80\x00\x00\x00"), "frame length -2147483648 "},
		"zero length":               {[]byte("\x00\x00\x00\x00"), "frame length 0 "},
		"just too long":             {[]byte("\x00\x10\x00\x01"), "frame length 1048577 "},
		"short header":              {rawFrame("\x00\x0c\x00\x04\x00"), "cut off"},
		"no client id":              {rawFrame(hb4), "cut off"},
		"client id beyond frame":    {rawFrame(hb4, "\x7f\xff", "abc"), "client id of 32767 bytes"},
		"header tag beyond frame":   {rawFrame(hb4, "\xff\xff", "\x01\x00\x7fabc"), "tagged field of 127 bytes"},
		"header tag count lies":     {rawFrame(hb4, "\xff\xff", "\xff\xff\xff\xff\x0f\x00\x00"), "cut off or overflow"},
		"header varint overflows":   {rawFrame(hb4, "\xff\xff", "\xff\xff\xff\xff\x1f\x00\x00"), "cut off or overflow"},
		"header varint never ends":  {rawFrame(hb4, "\xff\xff", "\x80\x80\x80\x80\x80\x80\x80\x00"), "cut off or overflow"},
		"no body":                   {rawFrame(hb4, "\xff\xff", "\x00"), "decode Heartbeat v4"},
		"body string beyond frame":  {rawFrame(hb4, "\xff\xff", "\x00", "\x7fabc"), "decode Heartbeat v4"},
		"unknown API":               {rawFrame(head("\x03\xe7", "\x00\x00"), "\xff\xff"), "api key 999 is not served"},
		"negative API":              {rawFrame(head("\xff\xff", "\x00\x00"), "\xff\xff"), "api key -1 is not served"},
		"inter-broker API":          {rawFrame(head("\x00\x04", "\x00\x00"), "\xff\xff"), "api key 4 is not served"},
		"version above the maximum": {rawFrame(head("\x00\x0c", "\x00\x05"), "\xff\xff"), "Heartbeat v5 is not served, only 0 to 4"},
		"version below the minimum": {rawFrame(head("\x00\x00", "\x00\x02"), "\xff\xff"), "Produce v2 is not served, only 3 to 12"},
		"negative version":          {rawFrame(head("\x00\x0c", "\xff\xfe"), "\xff\xff"), "Heartbeat v-2 is not served"},
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, Limits{MaxRequestBytes: 1 << 20}, heartbeatAPI,
				API{Key: 0, Min: 3, Max: 12, Pipelined: true, Handle: park().handle})
			other := ts.dial()
			other.send(requestFrame(1, nil, heartbeat("g"))...)
			c := ts.dial()
			c.send(tc.send...)
			c.closedByServer()
			ts.seen.await(t, "the close", func(r *recorder) bool { return r.closed == 1 })
			if logs := ts.logs.String(); strings.Count(logs, "\n") != 1 || !strings.Contains(logs, tc.logs) {
				t.Errorf("want one line with %q, got:\n%s", tc.logs, logs)
			}
			other.reply()
			other.send(requestFrame(2, nil, heartbeat("g"))...)
			other.reply()
		})
	}
}

// The replies of requests that came before the bad one are still sent.
func TestBadFrameAfterGoodOnes(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 12, Max: 4, Pipelined: true, Handle: p.handle})
	c := ts.dial()
	c.send(append(requestFrame(1, nil, heartbeat("g")), "\xff\xff\xff\xff"...)...)
	r := p.next(t)
	ts.seen.await(t, "the rejection", func(r *recorder) bool { return r.rejected[LimitRequestBytes] == 1 })
	r.answer()
	if id, _ := c.reply(); id != 1 {
		t.Fatalf("reply %d", id)
	}
	c.closedByServer()
}

func TestHostileLogIsLimited(t *testing.T) {
	ts := startServer(t, Limits{}, heartbeatAPI)
	for range 100 {
		c := ts.dial()
		c.send([]byte("GET / HTTP/1.1\r\n")...)
		c.closedByServer()
		_ = c.Close()
	}
	ts.seen.await(t, "all closes", func(r *recorder) bool { return r.closed == 100 })
	if n := strings.Count(ts.logs.String(), "\n"); n < gateBurst || n > gateBurst+10 {
		t.Errorf("%d lines for 100 hostile connections", n)
	}
}

// heapInUse is what is reachable, after a collection that also empties the pools.
func heapInUse() uint64 { return inUse().HeapAlloc }

func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// Three hundred clients claim frames and send a little of them. What they cost is in proportion to what they sent,
// and a client beside them is served all the while.
func TestClaimedLengthsCostNothing(t *testing.T) {
	ts := startServer(t, Limits{}, heartbeatAPI)
	other := ts.dial()
	other.send(requestFrame(1, nil, heartbeat("g"))...)
	other.reply()
	for name, tc := range map[string]struct {
		claim        uint32
		sent         int
		each, budget int64 // at most
	}{
		"100 MiB, nothing sent": {100 << 20, 0, 4 << 10, 0},
		"100 MiB, 1 KiB sent":   {100 << 20, 1 << 10, 20 << 10, 16 << 10},
		"60 KiB, 1 KiB sent":    {60 << 10, 1 << 10, 6 << 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			const clients = 300
			before := heapInUse()
			var conns []net.Conn
			for range clients {
				c := ts.dial()
				c.send(binary.BigEndian.AppendUint32(nil, tc.claim)...)
				c.send(make([]byte, tc.sent)...)
				conns = append(conns, c)
			}
			for i := range int32(20) {
				other.send(requestFrame(i, nil, heartbeat("g"))...)
				other.reply()
			}
			ts.awaitReceived(clients, uint64(4+tc.sent))
			each := (int64(heapInUse()) - int64(before)) / clients
			t.Logf("%d bytes a client", each)
			if used := ts.queued.inUse() / clients; each > tc.each || used > tc.budget {
				t.Errorf("each costs %d bytes and %d of the budget", each, used)
			}
			for _, c := range conns {
				_ = c.Close()
			}
			ts.seen.await(t, "the closes", func(r *recorder) bool { return r.closed == r.opened-1 })
		})
	}
}

// awaitReceived waits until n connections have received each this many bytes and wait for more.
func (ts *testServer) awaitReceived(n int, each uint64) {
	ts.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		got := 0
		for _, c := range ts.connections() {
			if c.in.progress.Load() == each {
				got++
			}
		}
		if got == n {
			return
		}
	}
	ts.t.Fatalf("the server did not receive what %d clients sent", n)
}

// An idle connection holds no buffer, also when it has moved much: what is left is the stack of its goroutine and less
// than a page of heap.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const clients, large = 300, 128 << 10
	produceAPI := API{Key: int16(kmsg.Produce), Min: 9, Max: 9, Pipelined: true, Handle: func(_ context.Context, req *Request, done Done) {
		done(Response{Msg: req.Body.ResponseKind()}, nil)
	}}
	for name, request := range map[string]kmsg.Request{"small requests": heartbeat("g"), "large ones": produce(9, large)} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, Limits{}, heartbeatAPI, produceAPI)
			before := inUse()
			for range clients {
				c := ts.dial()
				c.send(requestFrame(1, nil, request)...)
				c.reply()
			}
			ts.seen.await(t, "all requests", func(r *recorder) bool { return len(r.requests) == clients })
			after := inUse()
			heap, stack := (int64(after.HeapAlloc)-int64(before.HeapAlloc))/clients, (int64(after.StackInuse)-int64(before.StackInuse))/clients
			t.Logf("%d bytes of heap a connection, the test's own end included, and %d of stack", heap, stack)
			if heap > 8<<10 || stack > 8<<10*raceFactor {
				t.Errorf("an idle connection costs %d bytes of heap and %d of stack", heap, stack)
			}
		})
	}
}

// A frame that could decode to more memory than there is for all requests is refused, before it is decoded.
func TestRichFrameIsRefused(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{QueuedBytes: 4 << 20}, heartbeatAPI, API{Key: 3, Max: 12, Handle: p.handle})
	m := metadata()
	m.Topics = make([]kmsg.MetadataRequestTopic, 10)
	few := requestFrame(1, nil, m)
	m.Topics = make([]kmsg.MetadataRequestTopic, 20000)
	many := requestFrame(2, nil, m)
	c := ts.dial()
	c.send(few...)
	p.next(t).answer()
	c.reply()
	c.send(many...)
	c.closedByServer()
	ts.seen.await(t, "the rejection", func(r *recorder) bool { return r.rejected[LimitQueuedBytes] == 1 && r.closed == 1 })
	if !strings.Contains(ts.logs.String(), "more than queued.max.request.bytes=4194304") {
		t.Errorf("log: %s", ts.logs)
	}
}

// Requests larger than the read buffer arrive whole, in any cutting.
func TestLargeFrames(t *testing.T) {
	p := park()
	ts := startServer(t, Limits{}, API{Key: 0, Min: 3, Max: 12, Pipelined: true, Handle: p.handle})
	c := ts.dial()
	for _, size := range []int{readBufferBytes - 60, readBufferBytes, readBufferBytes + 1, 1 << 20, 5 << 20} {
		req := produce(9, 0)
		req.Topics[0].Partitions[0].Records = pattern(size, byte(size))
		f := requestFrame(1, nil, req)
		go func() {
			for piece := f; len(piece) > 0; {
				n := min(len(piece), 100_000)
				c.send(piece[:n]...)
				piece = piece[n:]
			}
		}()
		r := p.next(t)
		if got := r.Body.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records; !bytes.Equal(got, pattern(size, byte(size))) {
			t.Fatalf("%d bytes of records came as %d, or changed", size, len(got))
		}
		if used := ts.queued.inUse(); used < int64(size) || used > 2*int64(size)+8<<10 {
			t.Errorf("a frame of %d bytes takes %d of the budget", size, used)
		}
		r.answer()
		c.reply()
	}
}

// A reply may repeat bytes of its request: it is encoded before the frame is given back.
func TestReplyMayUseTheFrame(t *testing.T) {
	ts := startServer(t, Limits{}, API{Key: 36, Max: 2, Pipelined: true, Handle: func(_ context.Context, req *Request, done Done) {
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.SASLAuthBytes = req.Body.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes
		done(Response{Msg: resp}, nil)
	}})
	c := ts.dial()
	for i := range 200 {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes = pattern(100+i, byte(i))
		c.send(requestFrame(1, nil, req)...)
		_, rest := c.reply()
		if !bytes.Contains(rest, req.SASLAuthBytes) {
			t.Fatalf("reply %d changed", i)
		}
	}
}
