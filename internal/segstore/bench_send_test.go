//go:build linux

package segstore

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// BenchmarkSendTail sends the newest bytes of a log to a TCP connection again and again, with a header and a trailer
// around them as an answer has: the way a fetch goes ("log"), by sendfile, by pread and writev ("read"), and by writev
// from memory that is warm and needs no look-up ("memory": the best that a cache of received frames could do). It
// reports the processor time for each GiB, of the sending thread and of the whole process with its receiver. The
// decision against such a cache in docs/architecture.md rests on it.
func BenchmarkSendTail(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, how := range []string{"log", "memory", "read", "sendfile"} {
			b.Run(fmt.Sprintf("%s/%dKiB", how, size>>10), func(b *testing.B) { benchSendTail(b, how, size) })
		}
	}
}

func benchSendTail(b *testing.B, how string, size int) {
	l := benchLog(b, Relaxed)
	raw := plainBatch(noProducer, 1, min(size, 64<<10)-150, 1) // a batch of at most 64 KiB
	for i := 0; i < (1<<20)/len(raw)+2; i++ {
		l.SetHigh(appendAgain(b, l, raw).LastOffset + 1)
	}
	high := l.Offsets().High
	from := high - int64(max(1, size/(64<<10))) // that many of the newest batches
	memory, err := l.Read(from, size, BoundHigh, true)
	if err != nil {
		b.Fatal(err)
	}
	newest, err := memory.AppendTo(nil)
	if err != nil {
		b.Fatal(err)
	}
	memory.Release()
	file := l.segments[0].file.file
	fd, _ := file.Fd()
	end, _ := l.segments[0].shape()
	at := end - int64(len(newest))
	buf := make([]byte, len(newest))

	conn := sink(b)
	header, trailer := make([]byte, 100), make([]byte, 4) // what an answer has around its records
	whole := func(records []byte) error {
		all := net.Buffers{header, records, trailer}
		_, err := all.WriteTo(conn)
		return err
	}
	parts := func(write func() error) error {
		if _, err := conn.Write(header); err != nil {
			return err
		}
		if err := write(); err != nil {
			return err
		}
		_, err := conn.Write(trailer)
		return err
	}
	send := map[string]func() error{
		"log": func() error {
			r, err := l.Read(from, size, BoundHigh, true)
			if err != nil {
				return err
			}
			defer r.Release()
			if b := r.(*records).Memory(); b != nil {
				return whole(b)
			}
			return parts(func() error { _, err := r.WriteTo(conn); return err })
		},
		"memory": func() error { return whole(newest) },
		"sendfile": func() error {
			return parts(func() error { _, _, err := sendfile(conn, fd, at, int64(len(newest))); return err })
		},
		"read": func() error {
			if err := readFull(file, buf, at); err != nil {
				return err
			}
			return whole(buf)
		},
	}[how]
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.SetBytes(int64(len(newest)))
	b.ReportAllocs()
	thread, process := cpuTime(b, syscall.RUSAGE_THREAD), cpuTime(b, syscall.RUSAGE_SELF)
	n := 0
	for b.Loop() {
		if err := send(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	gib := float64(n) * float64(len(newest)) / (1 << 30)
	b.ReportMetric((cpuTime(b, syscall.RUSAGE_THREAD)-thread).Seconds()/gib, "sender-s/GiB")
	b.ReportMetric((cpuTime(b, syscall.RUSAGE_SELF)-process).Seconds()/gib, "both-s/GiB")
}

// sink is a TCP connection whose other end throws everything away.
func sink(tb testing.TB) *net.TCPConn {
	conn, peer := connect(tb)
	go io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{peer}, make([]byte, 256<<10))
	return conn
}

// connect makes both ends of a TCP connection.
func connect(tb testing.TB) (conn, peer *net.TCPConn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { a.Close() })
	z, err := ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { z.Close() })
	return a.(*net.TCPConn), z.(*net.TCPConn)
}

// BenchmarkReceive is the other side of such a cache: frames of 64 KiB that are received and appended, in one buffer
// that a pool hands out again at once, or in buffers that come round when the cache of 128 MiB drops them.
func BenchmarkReceive(b *testing.B) {
	for _, buffers := range []int{1, 2048} {
		b.Run(fmt.Sprintf("buffers=%d", buffers), func(b *testing.B) {
			l := benchLog(b, Relaxed)
			raw := plainBatch(noProducer, 1, 64<<10-150, 1)
			conn := source(b, raw)
			frames := make([][]byte, buffers)
			for i := range frames {
				frames[i] = bytes.Clone(raw)
			}
			b.SetBytes(int64(len(raw)))
			before, n := cpuTime(b, syscall.RUSAGE_SELF), 0
			for b.Loop() {
				frame := frames[n%buffers]
				if _, err := io.ReadFull(conn, frame); err != nil {
					b.Fatal(err)
				}
				l.SetHigh(appendAgain(b, l, frame).LastOffset + 1)
				n++
			}
			gib := float64(n) * float64(len(raw)) / (1 << 30)
			b.ReportMetric((cpuTime(b, syscall.RUSAGE_SELF)-before).Seconds()/gib, "both-s/GiB")
		})
	}
}

// source is a TCP connection that brings the same bytes again and again.
func source(tb testing.TB, data []byte) *net.TCPConn {
	conn, peer := connect(tb)
	go func() {
		for {
			if _, err := peer.Write(data); err != nil {
				return
			}
		}
	}()
	return conn
}
