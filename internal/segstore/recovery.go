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

	segments  []*segment
	end       int64
	snapshots []int64
	producers producers
	terms     terms
	termsRead []byte // content of the checkpoint file
	changed   bool   // something was scanned, cut or made anew and is to be synced
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
	if !termsKnown {
		for _, seg := range r.segments[:first] {
			if err := r.eachHeader(seg, func(h *BatchHeader, _ []byte) { r.terms = r.terms.assign(h.Term, h.BaseOffset) }); err != nil {
				return 0, err
			}
		}
	}
	active := r.segments[last]
	if first == last && r.clean && termsKnown && r.openActive(active) && active.end == r.point {
		r.end = active.end
		return len(r.segments), nil
	}
	return first, nil
}

// indexed looks at the last entries of a sealed segment's index files and
// reads its largest timestamp from them; the rest is checked when it is used.
func (r *recovery) indexed(seg *segment) bool {
	stem := segmentFile(r.log.dir, seg.base, "")
	index, n, err1 := lastEntry(r.log.store.fs, stem+indexSuffix, offsetEntrySize)
	times, m, err2 := lastEntry(r.log.store.fs, stem+timeSuffix, timeEntrySize)
	if err1 != nil || err2 != nil {
		return false
	}
	switch {
	case n > 0:
		rel, pos := offsetIndex(index).entry(0)
		if pos >= seg.size || (n > 1 && (pos == 0 || rel == 0)) {
			return false
		}
	case seg.size > maxUnindexed:
		return false
	}
	if m > 0 {
		ts, rel := timeIndex(times).entry(0)
		if ts < 0 || (seg.end > seg.base && rel >= seg.end-seg.base) {
			return false
		}
		seg.maxTimestamp, seg.maxOffset = ts, seg.base+rel
	}
	return true
}

// lastEntry reads the last entry of an index file and the number of entries.
func lastEntry(fsys vfs.FS, path string, size int64) (entry []byte, n int64, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	length, err := f.Size()
	if err != nil || length == 0 {
		return nil, 0, err
	}
	if length%size != 0 {
		return nil, 0, fmt.Errorf("%w: %s has %d bytes", ErrCorrupt, path, length)
	}
	entry = make([]byte, size)
	return entry, length / size, readFull(f, entry, length-size)
}

// reindex makes the indexes of a segment below the recovery point anew. A bad
// batch there is no torn tail but corruption.
func (r *recovery) reindex(seg *segment) error {
	r.log.store.log.Warn("index is rebuilt", "topic", r.log.topic, "partition", r.log.partition, "offset", seg.base)
	state, err := r.producersAt(seg.base, r.segments)
	if err != nil {
		return err
	}
	end := seg.end
	twin := newSegment(r.log.dir, seg.base, r.log.store.now(), 0)
	twin.file.path, twin.modified = seg.file.path, seg.modified
	good, err := r.readBatches(seg, twin, &state, nil)
	if err != nil {
		return err
	}
	if good != seg.size {
		return fmt.Errorf("%w: at %d of %s, below the recovery point %d", ErrCorrupt, good, seg.file.path, r.point)
	}
	if err := r.saveIndexes(twin); err != nil {
		return err
	}
	r.changed = true
	seg.end, seg.maxTimestamp, seg.maxOffset, seg.hasAborted = end, twin.maxTimestamp, twin.maxOffset, twin.hasAborted
	return nil
}

// saveIndexes writes a scanned segment's indexes durably.
func (r *recovery) saveIndexes(seg *segment) error {
	if err := r.dropAborted(seg); err != nil {
		return err
	}
	return seg.save(r.log.store.fs, true)
}

// dropAborted removes a .txnindex of an earlier life if there is none now.
func (r *recovery) dropAborted(seg *segment) error {
	if seg.hasAborted {
		return nil
	}
	err := r.log.store.fs.Remove(segmentFile(r.log.dir, seg.base, abortedSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// openActive loads the indexes that a clean stop left for the active segment
// and finds the end of the log behind the last entry.
func (r *recovery) openActive(seg *segment) bool {
	fsys := r.log.store.fs
	if !r.indexed(seg) {
		return false
	}
	index, err1 := fsys.ReadFile(segmentFile(r.log.dir, seg.base, indexSuffix))
	times, err2 := fsys.ReadFile(segmentFile(r.log.dir, seg.base, timeSuffix))
	if err1 != nil || err2 != nil {
		return false
	}
	if seg.hasAborted {
		data, err := fsys.ReadFile(segmentFile(r.log.dir, seg.base, abortedSuffix))
		if err != nil {
			return false
		}
		if seg.aborted, err = decodeAborted(data, seg.base); err != nil {
			return false
		}
	}
	seg.index, seg.times = index, times
	return r.findEnd(seg) == nil
}

// findEnd walks the headers from the last index entry to the end of the file.
func (r *recovery) findEnd(seg *segment) error {
	f, err := r.log.store.handles.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer r.log.store.handles.release(&seg.file)
	sc := newScan(f, seg.size)
	defer sc.close()
	seg.end = seg.base
	pos := int64(0)
	if n := seg.index.entries(); n > 0 {
		_, pos = seg.index.entry(n - 1)
	}
	for from := pos; pos < seg.size; {
		h, err := sc.header(pos)
		if err != nil {
			return err
		}
		pos += int64(h.Size())
		seg.end = h.LastOffset() + 1
		seg.unindexed = pos - from
	}
	if seg.size > 0 {
		h, err := sc.header(0)
		if err != nil {
			return err
		}
		seg.firstTime = h.MaxTimestamp
	}
	if !seg.index.sane(seg.size) || !seg.times.sane(seg.end-seg.base) {
		return fmt.Errorf("%w: index of %s", ErrCorrupt, seg.file.path)
	}
	return nil
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
			if err := r.saveSnapshot(seg.base); err != nil {
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
		missing := i+1 < len(r.segments) && twin.end < r.segments[i+1].base && r.segments[i+1].base > r.point
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
		err := r.log.store.fs.Remove(segmentFile(r.log.dir, seg.base, suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readBatches checks the batches of seg one after the other and takes them
// into twin (an empty segment), state and, if not nil, each. It gives the
// bytes of good batches; a read error is an error, a bad batch is not.
func (r *recovery) readBatches(seg, twin *segment, state *producers, each func(*BatchHeader)) (good int64, err error) {
	f, err := r.log.store.handles.acquire(&seg.file)
	if err != nil {
		return 0, err
	}
	defer r.log.store.handles.release(&seg.file)
	sc := newScan(f, seg.size)
	defer sc.close()
	interval, nowMs, modified := r.log.cfg.Load().IndexIntervalBytes, r.log.store.now().UnixMilli(), twin.modified
	for good < seg.size {
		h, err := sc.header(good)
		if errors.Is(err, ErrCorrupt) {
			return good, nil
		} else if err != nil {
			return 0, err
		}
		raw, err := sc.bytes(good, h.Size())
		if err != nil {
			return 0, err
		}
		if h.BaseOffset < twin.end || h.LastOffset()-seg.base > 1<<31-1 || !crcGood(raw) {
			return good, nil
		}
		twin.add(&h, int64(h.Size()), interval, modified)
		if aborted, ok := state.apply(&h, raw[batchOverhead:], nowMs); ok {
			twin.addAborted(aborted)
		}
		if each != nil {
			each(&h)
		}
		good += int64(h.Size())
	}
	return good, nil
}

// eachHeader gives all batches of a segment from the log start on, the records
// only of control batches.
func (r *recovery) eachHeader(seg *segment, do func(h *BatchHeader, records []byte)) error {
	f, err := r.log.store.handles.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer r.log.store.handles.release(&seg.file)
	sc := newScan(f, seg.size)
	defer sc.close()
	for pos := int64(0); pos < seg.size; {
		h, err := sc.header(pos)
		if err != nil {
			return err
		}
		var records []byte
		if h.Control() {
			raw, err := sc.bytes(pos, h.Size())
			if err != nil {
				return err
			}
			records = raw[batchOverhead:]
		}
		do(&h, records)
		pos += int64(h.Size())
	}
	return nil
}

// producersAt is the producer state at an offset: the newest good snapshot at
// or below it and the batches from there.
func (r *recovery) producersAt(offset int64, segs []*segment) (producers, error) {
	state, from := newProducers(), int64(0)
	nowMs := r.log.store.now().UnixMilli()
	for i := len(r.snapshots) - 1; i >= 0; i-- {
		if r.snapshots[i] > offset {
			continue
		}
		data, err := r.log.store.fs.ReadFile(segmentFile(r.log.dir, r.snapshots[i], snapshotSuffix))
		if err != nil {
			return state, err
		}
		byID, err := decodeSnapshot(data, nowMs)
		if err == nil {
			state, from = producersFrom(byID), r.snapshots[i]
			break
		}
		r.log.store.log.Warn("producer snapshot is not used", "topic", r.log.topic, "partition", r.log.partition,
			"offset", r.snapshots[i], "err", err)
	}
	from = max(from, r.start)
	for i, seg := range segs {
		if seg.base >= offset || (i+1 < len(segs) && segs[i+1].base <= from) {
			continue
		}
		err := r.eachHeader(seg, func(h *BatchHeader, records []byte) {
			if h.LastOffset() >= from && h.BaseOffset < offset {
				state.apply(h, records, nowMs)
			}
		})
		if err != nil {
			return state, err
		}
	}
	return state, nil
}

func (r *recovery) saveSnapshot(offset int64) error {
	path := segmentFile(r.log.dir, offset, snapshotSuffix)
	if !slices.Contains(r.snapshots, offset) {
		r.snapshots = append(r.snapshots, offset)
	}
	return vfs.WriteFileAtomic(r.log.store.fs, path, encodeSnapshot(r.producers.byID))
}

// restart begins an empty log at offset.
func (r *recovery) restart(offset int64) error {
	for i := len(r.segments) - 1; i >= 0; i-- {
		if err := r.remove(r.segments[i]); err != nil {
			return err
		}
	}
	seg := newSegment(r.log.dir, offset, r.log.store.now(), r.log.cfg.Load().SegmentJitter)
	f, err := r.log.createSegment(seg)
	if err != nil {
		return err
	}
	r.log.store.handles.adopt(&seg.file, f)
	r.log.store.handles.release(&seg.file)
	r.segments, r.start, r.end = []*segment{seg}, offset, offset
	r.producers, r.terms, r.changed = newProducers(), nil, true
	return r.settle()
}

// settle makes durable what recovery kept: records and indexes of the
// segments it scanned, the terms, the names; and removes snapshots that are
// beyond the end or belong to no segment.
func (r *recovery) settle() error {
	l := r.log
	for i, seg := range r.segments {
		if seg.sealed || !r.changed {
			continue
		}
		if err := l.syncLogFile(seg); err != nil {
			return err
		}
		if i == len(r.segments)-1 {
			if err := r.dropAborted(seg); err != nil {
				return err
			}
			continue
		}
		if err := r.saveIndexes(seg); err != nil {
			return err
		}
		seg.seal()
		seg.synced = true
	}
	for i, off := range r.snapshots {
		newest := i == len(r.snapshots)-1 && off <= r.end
		isBase := slices.ContainsFunc(r.segments, func(s *segment) bool { return s.base == off })
		if newest || isBase {
			continue
		}
		err := l.store.fs.Remove(segmentFile(l.dir, off, snapshotSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.changed = true
	}
	if data := encodeTerms(r.terms); !bytes.Equal(data, r.termsRead) {
		if err := vfs.WriteFileAtomic(l.store.fs, filepath.Join(l.dir, termFile), data); err != nil {
			return err
		}
	}
	if r.changed {
		return l.store.fs.SyncDir(l.dir)
	}
	return nil
}

func (l *Log) syncLogFile(seg *segment) error {
	f, err := l.store.handles.acquire(&seg.file)
	if err != nil {
		return err
	}
	defer l.store.handles.release(&seg.file)
	return f.SyncData()
}
