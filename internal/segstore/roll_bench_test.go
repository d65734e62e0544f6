package segstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// BenchmarkAppendAcrossRolls appends 16 KiB batches at a steady 100 MB/s with a
// new segment each 64 MiB, and gives percentiles of an append, in
// microseconds; roll-µs is the median of those appends that began a segment.
// Run it with -benchtime=60000x: a roll has to be above the last percentile.
func BenchmarkAppendAcrossRolls(b *testing.B) {
	for _, d := range []Durability{Relaxed, Strict} {
		b.Run(fmt.Sprintf("durability=%d", d), func(b *testing.B) { benchRolls(b, d) })
	}
}

func benchRolls(b *testing.B, d Durability) {
	const size, perSecond = 16 << 10, 100 << 20
	cfg := testConfig()
	cfg.SegmentBytes = 64 << 20
	s, err := Open(Options{FS: vfs.OS{}, Dir: b.TempDir(), Durability: d, CheckpointEvery: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(true, 0)
	l, err := s.Create(TopicID{1}, "bench", 0, cfg)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.BeginTerm(1); err != nil {
		b.Fatal(err)
	}
	raw := plainBatch(noProducer, 1, size-100, 1)
	every := time.Duration(int64(time.Second) * int64(len(raw)) / perSecond)
	took := make([]time.Duration, 0, b.N)
	var rolls []time.Duration
	next := time.Now()
	for b.Loop() {
		clear(raw[:8])
		batch, err := ParseBatch(raw)
		if err != nil {
			b.Fatal(err)
		}
		before := l.segments[len(l.segments)-1]
		began := time.Now()
		a, err := l.AppendLeader(batch, 1)
		if err != nil {
			b.Fatal(err)
		}
		t := time.Since(began)
		took = append(took, t)
		if l.segments[len(l.segments)-1] != before {
			rolls = append(rolls, t)
		}
		l.SetHigh(a.LastOffset + 1)
		next = next.Add(every)
		time.Sleep(time.Until(next))
	}
	b.StopTimer()
	slices.Sort(took)
	slices.Sort(rolls)
	micros := func(sorted []time.Duration, q float64) float64 {
		if len(sorted) == 0 {
			return 0
		}
		return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / float64(time.Microsecond)
	}
	b.ReportMetric(micros(took, 0.5), "p50-µs")
	b.ReportMetric(micros(took, 0.99), "p99-µs")
	b.ReportMetric(micros(took, 0.999), "p99.9-µs")
	b.ReportMetric(micros(took, 1), "max-µs")
	b.ReportMetric(micros(rolls, 0.5), "roll-µs")
	b.ReportMetric(micros(rolls, 1), "rollmax-µs")
	b.ReportMetric(float64(len(rolls)), "rolls")
}
