package segstore

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Suffixes of a rewritten segment's files until they are in place (Kafka's
// LocalLog.replaceSegments): .cleaned until they are whole and durable, then
// .swap until the segments they replace are out of the way. Recovery undoes the
// one and finishes the other.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// segmentSuffixes are a segment's own files, the records first.
var segmentSuffixes = []string{logSuffix, indexSuffix, timeSuffix, abortedSuffix}

type swapStage int

const (
	swapUndo   swapStage = iota // not committed: take the new files away
	swapRetire                  // committed: rename the old files away
	swapName                    // then give the new ones their names
)

// swap is the replacement of segments by one, from the moment its files have
// the suffix .swap. A fault leaves it pending: the log goes on with what it
// has, but nothing that removes segments may run before the swap is settled.
type swap struct {
	seg   *segment // its handle is held until it has its name
	old   []*segment
	stage swapStage
	err   error // a sync of the directory failed: only a start may go on
}

// holds says whether these segments still follow each other in the log.
func (l *Log) holds(segs []*segment) bool {
	l.pos.Lock()
	defer l.pos.Unlock()
	i := slices.Index(l.segments, segs[0])
	return i >= 0 && i+len(segs) <= len(l.segments) && slices.Equal(l.segments[i:i+len(segs)], segs)
}

// stale says whether one of these segments was deleted or replaced.
func (l *Log) stale(segs []*segment) bool {
	now := map[*segment]bool{}
	for _, s := range l.list() {
		now[s] = true
	}
	return slices.ContainsFunc(segs, func(s *segment) bool { return !now[s] })
}

// swapIn puts seg, whose files are durable as .cleaned, in the place of old.
// Once the names with .swap are durable the change stands, whatever happens.
// The caller holds tidyMu and one reference of seg's handle, which passes on.
func (l *Log) swapIn(seg *segment, old []*segment) error {
	sw := &swap{seg: seg, old: old}
	l.swaps = append(l.swaps, sw)
	for _, suffix := range segmentSuffixes {
		err := l.store.fs.Rename(seg.stem+suffix+cleanedSuffix, seg.stem+suffix+swapSuffix)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && suffix == abortedSuffix) {
			return errors.Join(err, l.settleSwaps())
		}
	}
	if sw.err = l.store.fs.SyncDir(l.dir); sw.err != nil {
		return sw.err
	}
	l.store.handles.rename(&seg.file, seg.stem+logSuffix+swapSuffix)
	l.mu.Lock()
	l.pos.Lock()
	i := slices.Index(l.segments, old[0])
	for _, s := range old {
		s.gone.Store(true)
	}
	l.segments = slices.Concat(l.segments[:i], []*segment{seg}, l.segments[i+len(old):])
	l.pos.Unlock()
	l.mu.Unlock()
	sw.stage = swapRetire
	return l.settleSwaps()
}

// settleSwaps finishes or undoes what is pending; the caller holds tidyMu. A
// failed rename is tried again by the next call, a failed sync never.
func (l *Log) settleSwaps() error {
	for len(l.swaps) > 0 {
		if err := l.swaps[0].settle(l); err != nil {
			return err
		}
		l.swaps = l.swaps[1:]
	}
	return nil
}

func (sw *swap) settle(l *Log) error {
	if sw.err != nil {
		return sw.err
	}
	if sw.stage == swapUndo {
		return sw.undo(l)
	}
	if sw.stage == swapRetire {
		for i, seg := range sw.old {
			suffixes := segmentSuffixes
			if i > 0 { // the snapshot before the first one is that before the new one
				suffixes = append(slices.Clone(suffixes), snapshotSuffix)
			}
			if err := l.retireFiles(seg, suffixes, l.cfg.Load().FileDeleteDelay); err != nil {
				return err
			}
		}
		// Before the new names: else a crash could leave both, or an old index beside a new log.
		if sw.err = l.store.fs.SyncDir(l.dir); sw.err != nil {
			return sw.err
		}
		sw.stage = swapName
	}
	return sw.name(l)
}

// undo removes the files of a swap that was not committed. The log file goes
// first: without it the rest means nothing.
func (sw *swap) undo(l *Log) error {
	for _, suffix := range segmentSuffixes {
		for _, path := range [...]string{sw.seg.stem + suffix + swapSuffix, sw.seg.stem + suffix + cleanedSuffix} {
			if err := removeIfThere(l.store.fs, path); err != nil {
				return err
			}
		}
		if suffix == logSuffix {
			if sw.err = l.store.fs.SyncDir(l.dir); sw.err != nil {
				return sw.err
			}
		}
	}
	l.store.handles.drop(&sw.seg.file)
	l.store.handles.release(&sw.seg.file)
	return nil
}

// name gives the new files their names, the log file last: while it is a .swap
// recovery knows what to do.
func (sw *swap) name(l *Log) error {
	fsys, seg := l.store.fs, sw.seg
	for _, suffix := range [...]string{indexSuffix, timeSuffix, abortedSuffix, logSuffix} {
		err := fsys.Rename(seg.stem+suffix+swapSuffix, seg.stem+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none, or it was renamed before
			return err
		}
	}
	l.store.handles.rename(&seg.file, seg.stem+logSuffix)
	if sw.err = fsys.SyncDir(l.dir); sw.err != nil {
		return sw.err
	}
	l.store.handles.release(&seg.file)
	seg.mu.Lock()
	seg.aborted = nil // it can be read from its file now
	seg.mu.Unlock()
	return nil
}

func removeIfThere(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
