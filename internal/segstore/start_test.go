package segstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// BenchmarkStart: create, clean stop, clean start and start after a kill of
// 500 logs on a real disk.
func BenchmarkStart(b *testing.B) {
	for b.Loop() { // the steps below are timed, once
	}
	dir, cfg := b.TempDir(), testConfig()
	const logs = 500
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
		at := time.Now()
		f()
		b.ReportMetric(float64(time.Since(at).Milliseconds()), what+"-ms")
	}
	s := open()
	raw := plainBatch(noProducer, 1, 100, 1)
	timed("create", func() {
		for i := range logs {
			l, err := s.Create(TopicID{1, byte(i), byte(i >> 8)}, fmt.Sprintf("t%d", i), 0, cfg)
			if err != nil {
				b.Fatal(err)
			}
			l.BeginTerm(1)
			appendAgain(b, l, raw)
		}
	})
	timed("stop", func() { s.Close(true, 1) })
	timed("start", func() { s = open() })
	timed("stop-untouched", func() { s.Close(true, 1) })
	s = open()
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
		r := recovery{log: fresh}
		if err := r.run(); err != nil || r.end != l.Offsets().End {
			b.Fatal(r.end, err)
		}
	}
}
