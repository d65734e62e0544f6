package segstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
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
	next map[[2]int64]int32 // sequences by log and producer

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
func crashRun(seed uint64, d Durability, skipFlush bool) error {
	w := &crashWorld{disk: vfs.NewMem(), cfg: testConfig(), rng: rand.New(rand.NewPCG(seed, 1)),
		written: map[TopicID][]byte{}, acked: map[TopicID]ackedEnd{}}
	w.cfg.SegmentBytes = 32 << 10
	s, err := Open(Options{FS: w.disk, Dir: "data", Durability: d})
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
		raw, a, err := w.append(l)
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
			l.FlushTo(end.offset) // relaxed does it only if asked
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

// append writes a plain, an idempotent or a transactional batch, or a marker.
func (w *crashWorld) append(l *Log) (raw []byte, a Appended, err error) {
	id := int64(w.rng.IntN(4))
	key := [2]int64{int64(l.partition), id}
	if w.next == nil {
		w.next = map[[2]int64]int32{}
	}
	if w.rng.IntN(5) == 0 {
		a, err = l.AppendMarker(id, 0, w.rng.IntN(2) == 0, 1, l.LastTerm())
		if err != nil {
			return nil, a, err
		}
		r, err := l.Read(a.BaseOffset, 1, BoundEnd, true)
		if err != nil {
			return nil, a, err
		}
		defer r.Release()
		raw, err = r.AppendTo(nil)
		return raw, a, err
	}
	h, n := noProducer, 1+w.rng.IntN(5)
	if w.rng.IntN(3) > 0 {
		h = BatchHeader{ProducerID: id, BaseSequence: w.next[key]}
		if id > 1 {
			h.Attributes = attrTransactional
		}
		w.next[key] += int32(n)
	}
	raw = plainBatch(h, n, w.rng.IntN(3000), time.Now().UnixMilli())
	b, err := ParseBatch(raw)
	if err != nil {
		return nil, a, err
	}
	a, err = l.AppendLeader(b, l.LastTerm())
	return raw, a, err
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
		if err := w.recovered(disk, c.acked); err != nil {
			return fmt.Errorf("recovery %d: %w", round, err)
		}
		disk = disk.CrashCopy(w.rng2())
	}
	return nil
}

func (w *crashWorld) recovered(disk *vfs.Mem, acked map[TopicID]ackedEnd) error {
	s, err := Open(Options{FS: disk, Dir: "data"})
	if err != nil {
		return err
	}
	defer s.running.Wait()
	defer s.stop()
	if err := s.Recover(context.Background(), w.config, nil); err != nil {
		return err
	}
	for id, end := range acked {
		l, ok := s.Get(id, int32(id[0]-1))
		if !ok {
			return fmt.Errorf("log %d is gone", id[0])
		}
		if err := w.compare(l, end); err != nil {
			return fmt.Errorf("log %d: %w", id[0], err)
		}
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
	return sameAsReplay(l, got)
}

// sameAsReplay compares what recovery made of producers, transactions and
// terms, from snapshots and checkpoints, with what the bytes say.
func sameAsReplay(l *Log, data []byte) error {
	state, t, aborted := newProducers(), terms(nil), []AbortedTxn{}
	for len(data) > 0 {
		h := decodeHeader(data)
		if e, ok := state.apply(&h, data[batchOverhead:h.Size()], 0); ok {
			aborted = append(aborted, AbortedTxn{e.producerID, e.first})
		}
		t = t.assign(h.Term, h.BaseOffset)
		data = data[h.Size():]
	}
	slices.SortFunc(aborted, func(a, b AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	got, err := l.Aborted(0, l.Offsets().End)
	if err != nil || !slices.Equal(got, aborted) {
		return fmt.Errorf("aborted %v, the records say %v: %w", got, aborted, err)
	}
	if !slices.Equal(l.terms, t) {
		return fmt.Errorf("terms %v, the records say %v", l.terms, t)
	}
	if len(l.producers.byID) != len(state.byID) || l.producers.firstOpen(-1) != state.firstOpen(-1) {
		return fmt.Errorf("%d producers, open from %d; the records say %d, %d", len(l.producers.byID),
			l.producers.firstOpen(-1), len(state.byID), state.firstOpen(-1))
	}
	for id, p := range state.byID {
		q := *l.producers.byID[id]
		q.touchedMs = p.touchedMs
		q.window, p.window = trim(q), trim(*p)
		if q != *p {
			return fmt.Errorf("producer %d is %+v, the records say %+v", id, q, *p)
		}
	}
	return nil
}

func trim(p producer) (w [windowSize]placed) {
	copy(w[:], p.window[:p.n])
	return w
}

// crashSeeds is how many stories are told; PGBROKER_CRASH_SEEDS asks for more.
func crashSeeds() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("PGBROKER_CRASH_SEEDS"), 10, 32); err == nil {
		return n
	}
	return 25
}

// TestStrictAckSurvivesCrashCopy: whatever a power cut keeps of unsynced
// blocks and names, an acknowledged batch is there byte for byte.
func TestStrictAckSurvivesCrashCopy(t *testing.T) {
	for seed := range crashSeeds() {
		if err := crashRun(seed, Strict, false); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestRelaxedKeepsWhatWasFlushed: the same for FlushTo in relaxed mode; what is
// lost is a tail.
func TestRelaxedKeepsWhatWasFlushed(t *testing.T) {
	for seed := range crashSeeds() / 2 {
		if err := crashRun(seed, Relaxed, false); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestWithoutFsyncTheCrashTestFails: the test above can fail.
func TestWithoutFsyncTheCrashTestFails(t *testing.T) {
	for seed := range uint64(5) {
		if err := crashRun(seed, Strict, true); err == nil {
			t.Fatalf("seed %d: nothing was lost without fsync", seed)
		} else if errors.Is(err, ErrClosed) {
			t.Fatalf("seed %d: %v is no loss", seed, err)
		}
	}
}
