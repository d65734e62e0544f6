package segstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// crashWorld is a store on a memory disk with what its logs must hold: a
// power cut may come at any moment, here at each acknowledgement.
type crashWorld struct {
	disk *vfs.Mem
	cfg  LogConfig
	rng  *rand.Rand
	logs []*Log

	mu      sync.Mutex
	written map[TopicID][]byte // every batch appended, in order
	acked   map[TopicID]ackedEnd
	cuts    []cut
}

type ackedEnd struct {
	offset int64
	bytes  int
}

// cut is a disk after a power cut, and what was acknowledged before it.
type cut struct {
	disk  *vfs.Mem
	acked map[TopicID]ackedEnd
}

// crashRun appends to several logs, takes a crash copy inside each strict
// acknowledgement, recovers it, and says what was lost.
func crashRun(seed uint64, skipFlush bool) error {
	w := &crashWorld{disk: vfs.NewMem(), cfg: testConfig(), rng: rand.New(rand.NewPCG(seed, 1)),
		written: map[TopicID][]byte{}, acked: map[TopicID]ackedEnd{}}
	w.cfg.SegmentBytes = 32 << 10
	s, err := Open(Options{FS: w.disk, Dir: "data"})
	if err != nil {
		return err
	}
	defer s.Close(false, 0)
	s.skipFlush = skipFlush
	if err := s.Recover(context.Background(), w.config, nil); err != nil {
		return err
	}
	for i := range 3 {
		l, err := s.Create(TopicID{byte(i + 1)}, "t", int32(i), w.cfg)
		if err != nil {
			return err
		}
		if _, err := l.BeginTerm(1); err != nil {
			return err
		}
		w.logs = append(w.logs, l)
	}
	for range 25 {
		if err := w.step(s); err != nil {
			return err
		}
	}
	for _, c := range w.cuts {
		if err := w.verify(c); err != nil {
			return err
		}
	}
	return nil
}

func (w *crashWorld) config(string, TopicID) LogConfig { return w.cfg }

// step appends a few batches and waits for the acknowledgement of some.
func (w *crashWorld) step(s *Store) error {
	var waiting sync.WaitGroup
	for range 1 + w.rng.IntN(6) {
		l := w.logs[w.rng.IntN(len(w.logs))]
		raw := plainBatch(noProducer, 1+w.rng.IntN(5), w.rng.IntN(3000), time.Now().UnixMilli())
		b, err := ParseBatch(raw)
		if err != nil {
			return err
		}
		a, err := l.AppendLeader(b, l.LastTerm())
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.written[l.ID()] = append(w.written[l.ID()], raw...)
		end := ackedEnd{a.LastOffset + 1, len(w.written[l.ID()])}
		w.mu.Unlock()
		if w.rng.IntN(2) == 0 {
			waiting.Add(1)
			l.Watch(BoundDurable, end.offset, func() {
				w.acknowledge(l, end)
				waiting.Done()
			})
		}
	}
	switch w.rng.IntN(8) {
	case 0:
		if err := s.checkpoint(context.Background()); err != nil {
			return err
		}
	case 1:
		l := w.logs[w.rng.IntN(len(w.logs))]
		if _, err := l.BeginTerm(l.LastTerm() + 1); err != nil {
			return err
		}
	}
	waiting.Wait()
	return nil
}

// acknowledge is what a producer would be told; the power fails right after.
func (w *crashWorld) acknowledge(l *Log, end ackedEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end.offset > w.acked[l.ID()].offset {
		w.acked[l.ID()] = end
	}
	c := cut{disk: w.disk.CrashCopy(w.rng2()), acked: map[TopicID]ackedEnd{}}
	for id, e := range w.acked {
		c.acked[id] = e
	}
	w.cuts = append(w.cuts, c)
}

// rng2 is a source for callbacks, which run beside step.
func (w *crashWorld) rng2() *rand.Rand {
	return rand.New(rand.NewPCG(uint64(len(w.cuts)), uint64(len(w.written[TopicID{1}]))))
}

// verify recovers the disk, twice in a row with a cut between (recovery may
// itself be interrupted), and compares.
func (w *crashWorld) verify(c cut) error {
	disk := c.disk
	for round := range 2 {
		s, err := Open(Options{FS: disk, Dir: "data"})
		if err != nil {
			return err
		}
		if err := s.Recover(context.Background(), w.config, nil); err != nil {
			return err
		}
		for id, acked := range c.acked {
			l, ok := s.Get(id, int32(id[0]-1))
			if !ok {
				return fmt.Errorf("log %d is gone", id[0])
			}
			if err := w.compare(l, acked); err != nil {
				return fmt.Errorf("log %d, recovery %d: %w", id[0], round, err)
			}
		}
		disk = disk.CrashCopy(w.rng2())
		s.stop()
		s.running.Wait()
	}
	return nil
}

func (w *crashWorld) compare(l *Log, acked ackedEnd) error {
	if err := l.Err(); err != nil {
		return err
	}
	if o := l.Offsets(); o.End < acked.offset || o.Durable != o.End {
		return fmt.Errorf("offsets %+v, %d was acknowledged", o, acked.offset)
	}
	r, err := l.Read(0, 1<<30, BoundEnd, true)
	if err != nil {
		return err
	}
	defer r.Release()
	got, err := r.AppendTo(nil)
	if err != nil {
		return err
	}
	want := w.written[l.ID()]
	if len(got) < acked.bytes || !bytes.HasPrefix(want, got) {
		return fmt.Errorf("%d bytes recovered, %d acknowledged, equal to what was written: %v",
			len(got), acked.bytes, bytes.HasPrefix(want, got))
	}
	return nil
}

const crashSeeds = 40

// TestStrictAckSurvivesCrashCopy: whatever a power cut keeps of unsynced
// blocks and names, an acknowledged batch is there byte for byte.
func TestStrictAckSurvivesCrashCopy(t *testing.T) {
	for seed := range uint64(crashSeeds) {
		if err := crashRun(seed, false); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestWithoutFsyncTheCrashTestFails: the test above can fail.
func TestWithoutFsyncTheCrashTestFails(t *testing.T) {
	for seed := range uint64(5) {
		if err := crashRun(seed, true); err == nil {
			t.Fatalf("seed %d: nothing was lost without fsync", seed)
		} else if errors.Is(err, ErrClosed) {
			t.Fatalf("seed %d: %v is no loss", seed, err)
		}
	}
}
