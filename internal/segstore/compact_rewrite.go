package segstore

import (
	"errors"
	"io/fs"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// writeChunk is how much of a rewritten segment is written at once, in bytes.
const writeChunk = 1 << 20

// replacement is a segment being written in the place of others. Until commit
// its files end in .cleaned and nobody else knows it.
type replacement struct {
	log      *Log
	old      []*segment
	seg      *segment
	interval int64 // index.interval.bytes
	buf      []byte
	done     int64 // bytes written
}

// replace begins the replacement of segments that follow each other.
func (l *Log) replace(old []*segment, buf []byte) (*replacement, error) {
	l.tidyMu.Lock() // so that the directory is not another log's by now
	defer l.tidyMu.Unlock()
	if err := l.replaceable(old); err != nil {
		return nil, err
	}
	var most int64
	for _, seg := range old {
		size, _ := seg.shape()
		most += size
	}
	if err := l.store.space.fits(most); err != nil {
		return nil, err
	}
	first, last := old[0], old[len(old)-1]
	seg := newSegment(l.dir, first.base, first.created, 0)
	last.mu.RLock()
	seg.modified = last.modified
	last.mu.RUnlock()
	f, err := l.store.fs.OpenReadWrite(seg.stem+logSuffix+cleanedSuffix, true)
	if err != nil {
		return nil, err
	}
	seg.file.path = f.Name()
	l.store.handles.adopt(&seg.file, f)
	w := &replacement{log: l, old: old, seg: seg, interval: l.cfg.Load().IndexIntervalBytes, buf: buf[:0]}
	if err := f.Truncate(0); err != nil {
		w.discardLocked()
		return nil, err
	}
	return w, nil
}

// replaceable is errAborted if the segments are no longer what the log
// consists of. The caller holds tidyMu.
func (l *Log) replaceable(old []*segment) error {
	if err := l.writable(); err != nil {
		return err
	}
	if !l.holds(old) {
		return errAborted
	}
	return l.settleSwaps()
}

// add appends a batch.
func (w *replacement) add(h *BatchHeader, raw []byte) error {
	w.seg.add(h, int64(len(raw)), w.interval, w.seg.modified)
	w.buf = append(w.buf, raw...)
	if len(w.buf) < writeChunk {
		return nil
	}
	return w.flush()
}

func (w *replacement) flush() error {
	n := int64(len(w.buf))
	if _, err := w.seg.file.file.WriteAt(w.buf, w.done); err != nil {
		return err
	}
	w.done += n
	w.buf = w.buf[:0]
	return w.seg.file.file.WriteBack(w.done-n, n)
}

// commit makes the new segment durable and puts it in the place of the old
// ones. After an error the log either has the new segment or the old ones.
func (w *replacement) commit(aborted []abortedTxn) error {
	if err := w.flush(); err != nil {
		return errors.Join(err, w.discard())
	}
	if err := w.seg.file.file.Sync(); err != nil {
		return errors.Join(err, w.discard())
	}
	l := w.log
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	err := l.replaceable(w.old)
	if err == nil {
		err = w.seal(aborted)
	}
	if err != nil {
		return errors.Join(err, w.discardLocked())
	}
	return l.swapIn(w.seg, w.old)
}

// seal writes the index files durably and makes the segment one that readers
// can have.
func (w *replacement) seal(aborted []abortedTxn) error {
	seg, fsys := w.seg, w.log.store.fs
	last := w.old[len(w.old)-1]
	last.mu.RLock()
	end, synced := last.end, last.synced
	last.mu.RUnlock()
	x := &loadedIndex{segment: seg, offsets: seg.index, times: seg.times.add(seg.maxTimestamp, seg.maxOffset-seg.base)}
	if err := vfs.WriteFileSynced(fsys, seg.stem+indexSuffix+cleanedSuffix, x.offsets); err != nil {
		return err
	}
	if err := vfs.WriteFileSynced(fsys, seg.stem+timeSuffix+cleanedSuffix, x.times); err != nil {
		return err
	}
	if len(aborted) > 0 {
		if err := vfs.WriteFileSynced(fsys, seg.stem+abortedSuffix+cleanedSuffix, encodeAborted(aborted)); err != nil {
			return err
		}
	}
	if !synced { // the snapshot behind it is what the last old segment was still owed
		err := vfs.SyncFile(fsys, segmentFile(w.log.dir, end, snapshotSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	seg.seal()
	seg.mu.Lock()
	seg.end, seg.synced, seg.aborted, seg.hasAborted = end, true, aborted, len(aborted) > 0
	seg.mu.Unlock()
	w.log.store.indexes.put(x)
	return fsys.SyncDir(w.log.dir)
}

// discard gives the replacement up.
func (w *replacement) discard() error {
	w.log.tidyMu.Lock()
	defer w.log.tidyMu.Unlock()
	return w.discardLocked()
}

func (w *replacement) discardLocked() error {
	w.log.store.handles.drop(&w.seg.file)
	w.log.store.handles.release(&w.seg.file)
	if w.log.isClosed() {
		return nil // the files went with the log
	}
	var errs error
	for _, suffix := range segmentSuffixes {
		errs = errors.Join(errs, removeIfThere(w.log.store.fs, w.seg.stem+suffix+cleanedSuffix))
	}
	return errs
}
