package segstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// flushParallel is how many logs are synced at once: the file system joins
// their journal commits.
const flushParallel = 8

// flusher makes the logs of a store durable. Whatever is appended to a log
// while it is synced shares its next sync. Nobody waits for a tick; see gather
// for the one short wait that there is.
type flusher struct {
	store *Store
	turns *turns
	wake  chan struct{} // holds one token when a timed flush came

	mu    sync.Mutex // guards timed
	timed []timedFlush
}

type timedFlush struct {
	log *Log
	at  time.Time
}

func newFlusher(s *Store) *flusher {
	f := &flusher{store: s, wake: make(chan struct{}, 1)}
	f.turns = newTurns(f.flush)
	return f
}

// mark asks for a flush of l to its end.
func (f *flusher) mark(l *Log) { f.turns.mark(&l.flushTurn) }

// markAfter asks for a flush of l after d (flush.ms).
func (f *flusher) markAfter(l *Log, d time.Duration) {
	f.mu.Lock()
	f.timed = append(f.timed, timedFlush{l, time.Now().Add(d)})
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends; what is marked then stays for Close.
func (f *flusher) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range flushParallel {
		workers.Go(f.turns.work)
	}
	defer workers.Wait()
	defer f.turns.stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-timer.C:
		}
		timer.Reset(f.markDue(time.Now()))
	}
}

// markDue marks the logs whose timed flush is due and says when the next one is.
func (f *flusher) markDue(now time.Time) (next time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next = time.Hour
	keep := f.timed[:0]
	for _, t := range f.timed {
		if d := t.at.Sub(now); d > 0 {
			next = min(next, d)
			keep = append(keep, t)
			continue
		}
		t.log.timedFlush.Store(false)
		f.mark(t.log)
	}
	clear(f.timed[len(keep):])
	f.timed = keep
	return next
}

func (f *flusher) flush(l *Log) {
	l.awaitMore(f.turns)
	began := time.Now()
	err := l.flush()
	if errors.Is(err, ErrClosed) {
		err = nil
	}
	if o := f.store.observer; o != nil {
		o.Flushed(time.Since(began), err)
	}
}

// inParallel runs do for 0 to n-1, so many at once, and gives the first error.
func inParallel(n, atOnce int, do func(i int) error) error {
	if n == 1 {
		return do(0)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	return first
}

// flush makes the log durable to its present end: the files of the segments
// that were written since the last flush, then the names of new ones. The
// caller holds none of the log's locks.
func (l *Log) flush() error {
	defer l.tell()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.pos.Lock()
	if err := l.usableLocked(); err != nil {
		l.pos.Unlock()
		return err
	}
	from, to, names := l.durable, l.end, l.namesDirty
	round, began := l.gather.begin(), time.Now()
	segs := segmentsFrom(l.segments, from)
	l.namesDirty = false
	pinned := l.pinned
	l.pinned = nil
	l.pos.Unlock()
	defer func() {
		for _, s := range pinned {
			l.store.handles.release(&s.file)
		}
	}()
	if from == to && !names {
		return nil
	}
	if !l.store.skipFlush && !seededbug.Every(seededbug.SkipFsync, 1000) {
		if err := l.sync(segs, to, names); err != nil {
			return l.fail(err)
		}
	}
	l.pos.Lock()
	l.durable = max(l.durable, to)
	l.gather.end(round, time.Since(began))
	l.pending.moved = true
	l.noteLocked()
	l.pos.Unlock()
	return nil
}

func (l *Log) sync(segs []*segment, to int64, names bool) error {
	for _, s := range segs {
		if s.base >= to && s.base != segs[0].base {
			break
		}
		f, err := l.store.handles.acquire(&s.file)
		if err != nil {
			return err
		}
		err = f.SyncData()
		l.store.handles.release(&s.file)
		if err != nil {
			return err
		}
	}
	if names {
		return l.store.fs.SyncDir(l.dir)
	}
	return nil
}

// FlushTo asks for durability up to offset whatever the mode; use
// Watch(BoundDurable) to wait.
func (l *Log) FlushTo(offset int64) {
	l.pos.Lock()
	need := l.durable < offset
	l.pos.Unlock()
	if need {
		l.store.flusher.mark(l)
	}
}
