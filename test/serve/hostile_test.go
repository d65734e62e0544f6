package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frame puts the length before its parts.
func frame(parts ...string) string {
	body := strings.Join(parts, "")
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// header is a request header with the client id "x": version 1, or 2 with its empty tagged fields when flexible.
func header(key, version int16, flexible bool) string {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 7, 0, 1, 'x')
	if flexible {
		b = append(b, 0)
	}
	return string(b)
}

// hostile are first bytes after which the broker must end the connection without a word.
var hostile = map[string]string{
	"HTTP request":             "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"TLS hello":                "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("r", 512),
	"negative length":          "\xff\xff\xff\xff",
	"most negative length":     "\x80\x00\x00\x00",
	"zero length":              "\x00\x00\x00\x00",
	"length above the limit":   "\x06\x40\x00\x01",
	"largest length":           "\x7f\xff\xff\xff",
	"garbage":                  strings.Repeat("\x9e\x37\x79\xb9", 256),
	"unknown API":              frame(header(999, 0, false)),
	"negative API":             frame(header(-1, 0, false)),
	"version too high":         frame(header(3, 99, true), "\x00"),
	"negative version":         frame(header(3, -3, false)),
	"frame shorter than head":  frame("\x00\x03\x00\x01\x00"),
	"client id beyond frame":   frame("\x00\x03\x00\x01\x00\x00\x00\x07\x7f\xffabc"),
	"huge topic array":         frame(header(3, 1, false), "\x7f\xff\xff\xff"),
	"huge compact topic array": frame(header(3, 9, true), "\xff\xff\xff\xff\x07"),
	"huge fetch array":         frame(header(1, 4, false), "\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x7f\xff\xff\xff"),
	"huge produce array":       frame(header(0, 3, false), "\xff\xff\xff\xff\x00\x00\x03\xe8\x7f\xff\xff\xff"),
	"huge join array":          frame(header(11, 0, false), "\x00\x01g\x00\x00\x27\x10\x00\x00\x00\x01c\x7f\xff\xff\xff"),
	"huge create array":        frame(header(19, 2, false), "\x7f\xff\xff\xff"),
}

// neighbour produces and consumes beside the hostile clients and notes its worst round trip.
type neighbour struct {
	stop  context.CancelFunc
	ended chan error
	sent  int
	worst time.Duration
}

// newNeighbour runs a producer that waits for its consumer to see each record before it sends the next one.
func newNeighbour(n *node, topic string) *neighbour {
	n.t.Helper()
	n.createTopics(1, topic)
	c := n.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordRetries(0), kgo.ProducerLinger(0))
	ctx, stop := context.WithCancel(context.Background())
	b := &neighbour{stop: stop, ended: make(chan error, 1)}
	go func() { b.ended <- b.run(ctx, c, topic) }()
	return b
}

func (b *neighbour) run(ctx context.Context, c *kgo.Client, topic string) error {
	for ; ctx.Err() == nil; b.sent++ {
		began := time.Now()
		value := fmt.Sprint(b.sent)
		one, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := c.ProduceSync(one, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			cancel()
			return fmt.Errorf("produce %s: %w", value, err)
		}
		fetches := c.PollRecords(one, 1)
		cancel()
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume %s: %w", value, err)
		}
		if got := fetches.Records(); len(got) != 1 || string(got[0].Value) != value {
			return fmt.Errorf("consumed %v, want %s", got, value)
		}
		b.worst = max(b.worst, time.Since(began))
	}
	return nil
}

// end stops it; the test fails if it noticed anything.
func (b *neighbour) end(t *testing.T) {
	t.Helper()
	b.stop()
	if err := <-b.ended; err != nil {
		t.Errorf("the client beside: %v", err)
	}
	t.Logf("the client beside: %d records produced and consumed, the slowest took %s", b.sent, b.worst.Round(time.Millisecond))
	if b.sent < 10 || b.worst > 3*time.Second {
		t.Errorf("the client beside got %d records through, the slowest took %s", b.sent, b.worst)
	}
}

// dial connects for at most 20 seconds.
func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHostileBytes(t *testing.T) {
	needProc(t)
	n := serve(t, database(t))
	n.createTopics(1, "claimed")
	beside := newNeighbour(n, "beside")
	before := residentBytes(t, n.cmd.Process.Pid, "VmRSS")

	for name, bytes := range hostile {
		t.Run(name, func(t *testing.T) {
			c := dial(t, n.bootstrap)
			if _, err := io.WriteString(c, bytes); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(c)
			if err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("the connection did not end: %v", err)
			}
			if len(answer) > 0 {
				t.Errorf("answered %q", answer)
			}
		})
	}
	t.Run("half frames", func(t *testing.T) { halfFrames(t, n) })
	t.Run("ApiVersions too high", func(t *testing.T) { apiVersionsTooHigh(t, n) })
	t.Run("claims", func(t *testing.T) { claims(t, n) })

	beside.end(t)
	grown := residentBytes(t, n.cmd.Process.Pid, "VmHWM") - before
	t.Logf("the broker's memory rose by %.1f MiB at most, from %.1f MiB", float64(grown)/(1<<20), float64(before)/(1<<20))
	if grown > 64<<20 {
		t.Errorf("the broker's memory rose by %d MiB, at most 64 are fine", grown>>20)
	}
}

// halfFrames leaves frames half sent: what came whole is answered, and the half is waited for.
func halfFrames(t *testing.T, n *node) {
	whole := frame(header(18, 0, false))
	for cut := 1; cut < len(whole); cut++ {
		c := dial(t, n.bootstrap)
		if _, err := io.WriteString(c, whole+whole[:cut]); err != nil {
			t.Fatal(err)
		}
		if _, err := readReply(c); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if _, err := io.WriteString(c, whole[cut:]); err != nil {
			t.Fatal(err)
		}
		if _, err := readReply(c); err != nil {
			t.Fatalf("cut at %d, second half: %v", cut, err)
		}
		_, _ = io.WriteString(c, whole[:cut]) // and goes away in the middle of the next one
		_ = c.Close()
	}
}

// readReply reads one frame without its length.
func readReply(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 1<<20 {
		return nil, fmt.Errorf("reply of %d bytes", n)
	}
	reply := make([]byte, n)
	_, err := io.ReadFull(r, reply)
	return reply, err
}

// apiVersionsTooHigh: the answer has the body of version 0 with UNSUPPORTED_VERSION and the range that is served, so that
// a newer client can ask again on the same connection (KIP-511).
func apiVersionsTooHigh(t *testing.T, n *node) {
	c := dial(t, n.bootstrap)
	if _, err := io.WriteString(c, frame(header(18, 99, true), "\x02x\x02y\x00")); err != nil {
		t.Fatal(err)
	}
	reply, err := readReply(c)
	if err != nil {
		t.Fatal(err)
	}
	if id := binary.BigEndian.Uint32(reply); id != 7 {
		t.Errorf("correlation id %d", id)
	}
	r := kmsg.NewPtrApiVersionsResponse() // version 0
	if err := r.ReadFrom(reply[4:]); err != nil {
		t.Fatalf("not a body of version 0: %v: %q", err, reply)
	}
	if r.ErrorCode != 35 {
		t.Errorf("error %d, want 35", r.ErrorCode)
	}
	served := int16(-1)
	for _, k := range r.ApiKeys {
		if k.ApiKey == 18 {
			served = k.MaxVersion
		}
	}
	if served < 3 {
		t.Fatalf("range of ApiVersions missing or below 3: %d", served)
	}
	if _, err := io.WriteString(c, frame(header(18, 0, false))); err != nil {
		t.Fatal(err)
	}
	if reply, err = readReply(c); err != nil || r.ReadFrom(reply[4:]) != nil || r.ErrorCode != 0 {
		t.Errorf("asked again: %v, error %d", err, r.ErrorCode)
	}
}

// claims opens 500 connections that each announce a frame of 100 MiB and send a little of it.
func claims(t *testing.T, n *node) {
	var refused atomic.Int64
	for range 500 {
		c := dial(t, n.bootstrap)
		if _, err := io.WriteString(c, "\x06\x40\x00\x00"+header(0, 3, false)+strings.Repeat("c", 1000)); err != nil {
			refused.Add(1)
		}
	}
	// They stay open while a new client is served.
	started := time.Now()
	produce(t, n.client(), "claimed", "x")
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("a new client beside 500 claims needed %s", took)
	}
	if refused.Load() > 0 {
		t.Errorf("%d of 500 connections were refused", refused.Load())
	}
}
