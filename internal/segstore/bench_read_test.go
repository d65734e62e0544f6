//go:build linux

package segstore

import (
	"fmt"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// fillBench appends batches of one record of size bytes up to about total, over segments of 16 MiB.
func fillBench(tb testing.TB, l *Log, size, total int) (batches int64) {
	tb.Helper()
	cfg := *l.cfg.Load()
	cfg.SegmentBytes, cfg.RetentionBytes = 16<<20, -1
	l.SetConfig(cfg)
	raw := plainBatch(noProducer, 1, size, 1)
	for at := 0; at < total; at += len(raw) {
		batches = appendAgain(tb, l, raw).LastOffset + 1
	}
	l.SetHigh(batches)
	if err := l.flush(); err != nil {
		tb.Fatal(err)
	}
	return batches
}

// BenchmarkRead reads 64 KiB and 1 MiB at random places of a log of 64 MiB in the page cache: "small" is of batches of
// 1 KiB, so that a place is found by index and headers, "large" of batches of 64 KiB.
func BenchmarkRead(b *testing.B) {
	for i, name := range []string{"small", "large"} {
		batch := []int{1 << 10, 64<<10 - 150}[i]
		for _, size := range []int{64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				l := benchLog(b, Relaxed)
				batches := fillBench(b, l, batch, 64<<20)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				i := int64(0)
				for b.Loop() {
					i = (i + 7919) % (batches - 1100*int64(1<<10)/int64(batch))
					benchRead(b, l, i, size)
				}
			})
		}
	}
}

func benchRead(b *testing.B, l *Log, from int64, size int) (n int64) {
	r, err := l.Read(from, size, BoundHigh, true)
	if err != nil {
		b.Fatal(err)
	}
	if n, err = r.WriteTo(io.Discard); err != nil {
		b.Fatal(err)
	}
	r.Release()
	return n
}

// BenchmarkReadCold reads a log of 64 MiB from its start, 64 KiB at a time, after the kernel was asked to drop its pages.
// What is below the kernel, such as the cache of a virtual disk's host, may still have them.
func BenchmarkReadCold(b *testing.B) {
	l := benchLog(b, Relaxed)
	batches := fillBench(b, l, 64<<10-150, 64<<20)
	b.SetBytes(64 << 10)
	at := batches
	for b.Loop() {
		if at >= batches {
			b.StopTimer()
			dropPages(b, l)
			at = 0
			b.StartTimer()
		}
		benchRead(b, l, at, 64<<10)
		at++
	}
}

// dropPages asks the kernel to forget what it caches of a log's synced files.
func dropPages(b *testing.B, l *Log) {
	for _, s := range l.list() {
		f, err := l.store.handles.acquire(&s.file)
		if err != nil {
			b.Fatal(err)
		}
		fd, _ := f.Fd()
		if err := unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED); err != nil {
			b.Fatal(err)
		}
		l.store.handles.release(&s.file)
	}
}

// BenchmarkLookup finds the batch of an offset in a sealed segment: "index" in the index alone, "batch" with the headers
// that are then read from the file.
func BenchmarkLookup(b *testing.B) {
	l := benchLog(b, Relaxed)
	fillBench(b, l, 1<<10, 20<<20)
	s := l.list()[0]
	size, end := s.shape()
	index, _, err := l.store.indexes.get(s)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("index", func(b *testing.B) {
		b.ReportAllocs()
		i := int64(0)
		for b.Loop() {
			i = (i + 7919) % end
			index.atOffset(i)
		}
	})
	b.Run("batch", func(b *testing.B) {
		b.ReportAllocs()
		i := int64(0)
		for b.Loop() {
			i = (i + 7919) % end
			if _, err := l.locate(s, i, size); err != nil {
				b.Fatal(err)
			}
		}
	})
}
