package segstore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Read returns whole batches from the one that contains from, up to the bound,
// at most max bytes but at least one batch if minOne. An empty result at the
// bound is no error. ErrOffsetOutOfRange below Start or above End.
func (l *Log) Read(from int64, max int, upTo Bound, minOne bool) (Records, error) {
	for {
		w := window{log: l, from: from, room: max, minOne: minOne}
		if max > smallPiece && l.store.handles.crowded() {
			w.room = smallPiece // it will be read into memory
		}
		if err := w.open(upTo); err != nil {
			return nil, l.wrap("read", err)
		}
		if w.from >= w.bound {
			return noRecords{}, nil
		}
		r := newRecords(l)
		err := w.collect(r)
		if err == nil {
			return r, nil
		}
		r.Release()
		if errors.Is(err, fs.ErrNotExist) && w.moved() {
			continue // deleted or replaced meanwhile: see what is there now
		}
		if cause := l.usable(); cause != nil { // the log itself was deleted
			return nil, l.wrap("read", cause)
		}
		if !errors.Is(err, ErrCorrupt) {
			l.store.faults.note("read", l, err)
			err = fmt.Errorf("%w: %w", ErrStorage, err)
		}
		return nil, l.wrap("read", err)
	}
}

// open notes where the log is now.
func (w *window) open(upTo Bound) error {
	l := w.log
	l.pos.Lock()
	defer l.pos.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if w.from < l.start || w.from > l.end {
		return fmt.Errorf("%w: %d is not within [%d, %d]", ErrOffsetOutOfRange, w.from, l.start, l.end)
	}
	w.bound = l.boundLocked(upTo)
	w.segs = segmentsFrom(l.segments, w.from)
	w.active = l.segments[len(l.segments)-1]
	w.fromPos, w.fromKnown = l.recent.find(w.from)
	w.boundPos, w.boundKnown = l.recent.find(w.bound)
	return nil
}

// moved says whether the log has other segments now than when the window was opened.
func (w *window) moved() bool {
	return w.log.stale(w.segs)
}

// window is one read in progress.
type window struct {
	log    *Log
	segs   []*segment // from the one that holds from
	active *segment
	from   int64
	bound  int64 // batches that end above it stay out
	room   int
	minOne bool

	// places in the active segment, where known
	fromPos, boundPos     int64
	fromKnown, boundKnown bool
}

// collect takes what lies in the window. Damage ends it behind whole batches:
// the error is for who comes to that place, not for what lies before it.
func (w *window) collect(r *records) error {
	for i, s := range w.segs {
		if s.base >= w.bound || w.from >= w.bound {
			return nil
		}
		begin, limit, err := w.edges(s, i == 0)
		if err != nil {
			return damageBehind(r, err)
		}
		if begin >= limit {
			continue // a gap at the end of a segment
		}
		n := limit - begin
		if n > int64(w.room) {
			if n, err = w.fit(s, begin, limit, w.minOne && r.n == 0); err != nil {
				return damageBehind(r, err)
			}
		}
		if n > 0 {
			if err := r.add(s, begin, n); err != nil {
				return err
			}
		}
		w.room -= int(n)
		if n < limit-begin || w.room <= 0 {
			return nil
		}
	}
	return nil
}

// damageBehind is nil for damage that was met behind what was collected.
func damageBehind(r *records, err error) error {
	if r.n > 0 && errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

// edges gives the part of a segment that lies within the window.
func (w *window) edges(s *segment, first bool) (begin, limit int64, err error) {
	size, end := s.shape()
	switch {
	case w.bound >= end:
		limit = size
	case s == w.active && w.boundKnown:
		limit = w.boundPos
	default:
		if limit, err = w.log.locate(s, w.bound, size); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case !first || w.from <= s.base:
	case w.from >= end:
		begin = limit
	case s == w.active && w.fromKnown:
		begin = w.fromPos
	default:
		begin, err = w.log.locate(s, w.from, size)
	}
	return begin, limit, err
}

// locate is the position of the first batch of a segment that ends at or above
// offset; size if there is none.
func (l *Log) locate(s *segment, offset, size int64) (int64, error) {
	index, _, err := l.store.indexes.get(s)
	if err != nil {
		return 0, err
	}
	f, err := l.store.handles.acquire(&s.file)
	if err != nil {
		return 0, err
	}
	defer l.store.handles.release(&s.file)
	sc := newScan(f, size)
	defer sc.close()
	pos, _, _, err := sc.find(index.atOffset(offset-s.base), offset)
	return pos, err
}

// fit is how many bytes of whole batches from begin fit into the room, and lie
// before any damage.
func (w *window) fit(s *segment, begin, limit int64, minOne bool) (int64, error) {
	index, _, err := w.log.store.indexes.get(s)
	if err != nil {
		return 0, err
	}
	f, err := w.log.store.handles.acquire(&s.file)
	if err != nil {
		return 0, err
	}
	defer w.log.store.handles.release(&s.file)
	sc := newScan(f, limit)
	defer sc.close()
	pos := max(begin, index.atPosition(begin+int64(w.room)))
	for pos < limit {
		h, err := sc.header(pos)
		if pos > begin && errors.Is(err, ErrCorrupt) {
			break
		}
		if err != nil {
			return 0, err
		}
		next := pos + int64(h.Size())
		if next-begin > int64(w.room) && (pos > begin || !minOne) {
			break
		}
		pos = next
	}
	return pos - begin, nil
}

// Aborted lists aborted transactions that overlap [from, to), sorted by first
// offset; an empty list is not nil.
func (l *Log) Aborted(from, to int64) ([]AbortedTxn, error) {
	list, err := l.abortedWithin(from, to)
	if err != nil {
		return nil, l.wrap("aborted transactions", err)
	}
	if seededbug.On(seededbug.DropAbortedRange) && len(list) > 0 {
		list = list[1:]
	}
	out := make([]AbortedTxn, len(list))
	for i, t := range list {
		out[i] = AbortedTxn{ProducerID: t.producerID, FirstOffset: t.first}
	}
	slices.SortFunc(out, func(a, b AbortedTxn) int {
		return cmp.Or(cmp.Compare(a.FirstOffset, b.FirstOffset), cmp.Compare(a.ProducerID, b.ProducerID))
	})
	return out, nil
}

// abortedWithin collects the entries of the segments from the one that holds
// from on, again if one of them was deleted or replaced meanwhile.
func (l *Log) abortedWithin(from, to int64) ([]abortedTxn, error) {
	for {
		l.pos.Lock()
		err := l.usableLocked()
		segs := segmentsFrom(l.segments, from)
		l.pos.Unlock()
		if err != nil {
			return nil, err
		}
		out, err := abortedOf(l.store.fs, segs, from, to)
		if errors.Is(err, fs.ErrNotExist) && l.stale(segs) {
			continue
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrStorage, err)
		}
		return out, err
	}
}

func abortedOf(fsys vfs.FS, segs []*segment, from, to int64) (out []abortedTxn, err error) {
	for _, s := range segs {
		list, err := s.abortedIn(fsys)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if t.last >= from && t.first < to {
				out = append(out, t)
			}
			if t.lastStable >= to {
				return out, nil
			}
		}
	}
	return out, nil
}
