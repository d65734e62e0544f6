package segstore

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// saving is what a log has written beside its records and has yet to make
// durable: the indexes and snapshots of sealed segments, and its terms. Then
// the recovery point may move to point.
type saving struct {
	log    *Log
	point  int64
	files  *vfs.Pending
	sealed []*segment // whose files are among them
	terms  bool       // are among them
}

// secure syncs the log to its end, and saves what recovery relies on below the
// point that it then moves there.
func (l *Log) secure() error {
	if err := l.flush(); err != nil {
		return err
	}
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	s, err := l.save(false)
	if err != nil {
		return err
	}
	return s.sync()
}

// save writes what recovery relies on, as far as that has changed; nothing is
// durable before sync. With last, nothing is appended any more, and what a clean
// start reads instead of scanning the active segment is saved too; the records
// are to be flushed before sync. The caller holds tidyMu.
func (l *Log) save(last bool) (*saving, error) {
	l.pos.Lock()
	if err := l.usableLocked(); err != nil { // deleted meanwhile: its name may be another log's by now
		l.pos.Unlock()
		return nil, err
	}
	s := &saving{log: l, point: l.durable, files: vfs.NewPending(l.store.fs), terms: l.termsDirty}
	segs, t := l.segments, l.terms.truncateEnd(l.end)
	if last {
		s.point = l.end
	}
	l.termsDirty = false
	l.pos.Unlock()
	err := s.addSealed(segs)
	if err == nil && s.terms {
		err = s.files.Replace(filepath.Join(l.dir, termFile), encodeTerms(t))
	}
	if err == nil && last {
		err = s.addEnd()
	}
	if err != nil {
		s.keepTerms()
		return nil, err
	}
	return s, nil
}

// keepTerms has the terms written again: they were not made durable.
func (s *saving) keepTerms() {
	s.log.pos.Lock()
	s.log.termsDirty = s.log.termsDirty || s.terms
	s.log.pos.Unlock()
}

// addSealed takes the files of the sealed ones among segs that are not durable
// yet, and writes those that are not written.
func (s *saving) addSealed(segs []*segment) error {
	l := s.log
	if err := l.saveRolled(); err != nil {
		return err
	}
	for i, seg := range segs[:len(segs)-1] {
		seg.mu.RLock()
		done, sealed, aborted := seg.synced, seg.sealed, seg.hasAborted
		seg.mu.RUnlock()
		if done {
			continue
		}
		if !sealed { // recovery found the disk full
			if err := seg.save(s.files.Write); err != nil {
				return err
			}
			seg.seal()
		}
		s.files.Add(seg.stem + indexSuffix)
		s.files.Add(seg.stem + timeSuffix)
		if aborted {
			s.files.Add(seg.stem + abortedSuffix)
		}
		snapshot := segs[i+1].stem + snapshotSuffix
		if _, err := l.store.fs.Stat(snapshot); err == nil {
			s.files.Add(snapshot)
		} else if !errors.Is(err, fs.ErrNotExist) { // an older one will do
			return err
		}
		s.sealed = append(s.sealed, seg)
	}
	return nil
}

// addEnd writes what a clean start reads instead of scanning the active segment.
func (s *saving) addEnd() error {
	l := s.log
	active := l.segments[len(l.segments)-1]
	if l.saved == (savedEnd{active.base, l.end}) {
		return nil // as it was found
	}
	if size, _ := active.shape(); size == 0 && len(l.segments) == 1 && len(l.producers.byID) == 0 {
		return nil // nothing was ever written, or nothing is left: see recovery.untouched
	}
	if err := active.save(s.files.Write); err != nil {
		return err
	}
	return s.files.Replace(segmentFile(l.dir, l.end, snapshotSuffix), encodeSnapshot(l.producers.byID))
}

// sync makes the files durable and moves the recovery point. The caller holds tidyMu.
func (s *saving) sync() error {
	if err := s.files.Sync(); err != nil {
		s.keepTerms()
		return err
	}
	for _, seg := range s.sealed {
		seg.mu.Lock()
		seg.synced = true
		seg.mu.Unlock()
	}
	s.log.setPoint(s.point)
	return nil
}

// secureBelow makes durable what reading the log anew takes over unread, as it
// does below a recovery point: the terms, and the indexes of the sealed ones
// among the first keep segments. The caller holds tidyMu.
func (l *Log) secureBelow(keep int) error {
	s := &saving{log: l, files: vfs.NewPending(l.store.fs)}
	if err := s.addSealed(l.segments[:keep]); err != nil {
		return err
	}
	t := l.terms.truncateEnd(l.end) // all: a power cut may come before anything is cut
	if err := s.files.Replace(filepath.Join(l.dir, termFile), encodeTerms(t)); err != nil {
		return err
	}
	if err := s.files.Sync(); err != nil {
		return err
	}
	for _, seg := range s.sealed {
		seg.mu.Lock()
		seg.synced = true
		seg.mu.Unlock()
	}
	return nil
}

// shutAll closes logs and makes all of them durable, indexes and snapshots too.
// They are written first, so that the syncs that follow find little to do.
func (s *Store) shutAll(logs []*Log) error {
	saved, errs := make([]*saving, len(logs)), make([]error, len(logs))
	var written atomic.Int32
	_ = inParallel(len(logs), runtime.GOMAXPROCS(0), func(i int) error {
		saved[i], errs[i] = logs[i].beginShut()
		if saved[i] != nil && !saved[i].files.Empty() {
			written.Add(1)
		}
		return nil
	})
	s.writeBack(int(written.Load()))
	_ = inParallel(len(logs), closeParallel, func(i int) error {
		errs[i] = cmp.Or(errs[i], logs[i].syncShut(saved[i]))
		return nil
	})
	s.writeBack(int(written.Load())) // names of files
	return inParallel(len(logs), closeParallel, func(i int) error { return logs[i].endShut(saved[i], errs[i]) })
}

// beginShut ends appends and writes what is to be saved.
func (l *Log) beginShut() (*saving, error) {
	l.mu.Lock()
	l.pos.Lock()
	l.closing = true // no append from here on
	l.pos.Unlock()
	l.mu.Unlock()
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	s, err := l.save(true)
	if err != nil && !errors.Is(err, ErrClosed) {
		err = storageError(err)
	}
	return s, err
}

// syncShut makes the records durable, and the bytes of what was saved.
func (l *Log) syncShut(s *saving) error {
	if err := l.flush(); err != nil || s == nil {
		return err
	}
	return s.whileOpen(s.files.SyncFiles)
}

// endShut makes the names of files that are durable so too, unless there was an
// error before, and closes the log.
func (l *Log) endShut(s *saving, err error) error {
	if err == nil && s != nil {
		err = s.whileOpen(s.sync)
	}
	if errors.Is(err, ErrClosed) { // deleted meanwhile
		return nil
	}
	l.mu.Lock()
	if l.spare != nil {
		err = errors.Join(err, removeIfThere(l.store.fs, l.spare.file.path))
	}
	l.closeLocked()
	l.mu.Unlock()
	l.tell()
	if err != nil {
		return l.wrap("close", err)
	}
	return nil
}

// whileOpen runs do unless the log was deleted, and keeps it from being so.
func (s *saving) whileOpen(do func() error) error {
	s.log.tidyMu.Lock()
	defer s.log.tidyMu.Unlock()
	if err := s.log.usable(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return storageError(err)
	}
	return nil
}

// writeBackFrom is from how many logs on a write-back of the whole file system
// is less work than the syncs find without it.
const writeBackFrom = 16

// writeBack is called between the writing and the syncing of so many logs.
func (s *Store) writeBack(logs int) {
	if logs >= writeBackFrom {
		s.fs.WriteBackAll(s.dir)
	}
}
