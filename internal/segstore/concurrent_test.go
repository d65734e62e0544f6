package segstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestEverythingAtOnce: producers, tailing readers, retention, checkpoints and
// lookups overlap; each reader sees every offset once, in order, whole.
func TestEverythingAtOnce(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.FileDeleteDelay = 16<<10, 700, 0
	cfg.RetentionBytes = 200 << 10
	s := openTest(t, vfs.NewMem(), "data", Strict, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	l.OnProgress(func() { l.SetHigh(l.Offsets().Durable) })
	const producers, each = 4, 250
	var produced atomic.Bool
	var working, reading sync.WaitGroup
	for p := range producers {
		working.Go(func() {
			for i := range each {
				h := BatchHeader{ProducerID: int64(p), BaseSequence: int32(i)}
				b, err := ParseBatch(plainBatch(h, 1, 300, time.Now().UnixMilli()))
				if err == nil {
					_, err = l.AppendLeader(b, 1)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		reading.Go(func() { tail(t, l, producers*each) })
	}
	reading.Go(func() {
		for !produced.Load() {
			if err := l.retain(s.now()); err != nil {
				t.Error(err)
			}
			s.emptyTrash(s.now())
			if err := s.checkpoint(t.Context()); err != nil {
				t.Error(err)
			}
			l.Producers()
		}
	})
	reading.Go(func() {
		for !produced.Load() {
			if _, _, err := l.MaxTimestamp(BoundHigh); err != nil {
				t.Error(err)
			}
			if _, _, err := l.OffsetForTime(time.Now().UnixMilli()-20, BoundHigh); err != nil {
				t.Error(err)
			}
		}
	})
	working.Wait()
	produced.Store(true)
	reading.Wait()
	stopTest(t, s, true)
}

// tail reads from the start until offset end, waiting for high.
func tail(t *testing.T, l *Log, end int64) {
	at := int64(0)
	for at < end {
		more := make(chan struct{})
		cancel := l.Watch(BoundHigh, at+1, func() { close(more) })
		<-more
		cancel()
		r, err := l.Read(at, 5000, BoundHigh, true)
		if errors.Is(err, ErrOffsetOutOfRange) {
			at = l.Offsets().Start // retention was faster
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		data, err := r.AppendTo(nil)
		r.Release()
		if err != nil {
			t.Error(err)
			return
		}
		for len(data) > 0 {
			h := decodeHeader(data)
			if h.BaseOffset != at || !crcGood(data[:h.Size()]) {
				t.Errorf("batch at %d, expected %d", h.BaseOffset, at)
				return
			}
			at = h.LastOffset() + 1
			data = data[h.Size():]
		}
	}
}

// TestSendfile: the bytes that arrive over a real socket are those of the log,
// for many readers of one file at once.
func TestSendfile(t *testing.T) {
	l := benchLog(t, Relaxed)
	for range 3000 {
		mustAppend(t, l, plainBatch(noProducer, 1, 1000, 1), 1)
	}
	l.SetHigh(3000)
	want := readAll(t, l, 0, BoundHigh)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			in, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer in.Close()
			out, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			wg.Go(func() {
				defer out.Close()
				r, err := l.Read(0, 1<<30, BoundHigh, true)
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Release()
				w := io.Writer(out)
				if i == 3 {
					w = struct{ io.Writer }{out} // not a plain connection: copied
				}
				if n, err := r.WriteTo(w); err != nil || int(n) != len(want) {
					t.Errorf("sent %d: %v", n, err)
				}
			})
			in.SetDeadline(time.Now().Add(20 * time.Second))
			got, err := io.ReadAll(in)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes of %d, %v", len(got), len(want), err)
			}
		})
	}
	wg.Wait()
}

// TestManyLogs: open files, goroutines and memory do not follow the number of logs.
func TestManyLogs(t *testing.T) {
	const logs = 2000
	cfg := testConfig()
	disk := vfs.NewMem()
	s := openTest(t, disk, "data", Strict, cfg)
	before := runtime.NumGoroutine()
	var heap runtime.MemStats
	raw := plainBatch(noProducer, 1, 10, 1)
	for i := range logs {
		l, err := s.Create(TopicID{1, byte(i), byte(i >> 8)}, fmt.Sprintf("t%d", i), 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		appendAgain(t, l, raw)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time all are idle
		if err := s.checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > before+flushParallel+tenderCount+4 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	if s.handles.open > s.handles.limit {
		t.Errorf("%d open files", s.handles.open)
	}
	stopTest(t, s, true)
	runtime.GC()
	runtime.ReadMemStats(&heap)
	was := heap.HeapAlloc
	s = openTest(t, disk, "data", Strict, cfg)
	runtime.GC()
	runtime.ReadMemStats(&heap)
	if per := (int64(heap.HeapAlloc) - int64(was)) / logs; per > 4096 {
		t.Errorf("%d bytes of memory for an idle log", per)
	} else {
		t.Logf("%d bytes of memory for an idle log, %d open files", per, s.handles.open)
	}
	if s.handles.open > s.handles.limit || len(s.Logs()) != logs {
		t.Errorf("%d open files, %d logs", s.handles.open, len(s.Logs()))
	}
	stopTest(t, s, true)
}
