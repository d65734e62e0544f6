package segstore

import (
	"errors"
	"io/fs"
)

// OffsetForTime is the first record, by offset, at or after timestamp ms
// (offset, its timestamp, its term); found is false if there is none below the
// bound. It is exact to the record also inside a compressed batch, which is
// inflated for that.
func (l *Log) OffsetForTime(timestampMs int64, upTo Bound) (pos TimedOffset, found bool, err error) {
	err = l.searchTimes(upTo, func(s *timeSearch) (err error) {
		found = false
		for i := 0; err == nil && i < len(s.segs) && !found; i++ {
			pos, found, err = s.firstAt(s.segs[i], timestampMs)
		}
		return err
	})
	if err != nil {
		return TimedOffset{}, false, l.wrap("offset for time", err)
	}
	return pos, found, nil
}

// MaxTimestamp is the record with the largest timestamp, the earliest on ties;
// found is false in an empty log and where no record has a timestamp.
func (l *Log) MaxTimestamp(upTo Bound) (pos TimedOffset, found bool, err error) {
	err = l.searchTimes(upTo, func(s *timeSearch) (err error) {
		pos, found, err = s.newest()
		return err
	})
	if err != nil {
		return TimedOffset{}, false, l.wrap("max timestamp", err)
	}
	return pos, found, nil
}

// timeSearch looks for records by time within [start, bound).
type timeSearch struct {
	log          *Log
	segs         []*segment
	start, bound int64
	headers      bool // trust no index for the largest timestamp
}

// newest finds the record with the largest timestamp.
func (s *timeSearch) newest() (pos TimedOffset, found bool, err error) {
	best, at := int64(noTimestamp), int64(-1)
	var in *segment
	for _, seg := range s.segs {
		ts, offset, err := s.largest(seg)
		if err != nil {
			return pos, false, err
		}
		if ts > best {
			best, at, in = ts, offset, seg
		}
	}
	if in == nil {
		return pos, false, nil
	}
	err = s.batches(in, at, func(h *BatchHeader, raw []byte) bool {
		pos, found = s.recordIn(h, raw, best)
		return false
	})
	if err == nil && !found && !s.headers {
		s.headers = true // a Kafka's compaction counts headers without records too
		return s.newest()
	}
	return pos, found, err
}

// searchTimes runs search on the log as it is now, and again if a segment that it needs was deleted meanwhile.
func (l *Log) searchTimes(upTo Bound, search func(*timeSearch) error) error {
	for {
		l.pos.Lock()
		s := &timeSearch{log: l, segs: segmentsFrom(l.segments, l.start), start: l.start, bound: l.boundLocked(upTo)}
		err := l.usableLocked()
		l.pos.Unlock()
		if err != nil {
			return err
		}
		if err = search(s); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if l.usable() == nil && !l.stale(s.segs) {
			return err // no: a file is missing
		}
	}
}

// firstAt finds the first record at or after ts in one segment.
func (s *timeSearch) firstAt(seg *segment, ts int64) (pos TimedOffset, found bool, err error) {
	seg.mu.RLock()
	newest := seg.maxTimestamp
	seg.mu.RUnlock()
	if newest < ts || seg.base >= s.bound {
		return TimedOffset{}, false, nil
	}
	_, times, err := s.log.store.indexes.get(seg)
	if err != nil {
		return TimedOffset{}, false, storageError(err)
	}
	from := s.start
	if rel, ok := times.before(ts); ok {
		from = max(from, seg.base+rel+1)
	}
	err = s.batches(seg, from, func(h *BatchHeader, raw []byte) bool {
		if h.MaxTimestamp < ts {
			return true
		}
		pos, found = s.recordIn(h, raw, ts)
		return !found
	})
	return pos, found, err
}

// largest is the largest timestamp in a segment, and the last offset of the
// first batch that has it.
func (s *timeSearch) largest(seg *segment) (ts, offset int64, err error) {
	seg.mu.RLock()
	ts, offset = seg.maxTimestamp, seg.maxOffset
	whole := seg.base >= s.start && seg.end <= s.bound
	seg.mu.RUnlock()
	if !s.headers && (whole || ts == noTimestamp) {
		return ts, offset, nil
	}
	ts = noTimestamp
	err = s.batches(seg, s.start, func(h *BatchHeader, _ []byte) bool {
		if h.MaxTimestamp > ts && h.Records > 0 {
			ts, offset = h.MaxTimestamp, h.LastOffset()
		}
		return true
	})
	return ts, offset, err
}

// batches gives do the batches from the one that ends at or above from, up to
// the bound, until it answers false.
func (s *timeSearch) batches(seg *segment, from int64, do func(h *BatchHeader, raw []byte) bool) error {
	index, _, err := s.log.store.indexes.get(seg)
	if err != nil {
		return storageError(err)
	}
	f, err := s.log.store.handles.acquire(&seg.file)
	if err != nil {
		return storageError(err)
	}
	defer s.log.store.handles.release(&seg.file)
	size, _ := seg.shape()
	sc := newScan(f, size)
	defer sc.close()
	pos := index.atOffset(from - seg.base)
	for {
		at, h, found, err := sc.find(pos, from)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return storageError(err)
		}
		if err != nil || !found || h.LastOffset() >= s.bound {
			return err
		}
		raw, err := sc.bytes(at, h.Size())
		if err != nil {
			return storageError(err)
		}
		if !do(&h, raw) {
			return nil
		}
		pos = at + int64(h.Size())
	}
}

// errStop ends a walk early; nobody sees it.
var errStop = errors.New("found")

// recordIn finds the first record of a batch at or after ts and the log start.
// If the records cannot be inflated the batch stands for them.
func (s *timeSearch) recordIn(h *BatchHeader, raw []byte, ts int64) (pos TimedOffset, found bool) {
	first := max(h.BaseOffset, s.start)
	if h.Records == 0 {
		return TimedOffset{}, false // compaction left its header
	}
	appendTime := h.Attributes&attrLogAppendTime != 0
	if appendTime && int64(h.Records) > int64(h.LastOffsetDelta) {
		return TimedOffset{Offset: first, TimestampMs: h.MaxTimestamp, Term: h.Term}, h.MaxTimestamp >= ts
	}
	err := inflate(h.Codec(), raw[batchOverhead:], inflateLimit, func(plain []byte) error {
		it := recordIter{buf: plain, left: h.Records}
		for it.next() {
			at, offset := h.BaseTimestamp+it.timestampDelta, h.BaseOffset+int64(it.offsetDelta)
			if appendTime {
				at = h.MaxTimestamp
			}
			if at >= ts && offset >= first {
				pos, found = TimedOffset{Offset: offset, TimestampMs: at, Term: h.Term}, true
				return errStop
			}
		}
		return nil
	})
	if err != nil && !found {
		return TimedOffset{Offset: first, TimestampMs: h.MaxTimestamp, Term: h.Term}, true
	}
	return pos, found
}
