package segstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// benchLog makes a log on a real disk.
func benchLog(tb testing.TB, d Durability) *Log {
	tb.Helper()
	cfg := testConfig()
	s, err := Open(Options{FS: vfs.OS{}, Dir: tb.TempDir(), Durability: d})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close(true, 0) })
	l, err := s.Create(TopicID{1}, "bench", 0, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := l.BeginTerm(1); err != nil {
		tb.Fatal(err)
	}
	return l
}

// appendAgain appends the same bytes once more, as a client's next batch.
func appendAgain(tb testing.TB, l *Log, raw []byte) Appended {
	clear(raw[:8])
	b, err := ParseBatch(raw)
	if err != nil {
		tb.Fatal(err)
	}
	a, err := l.AppendLeader(b, 1)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// BenchmarkAppendRelaxed appends one batch of one record for each call: CRC checked, one write each. Beside the time it
// reports the processor's, which tells more where others work on the machine.
func BenchmarkAppendRelaxed(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := benchLog(b, Relaxed)
			raw := plainBatch(noProducer, 1, size, 1)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			before, n := cpuTime(b, syscall.RUSAGE_SELF), 0
			for b.Loop() {
				a := appendAgain(b, l, raw)
				l.SetHigh(a.LastOffset + 1)
				n++
			}
			b.ReportMetric(float64(cpuTime(b, syscall.RUSAGE_SELF)-before)/float64(n), "cpu-ns/op")
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// BenchmarkAppendParallel is the same from one goroutine for each processor, each with a log of its own.
func BenchmarkAppendParallel(b *testing.B) {
	s, next := benchLog(b, Relaxed).store, atomic.Int32{}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		l, err := s.Create(TopicID{2, byte(next.Add(1))}, fmt.Sprintf("parallel-%d-%d", b.N, next.Load()), 0, testConfig())
		if err != nil {
			b.Error(err)
			return
		}
		l.BeginTerm(1)
		raw := plainBatch(noProducer, 1, 100, 1)
		for pb.Next() {
			l.SetHigh(appendAgain(b, l, raw).LastOffset + 1)
		}
		s.Delete(l.ID(), 0)
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkAppendStrict has producers wait for durability, each with one batch at a time; many share fsyncs.
func BenchmarkAppendStrict(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		for _, producers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%d/producers=%d", size, producers), func(b *testing.B) {
				l := benchLog(b, Strict)
				b.ReportAllocs()
				b.SetBytes(int64(len(plainBatch(noProducer, 1, size, 1))))
				var wg sync.WaitGroup
				b.ResetTimer()
				for range producers {
					wg.Go(func() {
						raw := plainBatch(noProducer, 1, size, 1)
						for range (b.N + producers - 1) / producers {
							a := appendAgain(b, l, raw)
							done := make(chan struct{})
							l.Watch(BoundDurable, a.LastOffset+1, func() { close(done) })
							<-done
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}

// cpuTime is the processor time used so far.
func cpuTime(tb testing.TB, who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestRelaxedAppendDoesNotAllocate in steady state.
func TestRelaxedAppendDoesNotAllocate(t *testing.T) {
	l := benchLog(t, Relaxed)
	plain := plainBatch(noProducer, 1, 100, 1)
	idempotent := func(seq int32) []byte {
		return plainBatch(BatchHeader{ProducerID: 7, BaseSequence: seq}, 1, 100, 1)
	}
	appendAgain(t, l, idempotent(0))
	seq := make([][]byte, 300)
	for i := range seq {
		seq[i] = idempotent(int32(i + 1))
	}
	next := 0
	allocs := testing.AllocsPerRun(250, func() {
		a := appendAgain(t, l, plain)
		l.SetHigh(a.LastOffset + 1)
		appendAgain(t, l, seq[next])
		next++
	})
	if allocs != 0 {
		t.Errorf("%v allocations for two appends", allocs)
	}
}
