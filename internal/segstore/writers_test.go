package segstore

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Appends to more logs than may be open, from several goroutines and without any checkpoint, keep the number of open
// files bounded, and a file is given back only once it is durable.
func TestWritersGiveFilesBack(t *testing.T) {
	const logs, limit, appenders = 400, 40, 4
	for _, d := range []Durability{Relaxed, Strict} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			cfg := testConfig()
			s := openTest(t, vfs.NewMem(), "data", d, cfg)
			s.handles.limit, s.writers.limit = limit, limit/2
			all := make([]*Log, logs)
			for i := range all {
				l, err := s.Create(TopicID{1, byte(i), byte(i >> 8)}, fmt.Sprintf("t%d", i), 0, cfg)
				if err != nil {
					t.Fatal(err)
				}
				l.BeginTerm(1)
				all[i] = l
			}
			var wg sync.WaitGroup
			for a := range appenders {
				wg.Go(func() {
					raw := plainBatch(noProducer, 1, 10, 1)
					for i := range 3 * logs {
						appendAgain(t, all[(i*7+a*logs/appenders)%logs], raw)
						s.handles.mu.Lock()
						if n := s.handles.open; n > limit+flushParallel+appenders {
							t.Errorf("%d files are open", n)
						}
						s.handles.mu.Unlock()
					}
				})
			}
			wg.Wait()
			for _, l := range all {
				l.mu.Lock()
				if o := l.Offsets(); o.End != 3*appenders || l.writer == nil && o.Durable < o.End && d == Relaxed {
					t.Errorf("%s: %+v, open %v", l.topic, o, l.writer != nil)
				}
				l.mu.Unlock()
			}
			stopTest(t, s, true)
		})
	}
}

// When as many files are in use as may be open, a read answers from memory, with less.
func TestReadWhenCrowded(t *testing.T) {
	cfg := testConfig()
	s := openTest(t, vfs.NewMem(), "data", Relaxed, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.BeginTerm(1)
	small, large := plainBatch(noProducer, 1, 10<<10, 1), plainBatch(noProducer, 1, 200<<10, 1)
	for range 20 {
		appendAgain(t, l, small)
	}
	appendAgain(t, l, large)
	l.SetHigh(21)
	check := func(from int64, atMost, files int) {
		t.Helper()
		r, err := l.Read(from, 1<<20, BoundHigh, true)
		if err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, p := range r.(*records).pieces {
			if p.file != nil {
				held++
			}
		}
		if r.Len() == 0 || r.Len() > atMost || held != files {
			t.Errorf("from %d: %d bytes, %d files held", from, r.Len(), held)
		}
		r.Release()
	}
	check(0, 1<<20, 1)
	s.handles.limit = 1 // the writer's
	check(0, smallPiece, 0)
	check(20, len(large), 0) // a batch comes whole
	stopTest(t, s, true)
}
