package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// benchServer serves apis for a benchmark and returns a connection to it.
func benchServer(b *testing.B, apis ...API) net.Conn {
	registry, err := NewRegistry(apis)
	if err != nil {
		b.Fatal(err)
	}
	s := NewServer(Options{Registry: registry, Log: slog.New(slog.DiscardHandler)})
	if err := s.Listen(b.Context(), []Listener{{Name: "PLAIN", Address: "127.0.0.1:0"}}); err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.WithoutCancel(b.Context())) }()
	c, err := net.Dial("tcp", s.Addr("PLAIN").String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		s.Close()
		<-served
	})
	return c
}

// BenchmarkEcho sends small Heartbeats, depth of them in flight, and reads the replies: both ends are counted.
func BenchmarkEcho(b *testing.B) {
	for _, depth := range []int{1, 5, 64} {
		b.Run(map[int]string{1: "1-in-flight", 5: "5-in-flight", 64: "64-in-flight"}[depth], func(b *testing.B) {
			c := benchServer(b, heartbeatAPI)
			frame := requestFrame(1, kmsg.StringPtr("bench"), heartbeat("group"))
			var batch []byte
			for range depth {
				batch = append(batch, frame...)
			}
			r := bufio.NewReaderSize(c, 64<<10)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += depth {
				if _, err := c.Write(batch); err != nil {
					b.Fatal(err)
				}
				for range depth {
					head, err := r.Peek(4)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := r.Discard(4 + int(binary.BigEndian.Uint32(head))); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkLateReplies is BenchmarkEcho with 64 in flight, answered by another goroutine as a flusher does.
func BenchmarkLateReplies(b *testing.B) {
	work := make(chan func(), 256)
	go func() {
		for f := range work {
			f()
		}
	}()
	defer close(work)
	c := benchServer(b, API{Key: 12, Max: 4, Pipelined: true, Handle: func(ctx context.Context, req *Request, done Done) {
		work <- func() { echoHeartbeat(ctx, req, done) }
	}})
	frame := requestFrame(1, kmsg.StringPtr("bench"), heartbeat("group"))
	batch := bytes.Repeat(frame, 64)
	reply := make([]byte, 64*(4+4+1+4+2+1))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		if _, err := c.Write(batch); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, reply); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProduce sends batches of one partition to a handler that only looks at them.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		b.Run(map[int]string{1 << 10: "1KiB", 16 << 10: "16KiB", 64 << 10: "64KiB", 1 << 20: "1MiB"}[size], func(b *testing.B) {
			c := benchServer(b, API{Key: 0, Min: 3, Max: 12, Pipelined: true,
				Handle: func(_ context.Context, _ *Request, done Done) { done(Response{Msg: kmsg.NewPtrProduceResponse()}, nil) }})
			frame := requestFrame(1, kmsg.StringPtr("bench"), produce(9, size))
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				for range b.N {
					if _, err := c.Write(frame); err != nil {
						return
					}
				}
			}()
			reply := make([]byte, 4+4+1+1+4+1)
			for range b.N {
				if _, err := io.ReadFull(c, reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// produce is a Produce of one partition with size bytes of records.
func produce(version int16, size int) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks = version, -1
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "topic"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = make([]byte, size)
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}
