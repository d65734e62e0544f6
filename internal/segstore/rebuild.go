package segstore

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

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
	twin.modified = seg.modified
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

// saveIndexes writes a scanned segment's indexes.
func (r *recovery) saveIndexes(seg *segment) error {
	if err := r.dropAborted(seg); err != nil {
		return err
	}
	return seg.save(r.files.Write)
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
	return r.files.Write(path, encodeSnapshot(r.producers.byID))
}
