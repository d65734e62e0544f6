package segstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// deletedDir and keptDir are directories that are no longer logs; -future is
// one that a Kafka was moving between disks.
var (
	deletedDir = regexp.MustCompile(`^.+-\d+\.[0-9a-f]+-delete$`)
	keptDir    = regexp.MustCompile(`^.+-\d+\.[0-9a-f]+-(stray|future)$`)
)

// Recover opens every log directory found, several at once, and syncs all it
// kept. config gives the topic's properties by name and id; progress, if not
// nil, is called after each log, one call at a time. It returns when every log
// is readable. A log that cannot be opened is kept as failed: Log.Err says
// why. After an unclean stop each log is checked from its recovery point on
// and a bad tail cut; a fault below the recovery point fails the log.
func (s *Store) Recover(ctx context.Context, config func(topic string, id TopicID) LogConfig, progress func(Progress)) error {
	found, err := s.findLogs(config)
	if err != nil {
		return fmt.Errorf("recover %s: %w", s.dir, err)
	}
	threads := s.opts.RecoveryThreads
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	var mu sync.Mutex
	done := Progress{Total: len(found)}
	read := make([]*recovery, len(found))
	err = inParallel(len(found), threads, func(i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if seededbug.On(seededbug.ServeBeforeRecovery) {
			found[i].loadLater()
		} else if r, err := found[i].read(); err != nil {
			found[i].failLoading(err)
		} else {
			read[i] = r
		}
		mu.Lock()
		defer mu.Unlock()
		done.Done++
		if progress != nil {
			progress(done)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("recover %s: %w", s.dir, err)
	}
	s.syncRead(read)
	s.forgetMissing()
	if err := s.dropClean(); err != nil {
		return fmt.Errorf("recover %s: %w", s.dir, err)
	}
	if err := s.writeCheckpoints(); err != nil && !isFull(err) {
		return fmt.Errorf("recover %s: %w", s.dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range found {
		s.logs[logKey{l.id, l.partition}] = l
	}
	s.ready = true
	return nil
}

// syncRead makes durable what recovery kept and takes the logs into use; nil is passed over.
func (s *Store) syncRead(read []*recovery) {
	changed := 0
	for _, r := range read {
		if r != nil && len(r.unsynced) > 0 {
			changed++
		}
	}
	s.writeBack(changed)
	_ = inParallel(len(read), closeParallel, func(i int) error {
		if read[i] == nil {
			return nil
		}
		if err := read[i].log.take(read[i]); err != nil {
			read[i].log.failLoading(err)
		}
		return nil
	})
}

// findLogs lists the log directories and has those of deleted logs removed.
func (s *Store) findLogs(config func(string, TopicID) LogConfig) ([]*Log, error) {
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var found []*Log
	seen := map[logKey]string{}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch {
		case !e.IsDir() || keptDir.MatchString(e.Name()):
			continue
		case deletedDir.MatchString(e.Name()):
			s.discard(path, 0, nil)
			continue
		}
		name, ok := parseDirName(e.Name())
		if !ok {
			continue
		}
		data, err := s.fs.ReadFile(filepath.Join(path, partitionFile))
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.dropUnfinished(path); err != nil {
				return nil, err
			}
			continue
		} else if err != nil {
			return nil, err
		}
		s.names[name] = true
		id, err := decodePartitionMetadata(data)
		if err != nil {
			s.log.Error("directory is not served", "dir", path, "err", err)
			continue
		}
		key := logKey{id, name.partition}
		if other, twice := seen[key]; twice {
			s.log.Error("directory is not served: another one has its topic id", "dir", path, "other", other)
			continue
		}
		seen[key] = path
		found = append(found, s.newLog(id, name, config(name.topic, id)))
	}
	return found, nil
}

// parseDirName splits "<topic>-<partition>".
func parseDirName(dir string) (partitionName, bool) {
	i := strings.LastIndexByte(dir, '-')
	if i <= 0 {
		return partitionName{}, false
	}
	p, err := strconv.ParseInt(dir[i+1:], 10, 32)
	if err != nil || p < 0 {
		return partitionName{}, false
	}
	return partitionName{dir[:i], int32(p)}, true
}

// dropUnfinished removes the directory of a Create that a crash cut short:
// without partition.metadata nothing was ever appended. One that holds records
// is left alone.
func (s *Store) dropUnfinished(path string) error {
	entries, err := s.fs.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), logSuffix) && info.Size() > 0 {
			s.log.Error("directory is not served: it has no "+partitionFile, "dir", path)
			if name, ok := parseDirName(filepath.Base(path)); ok {
				s.names[name] = true
			}
			return nil
		}
	}
	if err := s.fs.RemoveAll(path); err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

// forgetMissing takes logs whose directory is gone out of the checkpoints.
func (s *Store) forgetMissing() {
	s.mu.Lock()
	names := maps.Clone(s.names)
	s.mu.Unlock()
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	gone := func(name partitionName, _ int64) bool { return !names[name] }
	maps.DeleteFunc(s.points, gone)
	maps.DeleteFunc(s.starts, gone)
	maps.DeleteFunc(s.cleaned, gone)
}

// failLoading keeps a log that could not be opened, as failed.
func (l *Log) failLoading(err error) {
	l.segments = []*segment{newSegment(l.dir, 0, l.store.now(), 0)}
	l.fail(err)
	l.tell()
}

// read finds out what a log holds, and mends it; nothing is durable yet. Nobody
// else uses the log.
func (l *Log) read() (*recovery, error) {
	s := l.store
	s.fileMu.Lock()
	point, known := s.points[l.name()]
	start, cleaned := s.starts[l.name()], s.cleaned[l.name()]
	s.fileMu.Unlock()
	if seededbug.On(seededbug.CutBelowRecoveryPoint) {
		point = 0
	}
	r := l.newRecovery(point, start)
	r.cleaned, r.clean = cleaned, s.cleanOK && known
	if err := r.run(); err != nil {
		return nil, err
	}
	return r, nil
}

// take makes durable what was read and opens the log with it.
func (l *Log) take(r *recovery) error {
	if err := r.sync(); err != nil {
		return err
	}
	l.producers, l.terms, l.segments = r.producers, r.terms, r.segments
	l.start, l.end = r.start, r.end
	l.durable, l.high, l.stable = l.end, l.start, l.start
	if seededbug.On(seededbug.ReuseOffsets) {
		l.end = max(l.start, l.end-1)
	}
	if seededbug.On(seededbug.LoseDedupWindow) {
		l.producers.expire(math.MaxInt64)
	}
	if l.saved = (savedEnd{-1, -1}); r.asSaved && !r.changed {
		l.saved = savedEnd{l.segments[len(l.segments)-1].base, l.end}
	}
	l.termsDirty = r.unsaved
	if !r.unsaved {
		l.setPoint(l.end)
	}
	return nil
}

// list gives the segments' base offsets and the producer snapshots' offsets,
// and removes leftovers.
func (r *recovery) list() (bases, snapshots []int64, err error) {
	if err := r.finishSwaps(); err != nil {
		return nil, nil, err
	}
	fsys, dir := r.log.store.fs, r.log.dir
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var others []string
	for _, e := range entries {
		base, suffix, ok := parseSegmentFile(e.Name())
		switch {
		case strings.HasSuffix(e.Name(), deletedSuffix) || strings.HasSuffix(e.Name(), ".tmp"):
			if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, nil, err
			}
		case ok && suffix == logSuffix:
			bases = append(bases, base)
		case ok && suffix == snapshotSuffix:
			snapshots = append(snapshots, base)
		case ok && (suffix == indexSuffix || suffix == timeSuffix || suffix == abortedSuffix):
			others = append(others, e.Name())
		}
	}
	slices.Sort(bases)
	slices.Sort(snapshots)
	for _, name := range others {
		base, _, _ := parseSegmentFile(name)
		if _, found := slices.BinarySearch(bases, base); !found {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return nil, nil, err
			}
		}
	}
	return bases, snapshots, nil
}
