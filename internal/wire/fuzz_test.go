package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// scriptConn is a connection whose client sent all it will ever send, and whose replies are kept.
type scriptConn struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (c *scriptConn) Read(b []byte) (int, error)      { return c.in.Read(b) }
func (c *scriptConn) Write(b []byte) (int, error)     { return c.out.Write(b) }
func (c *scriptConn) Close() error                    { return nil }
func (c *scriptConn) RemoteAddr() net.Addr            { return &net.TCPAddr{} }
func (c *scriptConn) SetReadDeadline(time.Time) error { c.in.Reset(nil); return nil }

// everyAPI answers each request that the codec knows with the empty answer to it.
func everyAPI(tb testing.TB) *Registry {
	var apis []API
	for _, rt := range allRoutes(tb) {
		rt.Handle = func(_ context.Context, req *Request, done Done) { done(Response{Msg: req.Body.ResponseKind()}, nil) }
		rt.Pipelined = rt.Key%2 == 0
		if rt.Key == apiVersionsKey {
			rt.Max = 3
		}
		apis = append(apis, rt.API)
	}
	r, err := NewRegistry(apis)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// FuzzFrames gives a server arbitrary bytes from a client: lengths, headers and bodies. It must neither panic nor
// use memory out of proportion, answer only with whole frames, and give everything back.
func FuzzFrames(f *testing.F) {
	registry := everyAPI(f)
	logs := &syncBuffer{}
	s := NewServer(Options{Registry: registry, Limits: Limits{MaxRequestBytes: 1 << 20, QueuedBytes: 8 << 20},
		Log: slog.New(slog.NewTextHandler(logs, nil))})
	s.ctx = context.Background()
	f.Fuzz(func(t *testing.T, data []byte) {
		sock := &scriptConn{in: bytes.NewReader(data)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.newConn("FUZZ", sock).read()
		runtime.ReadMemStats(&after)
		// A request of no more than 4 KiB may decode to its weight, and what is answered costs a little each time.
		if cost, bound := after.TotalAlloc-before.TotalAlloc, uint64(512<<10+128*len(data)); cost > bound {
			t.Errorf("%d bytes cost %d bytes of memory", len(data), cost)
		}
		if used := s.queued.inUse(); used != 0 {
			t.Errorf("%d bytes of the budget are lost", used)
		}
		if strings.Contains(logs.String(), "panic") {
			t.Errorf("a panic: %s", logs)
		}
		for out := sock.out.Bytes(); len(out) > 0; {
			if len(out) < 8 || binary.BigEndian.Uint32(out) > uint32(len(out)-4) {
				t.Fatalf("the replies do not end with a whole frame: %x", out)
			}
			out = out[4+binary.BigEndian.Uint32(out):]
		}
	})
}

var writeCorpus = flag.Bool("write-corpus", false, "write the seeds of FuzzFrames to testdata")

// TestCorpus keeps the seeds of FuzzFrames in step with what the codec speaks: each API at its first and last
// version, with elements in its lists, and the hostile ones.
func TestCorpus(t *testing.T) {
	seeds := map[string][]byte{
		"http":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"tls":             []byte("\x16\x03\x01\x02\x00\x01"),
		"negative-length": []byte("\xff\xff\xff\xff"),
		"half-frame":      []byte("\x00\x00\x00\x40\x00\x12"),
		"version-99":      []byte("\x00\x00\x00\x0a\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff"),
		"huge-count":      []byte("\x00\x00\x00\x0e\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff"),
		"header-tags":     []byte("\x00\x00\x00\x12\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x01\x05\x03abc\x00\x00"),
	}
	for _, rt := range everyAPI(t).byKey {
		if rt == nil {
			continue
		}
		for _, v := range []int16{0, rt.Max} {
			seeds[rt.name+"-v"+strconv.Itoa(int(v))] = requestFrame(1, kmsg.StringPtr("c"), decoded(t, rt, v))
		}
	}
	dir := filepath.Join("testdata", "fuzz", "FuzzFrames")
	for name, seed := range seeds {
		path := filepath.Join(dir, name)
		want := "go test fuzz v1\n[]byte(" + strconv.Quote(string(seed)) + ")\n"
		if *writeCorpus {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("seed %s is out of date (%v): run go test -run TestCorpus -write-corpus", name, err)
		}
	}
}

// decoded is a request with one element in each list.
func decoded(t *testing.T, rt *route, v int16) kmsg.Request {
	msg, err := rt.decode(v, filled(rt.Key, v, 1))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}
