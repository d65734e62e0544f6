package segstore

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// discard is a path to remove later; files are handles that readers may still use.
type discard struct {
	path  string
	at    time.Time
	files []*handle
}

// housekeepTick is how often the housekeeper looks for something to do.
const housekeepTick = time.Second

// housekeep runs retention, checkpoints and delayed deletions until ctx ends.
func (s *Store) housekeep(ctx context.Context) {
	tick := time.NewTicker(housekeepTick)
	defer tick.Stop()
	retention, checkpoint := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.emptyTrash(s.now())
		if every := s.opts.RetentionEvery; every > 0 && time.Since(retention) >= every {
			s.retain(ctx)
			retention = time.Now()
		}
		if every := s.opts.CheckpointEvery; every > 0 && time.Since(checkpoint) >= every {
			if err := s.checkpoint(ctx); err != nil {
				s.log.Warn("checkpoint was not written", "dir", s.dir, "err", err)
			}
			checkpoint = time.Now()
		}
	}
}

// checkpoint makes every log durable with its indexes, snapshots and terms, and
// writes how far that is. Idle logs give their file handle back.
func (s *Store) checkpoint(ctx context.Context) error {
	for _, l := range s.Logs() {
		if ctx.Err() != nil {
			return nil
		}
		if err := l.secure(); err != nil {
			if l.usable() == nil {
				s.faults.note("checkpoint", l, err) // the recovery point stays where it is
			}
			continue
		}
		l.rest()
	}
	return s.writeCheckpoints()
}

// rest gives the active segment's handle back if nothing was appended since
// the last call.
func (l *Log) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle && l.writer != nil {
		l.layDown()
	}
	l.idle = true
}

// retain deletes old segments of all logs and forgets silent producers.
func (s *Store) retain(ctx context.Context) {
	now := s.now()
	for _, l := range s.Logs() {
		if ctx.Err() != nil {
			return
		}
		if err := l.retain(now); err != nil && l.usable() == nil {
			s.faults.note("retention", l, err)
		}
		if s.opts.ProducerExpiry > 0 {
			l.mu.Lock()
			l.pos.Lock()
			l.producers.expire(now.Add(-s.opts.ProducerExpiry).UnixMilli())
			l.pos.Unlock()
			l.mu.Unlock()
		}
	}
}

// retain deletes whole segments from the front that retention.ms,
// retention.bytes or the log start have passed, never one above high.
func (l *Log) retain(now time.Time) error {
	defer l.tell()
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.settleSwaps(); err != nil {
		return err
	}
	cfg := l.cfg.Load()
	l.mu.Lock()
	n := l.expiredLocked(cfg, now)
	if n == len(l.segments) {
		if err := l.rollLocked(l.end, cfg, now); err != nil {
			l.mu.Unlock()
			return l.ioError("roll", err)
		}
	}
	gone := l.segments[:n:n]
	l.pos.Lock()
	if n > 0 {
		l.segments = append([]*segment(nil), l.segments[n:]...)
		l.start = max(l.start, l.segments[0].base)
		l.stable = max(l.stable, l.start)
		l.terms = l.terms.truncateStart(l.start)
		l.termsDirty = true
	}
	l.pos.Unlock()
	l.mu.Unlock()
	l.retiring = append(l.retiring, gone...)
	return l.discardSegments(cfg.FileDeleteDelay)
}

// expiredLocked is how many segments from the front are to go; all of them
// means that the active one is to be rolled first. The caller holds mu.
func (l *Log) expiredLocked(cfg *LogConfig, now time.Time) (n int) {
	o := l.Offsets()
	bySize := cfg.Delete && cfg.RetentionBytes >= 0
	excess := -cfg.RetentionBytes
	if bySize {
		for _, s := range l.segments {
			size, _ := s.shape()
			excess += size
		}
	}
	for _, s := range l.segments {
		size, end := s.shape()
		if end > o.High || size == 0 && s == l.segments[len(l.segments)-1] {
			break
		}
		tooBig := bySize && excess >= size
		tooOld := cfg.Delete && cfg.RetentionAge >= 0 && msBetween(s.newest(), now.UnixMilli()) > cfg.RetentionAge
		if !tooBig && !tooOld && end > o.Start {
			break
		}
		if n == len(l.segments)-1 && tooBig && !tooOld && end > o.Start {
			break // size alone never takes the segment being written
		}
		excess -= size
		n++
	}
	return n
}

// discardSegments renames the files of segments that are no longer part of the
// log, durably, and has them removed later: who reads them may finish. One
// after the other is made durable, the oldest first, and one that fails is the
// first of the next call: neither a power cut nor a fault must leave an older
// one when a later one has gone, which would be a hole. The caller holds tidyMu.
func (l *Log) discardSegments(delay time.Duration) error {
	for len(l.retiring) > 0 {
		seg := l.retiring[0]
		if err := l.retireFiles(seg, append(slices.Clone(segmentSuffixes), snapshotSuffix), delay); err != nil {
			return err
		}
		if err := l.store.fs.SyncDir(l.dir); err != nil {
			return err
		}
		l.retiring = l.retiring[1:]
		l.store.log.Info("segment deleted", "topic", l.topic, "partition", l.partition, "offset", seg.base)
	}
	l.retiring = nil
	return nil
}

// retireFiles renames files of a segment and has them removed after delay.
func (l *Log) retireFiles(seg *segment, suffixes []string, delay time.Duration) error {
	l.store.indexes.forget(seg)
	for _, suffix := range suffixes {
		path := seg.stem + suffix
		away := path + deletedSuffix
		if suffix == logSuffix {
			l.store.dropTrash(away)
		}
		if err := l.store.fs.Rename(path, away); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		var files []*handle
		if suffix == logSuffix {
			files = []*handle{&seg.file}
			l.store.handles.rename(&seg.file, away)
		}
		l.store.discard(away, delay, files)
	}
	return nil
}

// dropTrash gives up a path that waits to be removed: a later file is about to
// take it. Who has the older one open may finish, others look again.
func (s *Store) dropTrash(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trash = slices.DeleteFunc(s.trash, func(d discard) bool {
		if d.path != path {
			return false
		}
		for _, h := range d.files {
			s.handles.drop(h)
		}
		return true
	})
}

// discard has a path removed after delay.
func (s *Store) discard(path string, delay time.Duration, files []*handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trash = append(s.trash, discard{path: path, at: s.now().Add(delay), files: files})
}

// emptyTrash removes what is due.
func (s *Store) emptyTrash(now time.Time) {
	s.mu.Lock()
	var due []discard
	keep := s.trash[:0]
	for _, d := range s.trash {
		if d.at.After(now) {
			keep = append(keep, d)
		} else {
			due = append(due, d)
			for _, h := range d.files {
				s.handles.drop(h) // with s.mu: see dropTrash
			}
		}
	}
	clear(s.trash[len(keep):])
	s.trash = keep
	s.mu.Unlock()
	for _, d := range due {
		if err := s.fs.RemoveAll(d.path); err != nil {
			s.log.Warn("cannot remove", "path", d.path, "err", err)
		}
	}
}
