package segstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// tortureStats is what the runs did; added up over all of them.
type tortureStats struct {
	Runs, Cuts, Lives, Faults, Records, Ops int64
}

func (s *tortureStats) add(o tortureStats) {
	s.Runs, s.Cuts, s.Lives, s.Faults = s.Runs+o.Runs, s.Cuts+o.Cuts, s.Lives+o.Lives, s.Faults+o.Faults
	s.Records, s.Ops = s.Records+o.Records, s.Ops+o.Ops
}

const (
	tortureLogs  = 3 // the last one is compacted
	tortureOps   = 40
	tortureLives = 3
)

// tortureWorld is a store under a random script, whose disk loses power at random sync points. What it does follows from
// the seed; when the flusher runs beside it does not.
type tortureWorld struct {
	rng        *rand.Rand
	durability Durability
	disk       *vfs.Mem
	faulty     *vfs.Faulty
	store      *Store
	term       int32
	used       map[usedOffset]uint32 // CRC of the batch that took an offset under a term
	waiting    sync.WaitGroup        // acknowledgements to come
	skipFlush  bool                  // leave the fsync out, to see who notices

	mu     sync.Mutex // guards the fields below, with those of models: the flusher loses power too
	models []*modelLog
	cutRNG *rand.Rand
	usual  float64 // share of a life's sync points that are power cuts
	share  float64 // and of those now
	cuts   []powerCut
	stats  tortureStats
}

type usedOffset struct {
	log    int
	term   int32
	offset int64
}

// powerCut is a disk as a power cut leaves it, and what must be on it.
type powerCut struct {
	disk   *vfs.Mem
	bounds []bounds
}

func newTortureWorld(seed uint64, d Durability) *tortureWorld {
	w := &tortureWorld{rng: rand.New(rand.NewPCG(seed, 1)), cutRNG: rand.New(rand.NewPCG(seed, 2)), durability: d, disk: vfs.NewMem(),
		used: map[usedOffset]uint32{}, usual: 0.03}
	for i := range tortureLogs {
		cfg := testConfig()
		cfg.SegmentBytes = []int64{3 << 10, 12 << 10, 40 << 10}[w.rng.IntN(3)]
		cfg.IndexIntervalBytes, cfg.RetentionBytes = 500, 3*cfg.SegmentBytes
		m := &modelLog{id: i, cfg: cfg, timelines: []*timeline{{}}}
		if i == tortureLogs-1 {
			m.cfg.Delete, m.cfg.Compact, m.cfg.DeleteRetention = false, true, time.Hour
			m.keyed = map[int64]kv{}
		}
		w.models = append(w.models, m)
	}
	return w
}

// options of a store on a disk.
func (w *tortureWorld) options(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "data", Durability: w.durability, RecoveryThreads: 1, Cleaner: CleanerOptions{BufferBytes: 1 << 16}}
}

func (w *tortureWorld) config(topic string, id TopicID) LogConfig { return w.models[id[0]-1].cfg }

// powerFails is called at each sync point; some of them are power cuts.
func (w *tortureWorld) powerFails() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cutRNG.Float64() >= w.share {
		return
	}
	c := powerCut{}
	for _, m := range w.models {
		c.bounds = append(c.bounds, bounds{first: m.first, acked: m.acked, startLow: m.startLow})
	}
	c.disk = w.disk.CrashCopy(w.cutRNG)
	w.cuts = append(w.cuts, c)
}

// life opens the disk, runs the script and ends with the power.
func (w *tortureWorld) life(create bool, fault *plannedFault) error {
	w.stats.Lives++
	w.share = 0
	w.faulty = vfs.NewFaulty(w.disk)
	s, err := Open(w.options(&syncPoints{w.faulty, w.powerFails}))
	if err != nil {
		return err
	}
	s.skipFlush = w.skipFlush
	w.store = s
	defer func() { abandon(w.store) }()
	if err := s.Recover(context.Background(), w.config, nil); err != nil {
		return err
	}
	w.term++
	for _, m := range w.models {
		if create {
			if _, err := s.Create(m.topicID(), "t", int32(m.id), m.cfg); err != nil {
				return err
			}
		}
		if _, err := w.log(m).BeginTerm(w.term); err != nil {
			return err
		}
	}
	w.mu.Lock()
	w.share = w.usual
	w.mu.Unlock()
	if fault != nil {
		w.faulty.Fail(fault.kind, fault.n, fault.err, fault.sticky)
	}
	for range tortureOps {
		w.stats.Ops++
		if err := w.op(w.models[w.rng.IntN(len(w.models))]); err != nil {
			return err
		}
		if err := w.verifyCuts(); err != nil {
			return err
		}
	}
	w.stats.Faults += int64(w.faulty.Hits())
	w.faulty.Heal()
	w.waiting.Wait()
	w.mu.Lock()
	w.share = 1
	w.mu.Unlock()
	w.powerFails()
	w.mu.Lock()
	w.share = 0
	w.mu.Unlock()
	return nil
}

// abandon ends a store as kill -9 does: nothing is written any more.
func abandon(s *Store) {
	s.stop()
	s.running.Wait()
	_ = s.lock.Close()
}

func (w *tortureWorld) log(m *modelLog) *Log {
	l, _ := w.store.Get(m.topicID(), int32(m.id))
	return l
}

// run is a few lives of one disk, each from what a power cut left of the one before.
func (w *tortureWorld) run(faults bool) error {
	w.stats.Runs++
	for life := range tortureLives {
		var fault *plannedFault
		if faults && w.rng.IntN(2) == 0 {
			fault = w.anyFault()
		}
		if err := w.lifeAndDeath(life == 0, fault); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
	}
	return nil
}

// plannedFault is a call on the disk that fails.
type plannedFault struct {
	kind   vfs.Op
	n      int
	err    error
	sticky bool
}

func (w *tortureWorld) anyFault() *plannedFault {
	kinds := []vfs.Op{vfs.OpAny, vfs.OpCreate, vfs.OpWrite, vfs.OpTruncate, vfs.OpSync, vfs.OpSyncDir, vfs.OpRename, vfs.OpRemove}
	errs := []error{syscall.EIO, syscall.ENOSPC, io.ErrShortWrite}
	return &plannedFault{kinds[w.rng.IntN(len(kinds))], 1 + w.rng.IntN(60), errs[w.rng.IntN(len(errs))], w.rng.IntN(2) == 0}
}

// lifeAndDeath is a life, the power cut that ends it, and a look at what is left, which is the disk of the next one.
func (w *tortureWorld) lifeAndDeath(create bool, fault *plannedFault) error {
	if err := w.life(create, fault); err != nil {
		return err
	}
	next := w.cuts[len(w.cuts)-1].disk
	if err := w.verifyCuts(); err != nil {
		return err
	}
	w.disk = next
	return nil
}

// verifyCuts recovers every disk that lost power since the last call and compares. No change is under way. The last disk
// is what the model holds from now on, if the life is over.
func (w *tortureWorld) verifyCuts() error {
	w.mu.Lock()
	cuts := w.cuts
	w.cuts = nil
	over := w.share == 0
	w.mu.Unlock()
	for i, c := range cuts {
		for j, m := range w.models {
			c.bounds[j].last, c.bounds[j].startHigh = len(m.timelines)-1, m.startHigh
		}
		if err := w.verify(c, over && i == len(cuts)-1); err != nil {
			return fmt.Errorf("power cut %d: %w", w.stats.Cuts, err)
		}
	}
	return nil
}

// verify recovers a disk. The recovery loses power too, at its sync points and at its end, and is begun anew.
func (w *tortureWorld) verify(c powerCut, adopt bool) error {
	w.stats.Cuts++
	share := 0.02
	var again []*vfs.Mem
	disk := c.disk
	points := &syncPoints{disk, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cutRNG.Float64() < share {
			again = append(again, disk.CrashCopy(w.cutRNG))
		}
	}}
	found, err := w.recovered(points, c)
	if err != nil {
		return err
	}
	w.mu.Lock() // a flush of the world's own store may be a sync point just now
	if w.cutRNG.IntN(8) == 0 {
		again = append(again, disk.CrashCopy(w.cutRNG))
	}
	w.mu.Unlock()
	for _, d := range again {
		w.stats.Cuts++
		if _, err := w.recovered(d, c); err != nil {
			return fmt.Errorf("after a recovery that lost power: %w", err)
		}
	}
	if adopt {
		for i, m := range w.models {
			m.adopt(found[i])
		}
	}
	return nil
}

// recovered opens a disk, checks all logs and returns what is there.
func (w *tortureWorld) recovered(fsys vfs.FS, c powerCut) (found []recoveredLog, err error) {
	s, err := Open(w.options(fsys))
	if err != nil {
		return nil, err
	}
	defer abandon(s)
	if err := s.Recover(context.Background(), w.config, nil); err != nil {
		return nil, err
	}
	for i, m := range w.models {
		l, ok := s.Get(m.topicID(), int32(i))
		if !ok {
			return nil, fmt.Errorf("log %d: %w: it is gone", i, errLost)
		}
		t, err := m.check(l, c.bounds[i])
		if err != nil {
			return nil, fmt.Errorf("log %d: %w", i, err)
		}
		found = append(found, recoveredLog{t, l.Offsets()})
	}
	return found, nil
}

// fate notes what an error of a change means for the model: a full disk passes, all else is final for the log.
func (w *tortureWorld) fate(m *modelLog, err error) error {
	if w.faulty.Hits() == 0 {
		return err
	}
	if w.log(m).Err() != nil {
		m.dead = true
	}
	return nil
}

// note remembers an append that was answered. The same offset is never taken twice under one term.
func (w *tortureWorld) note(m *modelLog, base, end int64, raw []byte) error {
	m.now().batches = append(m.now().batches, storedBatch{base, end, raw})
	if raw == nil {
		return nil
	}
	h := decodeHeader(raw)
	crc := crc32.Checksum(raw, castagnoli)
	for off := base; off < end; off++ {
		at := usedOffset{m.id, h.Term, off}
		if before, ok := w.used[at]; ok && before != crc {
			return fmt.Errorf("%w: offset %d of log %d is used again under term %d", errWrong, off, m.id, h.Term)
		}
		w.used[at] = crc
	}
	return nil
}

// acknowledge waits, in the background, until an append is durable.
func (w *tortureWorld) acknowledge(m *modelLog, l *Log, end int64, records int) {
	w.waiting.Add(1)
	l.Watch(BoundDurable, end, func() {
		defer w.waiting.Done()
		if l.Offsets().Durable < end {
			return // the log failed
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		m.acked = max(m.acked, end)
		w.stats.Records += int64(records)
	})
	if w.durability == Relaxed {
		l.FlushTo(end)
	}
}

// append writes a batch of a random producer.
func (w *tortureWorld) append(m *modelLog) error {
	l, n := w.log(m), 1+w.rng.IntN(4)
	base := l.Offsets().End
	h := noProducer
	id := int64(w.rng.IntN(5)) - 1
	if id >= 0 {
		h = BatchHeader{ProducerID: id}
		for _, p := range l.Producers() {
			if p.ProducerID == id {
				h.BaseSequence = p.LastSequence + 1
			}
		}
		if id >= 2 && m.keyed == nil {
			h.Attributes = attrTransactional
		}
	}
	var raw []byte
	if m.keyed != nil {
		recs := make([]kv, n)
		for i := range recs {
			recs[i] = kv{fmt.Sprint("key", w.rng.IntN(12)), fmt.Sprint("v", base, i)}
			if w.rng.IntN(5) == 0 {
				recs[i].value = "-"
			}
			m.keyed[base+int64(i)] = recs[i]
		}
		raw = keyedBatch(nil, h, codecNone, time.Now().UnixMilli(), recs...)
	} else {
		size := w.rng.IntN(300)
		if w.rng.IntN(6) == 0 {
			size = w.rng.IntN(9000 / n)
		}
		raw = plainBatch(h, n, min(size, int(m.cfg.SegmentBytes)/n-200), time.Now().UnixMilli())
	}
	b, err := ParseBatch(raw)
	if err != nil {
		return err
	}
	a, err := l.AppendLeader(b, l.LastTerm())
	switch {
	case errors.Is(err, ErrFull):
		if end := l.Offsets().End; end != base {
			return fmt.Errorf("%w: a refused append moved the end from %d to %d", errWrong, base, end)
		}
		return w.fate(m, err)
	case err != nil:
		m.now().batches = append(m.now().batches, storedBatch{base, base + int64(n), bytes.Clone(raw)})
		return w.fate(m, err)
	case a.BaseOffset != base:
		return fmt.Errorf("%w: appended %+v, the end was %d; %+v of %+v", errWrong, a, base, h, l.Producers())
	}
	if err := w.note(m, base, a.LastOffset+1, bytes.Clone(raw)); err != nil {
		return err
	}
	if w.durability == Strict || w.rng.IntN(3) == 0 {
		w.acknowledge(m, l, a.LastOffset+1, n)
	}
	return nil
}
