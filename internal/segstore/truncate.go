package segstore

import (
	"errors"
	"fmt"
	"slices"
)

// TruncateTo cuts the log to end at offset, durably; an offset inside a batch
// cuts the whole batch. Producer state, transactions and terms go back with
// it. ErrOffsetOutOfRange below the start. An error while cutting fails the log.
func (l *Log) TruncateTo(offset int64) error {
	err := l.rebuild(func() error { return l.cutLocked(offset) })
	l.tell()
	if err != nil {
		return l.wrap("truncate", err)
	}
	return nil
}

// RestartAt empties the log; it then begins at offset, durably.
func (l *Log) RestartAt(offset int64) error {
	err := l.rebuild(func() error { return l.restartLocked(offset) })
	l.tell()
	if err != nil {
		return l.wrap("restart", err)
	}
	return nil
}

// rebuild runs change, which replaces the log's segments, while no append,
// flush or deletion runs.
func (l *Log) rebuild(change func() error) error {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if err := l.settleSwaps(); err != nil {
		return storageError(err)
	}
	if err := change(); err != nil {
		return err
	}
	l.pos.Lock()
	defer l.pos.Unlock()
	l.pending.moved = true
	l.noteLocked()
	return nil
}

func (l *Log) cutLocked(offset int64) error {
	o := l.Offsets()
	switch {
	case offset >= o.End:
		return nil
	case offset < o.Start:
		return fmt.Errorf("%w: %d is below the start %d", ErrOffsetOutOfRange, offset, o.Start)
	}
	keep := len(l.segments) - len(segmentsFrom(l.segments, offset)) + 1
	seg := l.segments[keep-1]
	size, _ := seg.shape()
	pos, err := l.locate(seg, offset, size)
	if err != nil {
		return storageError(err)
	}
	if err := l.secureBelow(keep); err != nil {
		return storageError(err)
	}
	if err := l.lowerPoint(seg.base, o.Start); err != nil {
		return l.fail(err)
	}
	r := l.newRecovery(seg.base, o.Start)
	r.segments = l.segments
	if err := r.shorten(keep, pos); err != nil {
		return l.fail(err)
	}
	r = l.newRecovery(seg.base, o.Start)
	return l.adoptLocked(r, r.run)
}

func (l *Log) restartLocked(offset int64) error {
	if err := l.lowerPoint(offset, offset); err != nil {
		return l.fail(err)
	}
	r := l.newRecovery(0, 0)
	r.segments = slices.Concat(l.retiring, l.segments)
	return l.adoptLocked(r, func() error { return r.restart(offset) })
}

// lowerPoint makes the recovery point and the start durable before anything
// below the old point is removed, so that a crash is no corruption. After an
// error the files may say either, so the log must not go on.
func (l *Log) lowerPoint(point, start int64) error {
	s := l.store
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	s.points[l.name()], s.starts[l.name()] = point, start
	if clean, ok := s.cleaned[l.name()]; ok && clean > point {
		s.cleaned[l.name()] = point
	}
	return s.writeCheckpointsLocked()
}

// shorten removes the segments from keep on, the last one first, and cuts the
// one before them at pos, durably.
func (r *recovery) shorten(keep int, pos int64) error {
	l := r.log
	for j := len(r.segments) - 1; j >= keep; j-- {
		if err := r.remove(r.segments[j]); err != nil {
			return err
		}
	}
	seg := r.segments[keep-1]
	f, err := l.store.handles.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer l.store.handles.release(&seg.file)
	if err := errors.Join(f.Truncate(pos), f.Sync()); err != nil {
		return err
	}
	return l.store.fs.SyncDir(l.dir)
}

// adoptLocked reads the log anew with read and puts the result in the place of
// what is in memory.
func (l *Log) adoptLocked(r *recovery, read func() error) error {
	old := l.segments
	if l.writer != nil {
		l.store.handles.release(&old[len(old)-1].file)
		l.writer = nil
	}
	l.dropSpareLocked() // reading the log anew removes its file
	l.pos.Lock()
	pinned := l.pinned
	l.pinned = nil
	l.pos.Unlock()
	for _, seg := range pinned {
		l.store.handles.release(&seg.file)
	}
	if err := read(); err != nil {
		return l.fail(err)
	}
	if err := r.sync(); err != nil {
		return l.fail(err)
	}
	l.pos.Lock()
	l.segments, l.producers, l.terms, l.retiring = r.segments, r.producers, r.terms, nil
	l.rebuilds++
	l.start, l.end, l.durable = r.start, r.end, r.end
	l.high = max(l.start, min(l.high, l.end))
	l.stable = max(l.start, l.producers.stable(l.high))
	l.recent.clear()
	l.tendAt = 0
	l.saved = savedEnd{-1, -1}
	l.namesDirty, l.termsDirty = false, r.unsaved
	l.pos.Unlock()
	for _, seg := range old {
		l.store.handles.drop(&seg.file)
		l.store.indexes.forget(seg)
	}
	return nil
}

// DeleteTo raises Start to offset (DeleteRecords), durably; segments below it
// are deleted later. ErrOffsetOutOfRange above High, ErrPolicy for a topic
// that is only compacted.
func (l *Log) DeleteTo(offset int64) (start int64, err error) {
	if start, err = l.deleteTo(offset); err != nil {
		return 0, l.wrap("delete records", err)
	}
	return start, nil
}

func (l *Log) deleteTo(offset int64) (int64, error) {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	if cfg := l.cfg.Load(); cfg.Compact && !cfg.Delete {
		return 0, ErrPolicy
	}
	o := l.Offsets()
	if offset > o.High || offset < 0 {
		return 0, fmt.Errorf("%w: %d is not within [0, %d]", ErrOffsetOutOfRange, offset, o.High)
	}
	if offset <= o.Start {
		return o.Start, nil
	}
	if err := l.raiseStart(offset); err != nil {
		return 0, storageError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pos.Lock()
	defer l.pos.Unlock()
	l.start = max(l.start, offset)
	l.high, l.stable = max(l.high, l.start), max(l.stable, l.start)
	l.terms = l.terms.truncateStart(l.start)
	l.termsDirty = true
	return l.start, nil
}

func (l *Log) raiseStart(offset int64) error {
	s := l.store
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	before := s.starts[l.name()]
	s.starts[l.name()] = max(before, offset)
	err := s.writeCheckpointsLocked()
	if err != nil {
		s.starts[l.name()] = before
	}
	return err
}
