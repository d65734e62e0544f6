package segstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// closeParallel is how many logs Close works on at once: they wait for fsyncs,
// which the file system joins (BenchmarkCloseTouched: 128 take a quarter to a
// third less time than 32).
const closeParallel = 128

// tenderCount is how many goroutines prepare and save segments.
const tenderCount = 2

// logKey identifies a log for ever; its name can be used again.
type logKey struct {
	id        TopicID
	partition int32
}

// Store is one log directory and all logs in it. All calls may overlap. It
// owns a few goroutines (flusher, tenders, housekeeper, cleaner, the watcher of
// space); neither their number nor that of open files follows the number of logs.
type Store struct {
	fs         vfs.FS
	dir        string
	durability Durability
	now        func() time.Time
	log        *slog.Logger
	observer   Observer
	opts       Options
	skipFlush  bool // tests only: leave the fsync out and see who notices

	lock        io.Closer
	meta        MetaProperties
	metaOK      bool
	incarnation int64 // of the clean stop before, if cleanOK
	cleanOK     bool

	handles *handles
	writers writers
	indexes *indexCache
	flusher *flusher
	tenders *turns
	cleaner *cleaner
	recode  *recoders
	space   *space
	faults  *faults
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	logs   map[logKey]*Log
	names  map[partitionName]bool // directories taken, also by logs that Recover skipped
	trash  []discard
	closed bool
	ready  bool // Recover is done

	fileMu   sync.Mutex // guards the files at the top of the directory and what was last written to them
	points   map[partitionName]int64
	starts   map[partitionName]int64
	cleaned  map[partitionName]int64 // first offset that compaction has not seen
	stale    map[partitionName]bool  // gone, but still in the files
	onDisk   map[string][]byte       // what the checkpoint files hold
	cleanNow bool                    // .kafka_cleanshutdown is still there
}

// Open takes the directory's lock, reads its meta files and starts the
// store's goroutines; the directory is made if it is missing. ErrDirInUse if
// another process (also a Kafka) has it, ErrCorrupt for meta files that make
// no sense. Call Recover before anything else but Meta and WriteMeta.
func Open(opts Options) (*Store, error) {
	s := &Store{fs: opts.FS, dir: opts.Dir, durability: opts.Durability, now: opts.Now, log: opts.Log,
		observer: opts.Observer, opts: opts, logs: map[logKey]*Log{}, names: map[partitionName]bool{},
		cleaned: map[partitionName]int64{}, stale: map[partitionName]bool{}, onDisk: map[string][]byte{}}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.handles = newHandles(s.fs, cmp.Or(opts.OpenFiles, fileLimit()))
	s.writers.limit = s.handles.limit / 2
	s.indexes = &indexCache{fs: s.fs, handles: s.handles}
	s.flusher = newFlusher(s)
	s.tenders = newTurns((*Log).tend)
	s.cleaner = newCleaner(s)
	s.recode = newRecoders()
	s.space = newSpace(s)
	s.faults = newFaults(s)
	if err := makeDir(s.fs, s.dir); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.dir, err)
	}
	lock, err := s.fs.Lock(filepath.Join(s.dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("open %s: %w", s.dir, ErrDirInUse)
	} else if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.dir, err)
	}
	s.lock = lock
	if err := s.readTop(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("open %s: %w", s.dir, err)
	}
	s.space.look()
	ctx, stop := context.WithCancel(context.Background())
	s.stop = func() { stop(); s.tenders.stop() }
	s.running.Go(func() { s.flusher.run(ctx) })
	s.running.Go(func() { s.housekeep(ctx) })
	for range tenderCount {
		s.running.Go(s.tenders.work)
	}
	s.running.Go(func() { s.space.run(ctx) })
	if opts.Cleaner.Enable {
		s.running.Go(func() { s.cleaner.run(ctx) })
	}
	return s, nil
}

// Get finds an open log; a failed one is there too.
func (s *Store) Get(id TopicID, partition int32) (*Log, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.logs[logKey{id, partition}]
	return l, ok
}

// Logs lists the open logs, failed ones too, in no order.
func (s *Store) Logs() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		out = append(out, l)
	}
	return out
}

// FlushAll syncs every log to its end (both durabilities). The first error is
// returned after all were tried.
func (s *Store) FlushAll() error {
	logs := s.Logs()
	return inParallel(len(logs), flushParallel, func(i int) error {
		l := logs[i]
		if err := l.flush(); err != nil && !errors.Is(err, ErrClosed) {
			return l.wrap("flush", err)
		}
		return nil
	})
}

// Usage asks the file system of the directory: what may be used of it and what
// is left, in bytes. Space has the answer of a moment ago.
func (s *Store) Usage() (total, free int64, err error) { return s.fs.Usage(s.dir) }

// Size is the bytes of the segments of all logs.
func (s *Store) Size() (sum int64) {
	for _, l := range s.Logs() {
		sum += l.Size()
	}
	return sum
}

// Close flushes, writes checkpoints and snapshots and, if clean,
// .kafka_cleanshutdown with the incarnation last. If anything could not be
// written there is no clean marker, and the error says why; the lock is given
// back in any case. Before Recover is done the directory is left as it was
// found. A second Close does nothing.
func (s *Store) Close(clean bool, incarnation int64) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	ready := s.ready
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	err := s.shutAll(s.Logs())
	if err2 := s.finish(ready, clean && err == nil, incarnation); err == nil {
		err = err2
	}
	if lerr := s.lock.Close(); err == nil {
		err = lerr
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", s.dir, err)
	}
	return nil
}

// finish writes what a start reads first.
func (s *Store) finish(ready, clean bool, incarnation int64) error {
	if !ready {
		return nil
	}
	if err := s.writeCheckpoints(); err != nil || !clean {
		return err
	}
	return vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, cleanFile), encodeClean(incarnation))
}
