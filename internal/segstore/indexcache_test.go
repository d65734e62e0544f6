package segstore

import (
	"errors"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestIndexCacheForgetsSegmentsThatGo: neither retention nor truncation, nor the end of a log, leaves indexes of segments
// that are gone in memory.
func TestIndexCacheForgetsSegmentsThatGo(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 4<<10, 200
	changes := map[string]func(s *Store, l *Log) error{
		"retention": func(_ *Store, l *Log) error {
			_, err := l.DeleteTo(l.Offsets().End)
			return errors.Join(err, l.retain(time.Now()))
		},
		"truncation": func(_ *Store, l *Log) error { return l.TruncateTo(0) },
		"restart":    func(_ *Store, l *Log) error { return l.RestartAt(1000) },
		"deletion":   func(s *Store, l *Log) error { return s.Delete(l.ID(), 0) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, vfs.NewMem(), "data", Strict, cfg)
			defer s.Close(false, 0)
			l, err := s.Create(TopicID{1}, "t", 0, cfg)
			if err != nil {
				t.Fatal(err)
			}
			l.BeginTerm(1)
			for range 60 {
				mustAppend(t, l, plainBatch(noProducer, 1, 300, 1), 1)
			}
			if err := s.checkpoint(t.Context()); err != nil { // segments are sealed then at the latest
				t.Fatal(err)
			}
			l.SetHigh(l.Offsets().End)
			for off := range l.Offsets().End {
				r, err := l.Read(off, 1, BoundEnd, true)
				if err != nil {
					t.Fatal(err)
				}
				r.Release()
			}
			if s.indexes.bytes == 0 {
				t.Fatal("nothing was kept")
			}
			if err := change(s, l); err != nil {
				t.Fatal(err)
			}
			if s.indexes.bytes != 0 || len(s.indexes.fifo) != 0 {
				t.Errorf("%d bytes of %d segments are kept", s.indexes.bytes, len(s.indexes.fifo))
			}
		})
	}
}
