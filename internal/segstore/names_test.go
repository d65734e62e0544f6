package segstore

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestCheckpointOverDeletedName: a checkpoint of a log that is deleted while it is flushed, and whose name is another
// log's at once, says nothing about that other log.
func TestCheckpointOverDeletedName(t *testing.T) {
	disk, cfg := vfs.NewMem(), testConfig()
	s := openTest(t, disk, "data", Relaxed, cfg)
	old, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	old.BeginTerm(7)
	var replace sync.Once
	old.OnProgress(func() {
		if o := old.Offsets(); o.Durable < 3 {
			return
		}
		replace.Do(func() { // the flush of the checkpoint is over
			if err := s.Delete(TopicID{1}, 0); err != nil {
				t.Error(err)
			}
			if _, err := s.Create(TopicID{2}, "t", 0, cfg); err != nil {
				t.Error(err)
			}
		})
	})
	for range 3 {
		mustAppend(t, old, plainBatch(noProducer, 1, 100, 1), 7)
	}
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopTest(t, s, false) // kill -9
	s = openTest(t, disk, "data", Relaxed, cfg)
	l, ok := s.Get(TopicID{2}, 0)
	if !ok {
		t.Fatal("the new log is gone")
	}
	if err := l.Err(); err != nil {
		t.Errorf("the new log after a kill: %v", err)
	}
	if term := l.LastTerm(); term != -1 {
		t.Errorf("the new log knows term %d", term)
	}
	stopTest(t, s, true)
}

// TestTermsSurviveAFailedCheckpoint: what a checkpoint could not write, the next one does, before the recovery point moves.
func TestTermsSurviveAFailedCheckpoint(t *testing.T) {
	mem, cfg := vfs.NewMem(), testConfig()
	cfg.SegmentBytes = 1000
	disk := vfs.NewFaulty(mem)
	s := openTest(t, disk, "data", Relaxed, cfg)
	l, err := s.Create(TopicID{1}, "t", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for term := range int32(3) {
		l.BeginTerm(term)
		for range 3 {
			mustAppend(t, l, plainBatch(noProducer, 1, 400, 1), term)
		}
		if term == 0 {
			if err := s.checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	disk.Fail(vfs.OpSync, 1, syscall.EIO, false)
	if err := l.secure(); err == nil {
		t.Fatal("no sync failed")
	}
	disk.Heal()
	if err := s.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopTest(t, s, false)
	s = openTest(t, mem, "data", Relaxed, cfg)
	l, _ = s.Get(TopicID{1}, 0)
	for term := range int32(3) {
		if found, end := l.EndOfTerm(term); found != term || end != int64(3*term+3) {
			t.Errorf("term %d ends at %d (of term %d)", term, end, found)
		}
	}
	stopTest(t, s, true)
}

// TestReadersOfDeletedLog: who reads while a log is deleted is told that it is closed, not that the disk failed.
func TestReadersOfDeletedLog(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 8<<10, 500
	s := openTest(t, vfs.NewMem(), "data", Relaxed, cfg)
	for round := range 30 {
		id := TopicID{byte(round + 1)}
		l, err := s.Create(id, "t", 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		for i := range 60 {
			mustAppend(t, l, plainBatch(noProducer, 1, 500, int64(i)), 1)
		}
		l.SetHigh(60)
		var readers sync.WaitGroup
		for i := range 3 {
			readers.Go(func() {
				for at := int64(i); ; at = (at + 7) % 60 {
					r, err := l.Read(at, 2000, BoundHigh, true)
					if err == nil {
						r.Release()
						_, _, err = l.OffsetForTime(at, BoundHigh)
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("round %d: %v", round, err)
						}
						return
					}
				}
			})
		}
		if err := s.Delete(id, 0); err != nil {
			t.Fatal(err)
		}
		readers.Wait()
	}
	stopTest(t, s, true)
}
