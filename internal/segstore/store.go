package segstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// openFiles is how many segment files a store keeps open, unless more are in use.
const openFiles = 1024

// logKey identifies a log for ever; its name can be used again.
type logKey struct {
	id        TopicID
	partition int32
}

// Store is one log directory and all logs in it. All calls may overlap. It
// owns two goroutines, the flusher and the housekeeper; neither their number
// nor that of open files follows the number of logs.
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
	indexes *indexCache
	flusher *flusher
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	logs   map[logKey]*Log
	names  map[partitionName]bool // directories taken, also by logs that Recover skipped
	trash  []discard
	closed bool

	fileMu   sync.Mutex // guards the files at the top of the directory and what was last written to them
	points   map[partitionName]int64
	starts   map[partitionName]int64
	stale    map[partitionName]bool // gone, but still in the files
	onDisk   map[string][]byte      // what the checkpoint files hold
	cleanNow bool                   // .kafka_cleanshutdown is still there
}

// Open takes the directory's lock, reads its meta files and starts the
// store's goroutines; the directory is made if it is missing. ErrDirInUse if
// another process (also a Kafka) has it, ErrCorrupt for meta files that make
// no sense. Call Recover before anything else but Meta and WriteMeta.
func Open(opts Options) (*Store, error) {
	s := &Store{fs: opts.FS, dir: opts.Dir, durability: opts.Durability, now: opts.Now, log: opts.Log,
		observer: opts.Observer, opts: opts, logs: map[logKey]*Log{}, names: map[partitionName]bool{},
		stale: map[partitionName]bool{}, onDisk: map[string][]byte{}}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.handles = newHandles(s.fs, openFiles)
	s.indexes = &indexCache{fs: s.fs, handles: s.handles}
	s.flusher = newFlusher(s)
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
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.flusher.run(ctx) })
	s.running.Go(func() { s.housekeep(ctx) })
	return s, nil
}

// makeDir makes a directory and its parents, durably.
func makeDir(fsys vfs.FS, path string) error {
	_, err := fsys.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// readTop reads the files at the top of the directory.
func (s *Store) readTop() error {
	data, err := s.readOptional(metaFile)
	if err != nil {
		return err
	}
	if data != nil {
		if s.meta, err = decodeMeta(data); err != nil {
			return err
		}
		s.metaOK = true
	}
	if data, err = s.readOptional(cleanFile); err != nil {
		return err
	}
	if data != nil {
		s.cleanNow = true
		s.incarnation, s.cleanOK = decodeClean(data)
	}
	for name, into := range map[string]*map[partitionName]int64{recoveryPointFile: &s.points, logStartFile: &s.starts} {
		if data, err = s.readOptional(name); err != nil {
			return err
		}
		if *into, err = decodeOffsets(data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if *into == nil {
			*into = map[partitionName]int64{}
		}
	}
	return nil
}

// readOptional is nil for a file that is missing.
func (s *Store) readOptional(name string) ([]byte, error) {
	data, err := s.fs.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Meta is meta.properties as found by Open or last written; ok is false in a new directory.
func (s *Store) Meta() (m MetaProperties, ok bool) {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	return s.meta, s.metaOK
}

// WriteMeta writes meta.properties durably.
func (s *Store) WriteMeta(m MetaProperties) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, metaFile), encodeMeta(m)); err != nil {
		return fmt.Errorf("write %s: %w", metaFile, err)
	}
	s.meta, s.metaOK = m, true
	return nil
}

// CleanIncarnation is the incarnation in .kafka_cleanshutdown found by Open,
// ok=false after an unclean stop.
func (s *Store) CleanIncarnation() (incarnation int64, ok bool) { return s.incarnation, s.cleanOK }

// dropClean removes the clean marker durably: from now on the directory changes.
func (s *Store) dropClean() error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if !s.cleanNow {
		return nil
	}
	err := s.fs.Remove(filepath.Join(s.dir, cleanFile))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.fs.SyncDir(s.dir)
	}
	if err == nil {
		s.cleanNow = false
	}
	return err
}

// Create makes the directory and its partition.metadata durable and returns
// the empty log. ErrExists if the log or a directory of its name is there.
func (s *Store) Create(id TopicID, topic string, partition int32, cfg LogConfig) (*Log, error) {
	name := partitionName{topic, partition}
	key := logKey{id, partition}
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, fmt.Errorf("create %s-%d: %w", topic, partition, ErrClosed)
	case s.names[name] || s.logs[key] != nil:
		s.mu.Unlock()
		return nil, fmt.Errorf("create %s-%d: %w", topic, partition, ErrExists)
	}
	s.names[name] = true
	s.mu.Unlock()
	l, err := s.create(id, name, cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.names, name)
		return nil, fmt.Errorf("create %s-%d: %w", topic, partition, err)
	}
	s.logs[key] = l
	return l, nil
}

func (s *Store) create(id TopicID, name partitionName, cfg LogConfig) (*Log, error) {
	if err := s.dropClean(); err != nil {
		return nil, storageError(err)
	}
	if err := s.forgetStale(name); err != nil {
		return nil, storageError(err)
	}
	l := s.newLog(id, name, cfg)
	err := s.fs.Mkdir(l.dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil, ErrExists
	} else if err != nil {
		return nil, storageError(err)
	}
	seg := newSegment(l.dir, 0, s.now(), cfg.SegmentJitter)
	err = func() error {
		f, err := l.createSegment(seg)
		if err != nil {
			return err
		}
		s.handles.adopt(&seg.file, f)
		s.handles.release(&seg.file)
		if err := vfs.WriteFileAtomic(s.fs, filepath.Join(l.dir, partitionFile), encodePartitionMetadata(id)); err != nil {
			return err
		}
		return s.fs.SyncDir(s.dir)
	}()
	if err != nil {
		s.handles.drop(&seg.file)
		return nil, storageError(errors.Join(err, s.fs.RemoveAll(l.dir)))
	}
	l.segments = []*segment{seg}
	return l, nil
}

// storageError makes a full disk ErrFull and every other fault ErrStorage.
func storageError(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("%w: %w", ErrStorage, err)
}

func (s *Store) newLog(id TopicID, name partitionName, cfg LogConfig) *Log {
	l := &Log{store: s, topic: name.topic, id: id, partition: name.partition, producers: newProducers(),
		dir: filepath.Join(s.dir, name.topic+"-"+strconv.Itoa(int(name.partition)))}
	l.cfg.Store(&cfg)
	return l
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

// Delete renames the directory to "<topic>-<partition>.<uuid>-delete",
// durably, and removes it after file.delete.delay.ms. The log answers
// ErrClosed afterwards. A log that is not there is no error.
func (s *Store) Delete(id TopicID, partition int32) error {
	l, path, err := s.retire(id, partition, "delete")
	if err != nil || l == nil {
		return err
	}
	s.discard(path, l.cfg.Load().FileDeleteDelay, nil)
	return nil
}

// Stray renames a directory that no topic owns to
// "<topic>-<partition>.<uuid>-stray" and keeps it.
func (s *Store) Stray(id TopicID, partition int32) error {
	l, path, err := s.retire(id, partition, "stray")
	if err == nil && l != nil {
		s.log.Warn("log without a topic is kept aside", "topic", l.topic, "partition", l.partition, "dir", path)
	}
	return err
}

// retire closes a log and renames its directory away.
func (s *Store) retire(id TopicID, partition int32, suffix string) (*Log, string, error) {
	l, ok := s.Get(id, partition)
	if !ok {
		return nil, "", nil
	}
	path := filepath.Join(s.dir, retiredName(l.name(), suffix))
	due, err := l.moveAway(path)
	wakeAll(due)
	if errors.Is(err, ErrClosed) {
		return nil, "", nil
	} else if err != nil {
		return nil, "", l.wrap(suffix, storageError(err))
	}
	s.mu.Lock()
	delete(s.logs, logKey{id, partition})
	delete(s.names, l.name())
	s.mu.Unlock()
	s.fileMu.Lock()
	delete(s.points, l.name())
	delete(s.starts, l.name())
	s.stale[l.name()] = true
	s.fileMu.Unlock()
	return l, path, nil
}

// moveAway renames the directory durably and closes the log.
func (l *Log) moveAway(path string) (due []*waiter, err error) {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return nil, ErrClosed
	}
	if err := l.store.fs.Rename(l.dir, path); err != nil {
		return nil, err
	}
	due = l.closeLocked()
	return due, l.store.fs.SyncDir(l.store.dir)
}

// retiredName keeps within the 255 bytes of a name, as Kafka does, by
// shortening the topic.
func retiredName(name partitionName, suffix string) string {
	var id [16]byte
	rand.Read(id[:])
	tail := fmt.Sprintf("-%d.%s-%s", name.partition, hex.EncodeToString(id[:]), suffix)
	return name.topic[:min(len(name.topic), 255-len(tail))] + tail
}

func (l *Log) isClosed() bool {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.closed
}

// closeLocked ends the log for its users; files stay open for readers that
// have them. The caller holds mu and wakes due once it holds no lock.
func (l *Log) closeLocked() (due []*waiter) {
	l.pos.Lock()
	l.closed = true
	due = l.dueLocked()
	segs, pinned := l.segments, l.pinned
	l.pinned = nil
	l.pos.Unlock()
	for _, seg := range pinned {
		l.store.handles.release(&seg.file)
	}
	if l.writer != nil {
		l.store.handles.release(&segs[len(segs)-1].file)
		l.writer = nil
	}
	for _, seg := range segs {
		l.store.handles.drop(&seg.file)
	}
	return due
}

// FlushAll syncs every log to its end (both durabilities). The first error is
// returned after all were tried.
func (s *Store) FlushAll() error {
	return eachLog(s.Logs(), flushParallel, func(l *Log) error {
		if err := l.flush(); err != nil && !errors.Is(err, ErrClosed) {
			return l.wrap("flush", err)
		}
		return nil
	})
}

// Usage is the capacity of the directory's file system and the bytes of our logs.
func (s *Store) Usage() (total, free, logs int64, err error) {
	for _, l := range s.Logs() {
		logs += l.Size()
	}
	total, free, err = s.fs.Usage(s.dir)
	return total, free, logs, err
}

// Close flushes, writes checkpoints and snapshots and, if clean,
// .kafka_cleanshutdown with the incarnation last. If anything could not be
// written there is no clean marker, and the error says why; the lock is given
// back in any case. A second Close does nothing.
func (s *Store) Close(clean bool, incarnation int64) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	err := eachLog(s.Logs(), runtime.GOMAXPROCS(0), (*Log).shut)
	if cerr := s.writeCheckpoints(); err == nil {
		err = cerr
	}
	if err == nil && clean {
		err = vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, cleanFile), encodeClean(incarnation))
	}
	if lerr := s.lock.Close(); err == nil {
		err = lerr
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", s.dir, err)
	}
	return nil
}

// shut makes all of a log durable, indexes and snapshot too, and closes it.
func (l *Log) shut() error {
	l.mu.Lock()
	l.pos.Lock()
	l.closing = true // no append from here on
	l.pos.Unlock()
	l.mu.Unlock()
	err := l.secure()
	if err == nil {
		err = l.saveEnd()
	}
	l.mu.Lock()
	due := l.closeLocked()
	l.mu.Unlock()
	wakeAll(due)
	if err != nil {
		return l.wrap("close", err)
	}
	return nil
}

// saveEnd writes what a clean start reads instead of scanning the active
// segment. Nothing is appended any more.
func (l *Log) saveEnd() error {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	active := l.segments[len(l.segments)-1]
	if err := active.save(l.store.fs, true); err != nil {
		return storageError(err)
	}
	snapshot := encodeSnapshot(l.producers.byID)
	if err := vfs.WriteFileAtomic(l.store.fs, segmentFile(l.dir, l.end, snapshotSuffix), snapshot); err != nil {
		return storageError(err)
	}
	return nil
}

// setPoint notes how far the log is durable with everything that recovery
// relies on; the next checkpoint writes it.
func (l *Log) setPoint(point int64) {
	o := l.Offsets()
	l.store.fileMu.Lock()
	defer l.store.fileMu.Unlock()
	l.store.points[l.name()] = point
	l.store.starts[l.name()] = o.Start
}

// writeCheckpoints writes both offset checkpoints durably.
func (s *Store) writeCheckpoints() error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	return s.writeCheckpointsLocked()
}

func (s *Store) writeCheckpointsLocked() error {
	starts := maps.Clone(s.starts)
	maps.DeleteFunc(starts, func(_ partitionName, start int64) bool { return start == 0 })
	if err := s.replaceLocked(logStartFile, encodeOffsets(starts)); err != nil {
		return err
	}
	if err := s.replaceLocked(recoveryPointFile, encodeOffsets(s.points)); err != nil {
		return err
	}
	clear(s.stale)
	return nil
}

// replaceLocked writes a file durably unless it holds data already.
func (s *Store) replaceLocked(name string, data []byte) error {
	if bytes.Equal(s.onDisk[name], data) {
		return nil
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, name), data); err != nil {
		delete(s.onDisk, name) // it may hold either
		return err
	}
	s.onDisk[name] = data
	return nil
}

// forgetStale makes sure that the files say nothing of an earlier log of this name.
func (s *Store) forgetStale(name partitionName) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if !s.stale[name] {
		return nil
	}
	return s.writeCheckpointsLocked()
}
