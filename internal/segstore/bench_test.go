package segstore

import (
	"fmt"
	"io"
	"sync"
	"testing"

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

func BenchmarkAppendRelaxed(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := benchLog(b, Relaxed)
			raw := plainBatch(noProducer, 1, size, 1)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				a := appendAgain(b, l, raw)
				l.SetHigh(a.LastOffset + 1)
			}
		})
	}
}

// BenchmarkAppendStrict has so many producers wait for durability that they
// share fsyncs.
func BenchmarkAppendStrict(b *testing.B) {
	for _, producers := range []int{1, 64} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			l := benchLog(b, Strict)
			b.ReportAllocs()
			var wg sync.WaitGroup
			b.ResetTimer()
			for range producers {
				wg.Go(func() {
					raw := plainBatch(noProducer, 1, 1<<10, 1)
					for range max(1, b.N/producers) {
						a := appendAgain(b, l, raw)
						done := make(chan struct{})
						l.Watch(BoundDurable, a.LastOffset+1, func() { close(done) })
						<-done
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := benchLog(b, Relaxed)
			raw := plainBatch(noProducer, 1, 1<<10, 1)
			const batches = 50000
			for range batches {
				appendAgain(b, l, raw)
			}
			l.SetHigh(batches)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			i := int64(0)
			for b.Loop() {
				i = (i + 7919) % (batches - 1100)
				r, err := l.Read(i, size, BoundHigh, true)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
				r.Release()
			}
		})
	}
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
