package segstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// recovery rebuilds one log from its directory.
//
// Segments that lie below the recovery point were made durable with their
// indexes, so only their indexes' shape is looked at. From the segment that
// holds the recovery point on, every batch is read and its CRC checked, and
// the indexes are made anew. The first bad batch ends the log: what follows is
// cut, unless it begins below the recovery point, where nothing may be missing.
type recovery struct {
	log   *Log
	point int64
	start int64
	clean bool
	// below it a Kafka's compaction may have left nothing at the end of a segment
	cleaned int64

	segments  []*segment
	end       int64
	snapshots []int64
	producers producers
	terms     terms
	termsRead []byte // content of the checkpoint file
	asSaved   bool   // the active segment's indexes and snapshot are those of a clean stop
	restarted bool   // nothing is left of what was there
	unsaved   bool   // the disk is full: indexes or terms are in memory only
	changed   bool   // something was scanned, cut or made anew and is to be synced

	files    *vfs.Pending // written, to be made durable by sync
	unsynced []*segment   // whose records are to be
	unsealed []*segment   // whose indexes are among files
}

// newRecovery of a log reads it by run or restart; what it did is durable after sync.
func (l *Log) newRecovery(point, start int64) *recovery {
	return &recovery{log: l, point: point, start: start, files: vfs.NewPending(l.store.fs)}
}

func (r *recovery) run() error {
	bases, snapshots, err := r.list()
	if err != nil {
		return err
	}
	r.snapshots = snapshots
	for _, base := range bases {
		seg := newSegment(r.log.dir, base, r.log.store.now(), r.log.cfg.Load().SegmentJitter)
		if err := r.stat(seg); err != nil {
			return err
		}
		r.segments = append(r.segments, seg)
	}
	if len(r.segments) == 0 {
		if r.point > r.start {
			return fmt.Errorf("%w: no segment is left, but %d was durable", ErrCorrupt, r.point)
		}
		return r.restart(r.start)
	}
	first, err := r.trust()
	if err != nil {
		return err
	}
	if first < len(r.segments) {
		if err := r.scanFrom(first); err != nil {
			return err
		}
	} else if r.producers, err = r.producersAt(r.end, r.segments); err != nil {
		return err
	}
	if r.end < r.point && r.point > r.start {
		return fmt.Errorf("%w: the log ends at %d, but %d was durable", ErrCorrupt, r.end, r.point)
	}
	if r.start > r.end {
		return r.restart(r.start)
	}
	r.start = max(r.start, r.segments[0].base)
	r.terms = r.terms.truncateEnd(r.end).truncateStart(r.start)
	return r.settle()
}

// stat reads a segment's size and age.
func (r *recovery) stat(seg *segment) error {
	info, err := r.log.store.fs.Stat(seg.file.path)
	if err != nil {
		return err
	}
	seg.size, seg.created, seg.modified = info.Size(), info.ModTime(), info.ModTime()
	_, err = r.log.store.fs.Stat(segmentFile(r.log.dir, seg.base, abortedSuffix))
	seg.hasAborted = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// trust takes segments over without reading their records: those below the
// recovery point, and after a clean stop, whose recovery point is the end, all.
// It gives the index of the first segment to scan.
func (r *recovery) trust() (first int, err error) {
	last := len(r.segments) - 1
	// A point equal to the next segment's base may be older than that segment,
	// and so than the indexes of the one before it.
	for first < last && (r.segments[first+1].base < r.point || r.clean && r.segments[first+1].base == r.point) {
		seg := r.segments[first]
		seg.end, seg.sealed, seg.synced = r.segments[first+1].base, true, true
		if !r.indexed(seg) {
			if err := r.reindex(seg); err != nil {
				return 0, err
			}
		}
		first++
	}
	termsKnown := r.readTerms()
	if r.untouched() {
		r.end, r.asSaved = r.point, true
		return len(r.segments), nil
	}
	if !termsKnown {
		for _, seg := range r.segments[:first] {
			if err := r.eachHeader(seg, func(h *BatchHeader, _ []byte) { r.terms = r.terms.assign(h.Term, h.BaseOffset) }); err != nil {
				return 0, err
			}
		}
	}
	active := r.segments[last]
	if first == last && r.clean && termsKnown && r.openActive(active) && active.end == r.point {
		r.end, r.asSaved = active.end, true
		return len(r.segments), nil
	}
	return first, nil
}

// untouched says whether a clean stop has left a log without any record, for
// which it writes no indexes, and no terms if it never had a record.
func (r *recovery) untouched() bool {
	return r.clean && len(r.segments) == 1 && r.segments[0].size == 0 && r.segments[0].base == r.point
}

// readTerms reads the leader-epoch-checkpoint; false if it has to be rebuilt.
func (r *recovery) readTerms() bool {
	data, err := r.log.store.fs.ReadFile(filepath.Join(r.log.dir, termFile))
	if err == nil {
		r.termsRead = data
		r.terms, err = decodeTerms(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.store.log.Warn("leader epochs are rebuilt", "topic", r.log.topic, "partition", r.log.partition, "err", err)
	}
	return err == nil
}

// scanFrom checks all batches of the segments from the first one on and cuts
// the log at the first bad one.
func (r *recovery) scanFrom(first int) (err error) {
	if r.producers, err = r.producersAt(r.segments[first].base, r.segments); err != nil {
		return err
	}
	r.terms = r.terms.truncateEnd(r.segments[first].base)
	r.changed = true
	for i := first; i < len(r.segments); i++ {
		seg := r.segments[i]
		if i > first {
			if err := r.saveSnapshot(seg.base); err != nil && !isFull(err) {
				return err
			}
		}
		size := seg.size
		twin := newSegment(r.log.dir, seg.base, seg.created, r.log.cfg.Load().SegmentJitter)
		twin.modified = seg.modified
		good, err := r.readBatches(seg, twin, &r.producers, func(h *BatchHeader) { r.terms = r.terms.assign(h.Term, h.BaseOffset) })
		r.log.store.handles.drop(&seg.file)
		if err != nil {
			return err
		}
		r.segments[i], r.end = twin, twin.end
		torn := good < size
		missing := i+1 < len(r.segments) && twin.end < r.segments[i+1].base && r.segments[i+1].base > max(r.point, r.cleaned)
		if torn || missing {
			return r.cut(i, good, size)
		}
	}
	return nil
}

// cut ends the log after good bytes of segment i.
func (r *recovery) cut(i int, good, size int64) error {
	seg := r.segments[i]
	if seg.end < r.point && r.point > r.start {
		return fmt.Errorf("%w: bad batch after offset %d at %d of %s, below the recovery point %d",
			ErrCorrupt, seg.end, good, seg.file.path, r.point)
	}
	r.log.store.log.Warn("bad tail is cut", "topic", r.log.topic, "partition", r.log.partition, "offset", seg.end,
		"bytes", size-good, "segments", len(r.segments)-1-i)
	for j := len(r.segments) - 1; j > i; j-- {
		if err := r.remove(r.segments[j]); err != nil {
			return err
		}
	}
	r.segments = r.segments[:i+1]
	f, err := r.log.store.handles.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer r.log.store.handles.release(&seg.file)
	return f.Truncate(good)
}

// remove unlinks all files of a segment, the log file last.
func (r *recovery) remove(seg *segment) error {
	r.log.store.handles.drop(&seg.file)
	for _, suffix := range [...]string{indexSuffix, timeSuffix, abortedSuffix, snapshotSuffix, logSuffix} {
		path := segmentFile(r.log.dir, seg.base, suffix)
		r.files.Forget(path)
		err := r.log.store.fs.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// restart begins an empty log at offset.
func (r *recovery) restart(offset int64) error {
	for i := len(r.segments) - 1; i >= 0; i-- {
		if i == 0 { // a power cut must not leave later ones, cut already perhaps, without the first
			if err := r.log.store.fs.SyncDir(r.log.dir); err != nil {
				return err
			}
		}
		if err := r.remove(r.segments[i]); err != nil {
			return err
		}
	}
	var err error
	if _, r.snapshots, err = r.list(); err != nil { // one may lie between segments, since a clean stop
		return err
	}
	seg := newSegment(r.log.dir, offset, r.log.store.now(), r.log.cfg.Load().SegmentJitter)
	f, err := r.log.createSegment(seg)
	if err != nil {
		return err
	}
	r.log.store.handles.adopt(&seg.file, f)
	r.log.store.handles.release(&seg.file)
	r.segments, r.start, r.end = []*segment{seg}, offset, offset
	r.producers, r.terms, r.changed, r.restarted = newProducers(), nil, true, true
	return r.settle()
}

// settle writes what belongs to what recovery kept, the indexes of the segments
// it scanned and the terms, removes snapshots that are beyond the end or belong
// to no segment, and lists what sync has to do.
func (r *recovery) settle() error {
	l := r.log
	for i, seg := range r.segments {
		if seg.sealed || !r.changed {
			continue
		}
		r.unsynced = append(r.unsynced, seg)
		if i == len(r.segments)-1 {
			if err := r.dropAborted(seg); err != nil {
				return err
			}
			continue
		}
		switch err := r.saveIndexes(seg); {
		case isFull(err):
			// they stay in memory; the housekeeper tries again before the
			// recovery point passes them
			r.unsaved = true
		case err != nil:
			return err
		default:
			r.unsealed = append(r.unsealed, seg)
		}
	}
	for i, off := range r.snapshots {
		newest := i == len(r.snapshots)-1 && off <= r.end && !r.restarted
		isBase := slices.ContainsFunc(r.segments, func(s *segment) bool { return s.base == off })
		if newest || isBase {
			continue
		}
		path := segmentFile(l.dir, off, snapshotSuffix)
		r.files.Forget(path)
		err := l.store.fs.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.changed = true
	}
	none := len(r.terms) == 0 && r.termsRead == nil
	if data := encodeTerms(r.terms); !none && !bytes.Equal(data, r.termsRead) {
		err := r.files.Replace(filepath.Join(l.dir, termFile), data)
		if err != nil && !isFull(err) {
			return err
		}
		r.unsaved = r.unsaved || err != nil
	}
	if r.changed {
		r.files.AddDir(l.dir)
	}
	return nil
}

// sync makes durable what recovery kept: records, indexes, terms and names. On
// a full disk indexes and terms may stay in memory.
func (r *recovery) sync() error {
	for _, seg := range r.unsynced {
		if err := r.log.syncLogFile(seg); err != nil {
			return err
		}
	}
	switch err := r.files.SyncFiles(); {
	case isFull(err):
		r.unsaved = true
	case err != nil:
		return err
	default:
		for _, seg := range r.unsealed {
			seg.seal()
			seg.synced = true
		}
	}
	return r.files.SyncNames()
}

func (l *Log) syncLogFile(seg *segment) error {
	f, err := l.store.handles.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer l.store.handles.release(&seg.file)
	return f.SyncData()
}
