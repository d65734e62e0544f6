package segstore

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// BenchmarkStart: create, clean stop, clean start and start after a kill of many
// logs on a real disk. The appends to them are not timed.
func BenchmarkStart(b *testing.B) {
	for _, logs := range []int{500, 10_000} {
		b.Run(fmt.Sprintf("logs=%d", logs), func(b *testing.B) { benchStart(b, logs) })
	}
}

func benchStart(b *testing.B, logs int) {
	for b.Loop() { // the steps below are timed, once
	}
	dir, cfg := b.TempDir(), testConfig()
	open := func() *Store {
		s, err := Open(Options{FS: vfs.OS{}, Dir: dir, RecoveryThreads: 2})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
			b.Fatal(err)
		}
		return s
	}
	timed := func(what string, f func()) {
		at, cpu := time.Now(), cpuTime(b, syscall.RUSAGE_SELF)
		f()
		b.ReportMetric(float64(time.Since(at).Milliseconds()), what+"-ms")
		b.ReportMetric(float64((cpuTime(b, syscall.RUSAGE_SELF) - cpu).Milliseconds()), what+"-cpu-ms")
	}
	s := open()
	raw := plainBatch(noProducer, 1, 100, 1)
	timed("create", func() { s.CreateAll(manyNew(logs, cfg)) })
	touch := func() {
		for _, l := range s.Logs() {
			l.BeginTerm(1)
			appendAgain(b, l, raw)
		}
	}
	touch()
	timed("stop", func() { s.Close(true, 1) })
	timed("start", func() { s = open() })
	timed("stop-untouched", func() { s.Close(true, 1) })
	s = open()
	touch()
	s.stop()
	s.running.Wait()
	s.lock.Close()
	timed("start-after-kill", func() { s = open() })
	s.Close(true, 1)
}

// BenchmarkRecovery checks one log of 256 MiB after a kill.
func BenchmarkRecovery(b *testing.B) {
	l := benchLog(b, Relaxed)
	raw := plainBatch(noProducer, 16, 1<<10, 1)
	for l.Offsets().End*1024 < 256<<20 {
		appendAgain(b, l, raw)
	}
	size := l.Size()
	b.SetBytes(size)
	for b.Loop() {
		fresh := l.store.newLog(l.id, l.name(), *l.cfg.Load())
		r := fresh.newRecovery(0, 0)
		if err := r.run(); err != nil || r.end != l.Offsets().End {
			b.Fatal(r.end, err)
		}
	}
}
