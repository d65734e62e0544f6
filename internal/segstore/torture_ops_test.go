package segstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// op is one step of the script.
func (w *tortureWorld) op(m *modelLog) error {
	if m.dead {
		return nil
	}
	switch n := w.rng.IntN(100); {
	case n < 55:
		return w.append(m)
	case n < 63:
		return w.marker(m)
	case n < 73:
		return w.settle(m)
	case n < 78:
		return w.newTerm(m)
	case n < 83:
		return w.checkpoint()
	case n < 88:
		return w.retain(m)
	case n < 91:
		return w.deleteTo(m)
	case n < 94:
		return w.truncate(m)
	case n < 95:
		return w.restart(m)
	case n < 97:
		return w.compact()
	case n < 98:
		w.store.emptyTrash(time.Now().Add(time.Hour))
		return nil
	default:
		return w.stopAndStart()
	}
}

// marker ends a transaction; of a plain producer too, which is a marker of nothing.
func (w *tortureWorld) marker(m *modelLog) error {
	if m.keyed != nil {
		return w.append(m)
	}
	l := w.log(m)
	base := l.Offsets().End
	_, err := l.AppendMarker(int64(2+w.rng.IntN(2)), 0, w.rng.IntN(2) == 0, 1, l.LastTerm())
	switch {
	case errors.Is(err, ErrFull):
		return w.fate(m, err)
	case err != nil:
		m.now().batches = append(m.now().batches, storedBatch{base, base + 1, nil})
		return w.fate(m, err)
	}
	r, err := l.Read(base, 1, BoundEnd, true)
	if err != nil {
		m.now().batches = append(m.now().batches, storedBatch{base, base + 1, nil})
		return w.fate(m, err)
	}
	defer r.Release()
	raw, err := r.AppendTo(nil)
	if err != nil {
		raw = nil
	}
	return w.note(m, base, base+1, raw)
}

// settle waits until all of a log is durable, and lets consumers see it.
func (w *tortureWorld) settle(m *modelLog) error {
	l := w.log(m)
	end := l.Offsets().End
	w.acknowledge(m, l, end, 0)
	l.FlushTo(end)
	w.waiting.Wait()
	l.SetHigh(l.Offsets().Durable)
	return w.fate(m, l.Err())
}

func (w *tortureWorld) newTerm(m *modelLog) error {
	w.term++
	_, err := w.log(m).BeginTerm(w.term)
	return w.fate(m, err)
}

// checkpoint acknowledges all that is durable afterwards.
func (w *tortureWorld) checkpoint() error {
	err := w.store.checkpoint(context.Background())
	if err != nil && w.faulty.Hits() == 0 {
		return err
	}
	for _, m := range w.models {
		o := w.log(m).Offsets()
		if err := w.fate(m, w.log(m).Err()); err != nil {
			return err
		}
		if !m.dead {
			w.mu.Lock()
			m.acked = max(m.acked, o.Durable)
			w.mu.Unlock()
		}
	}
	return nil
}

// retain deletes old segments. Until it has returned the start may be the old one or any below the high watermark.
func (w *tortureWorld) retain(m *modelLog) error {
	l := w.log(m)
	l.SetHigh(l.Offsets().Durable)
	w.mu.Lock()
	m.startHigh = max(m.startHigh, l.Offsets().High)
	w.mu.Unlock()
	if err := l.retain(time.Now()); err != nil {
		return w.fate(m, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.startLow = l.Offsets().Start
	return nil
}

func (w *tortureWorld) deleteTo(m *modelLog) error {
	if m.keyed != nil {
		return w.compact()
	}
	l := w.log(m)
	l.SetHigh(l.Offsets().Durable)
	o := l.Offsets()
	to := o.Start + w.rng.Int64N(o.High-o.Start+1)
	w.mu.Lock()
	m.startHigh = max(m.startHigh, to)
	w.mu.Unlock()
	start, err := l.DeleteTo(to)
	if err != nil {
		return w.fate(m, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.startLow = max(m.startLow, start)
	return nil
}

// truncate cuts the log anywhere, as a follower does, and begins a term.
func (w *tortureWorld) truncate(m *modelLog) error {
	if m.keyed != nil {
		return nil
	}
	if err := w.settle(m); err != nil || m.dead {
		return err
	}
	l := w.log(m)
	o := l.Offsets()
	to := o.Start + w.rng.Int64N(o.End-o.Start+1)
	kept := m.now().upTo(to)
	if kept.end() < o.Start { // it begins inside a batch, which is cut
		kept = &timeline{base: o.Start}
	}
	w.mu.Lock()
	m.acked = min(m.acked, kept.end())
	w.mu.Unlock()
	err := l.TruncateTo(to)
	w.mu.Lock()
	m.timelines = append(m.timelines, kept)
	w.mu.Unlock()
	if err != nil {
		if fateErr := w.fate(m, err); fateErr != nil || m.dead {
			return fateErr
		}
		m.dead = true // refused before anything was cut: which one it is does not matter for the rest of this life
		return nil
	}
	return w.rebuilt(m)
}

// restart empties the log, which then begins further on.
func (w *tortureWorld) restart(m *modelLog) error {
	if m.keyed != nil {
		return nil
	}
	if err := w.settle(m); err != nil || m.dead {
		return err
	}
	l := w.log(m)
	to := l.Offsets().End + w.rng.Int64N(100)
	w.mu.Lock()
	m.acked, m.startHigh = -1, to
	w.mu.Unlock()
	err := l.RestartAt(to)
	w.mu.Lock()
	m.timelines = append(m.timelines, &timeline{base: to})
	w.mu.Unlock()
	if err != nil {
		m.dead = true
		return w.fate(m, err)
	}
	w.mu.Lock()
	m.startLow = to
	w.mu.Unlock()
	return w.rebuilt(m)
}

// rebuilt compares the live log with the model after a truncation or a restart.
func (w *tortureWorld) rebuilt(m *modelLog) error {
	l := w.log(m)
	if o := l.Offsets(); o.End != m.now().end() || o.Durable != o.End {
		return fmt.Errorf("%w: offsets %+v, the model ends at %d", errWrong, o, m.now().end())
	}
	w.mu.Lock()
	m.acked, m.first = l.Offsets().End, len(m.timelines)-1
	w.mu.Unlock()
	return w.newTerm(m)
}

// compact runs the cleaner until nothing is dirty.
func (w *tortureWorld) compact() error {
	m := w.models[len(w.models)-1]
	l := w.log(m)
	l.SetHigh(l.Offsets().Durable)
	for w.store.cleaner.once(context.Background()) {
	}
	if len(w.store.cleaner.rest) > 0 && w.faulty.Hits() == 0 {
		return fmt.Errorf("%w: the cleaner gave up", errWrong)
	}
	return nil
}

// stopAndStart is a clean stop and a start: nothing may be lost, whatever the durability.
func (w *tortureWorld) stopAndStart() error {
	if w.faulty.Hits() > 0 {
		return nil
	}
	w.waiting.Wait()
	closed := w.store.Close(true, 1)
	w.waiting.Wait()
	s, err := Open(w.options(w.store.fs))
	if err != nil {
		return w.lifeOver(err)
	}
	w.store = s
	if err := s.Recover(context.Background(), w.config, nil); err != nil {
		return w.lifeOver(err)
	}
	w.term++
	for _, m := range w.models {
		l := w.log(m)
		if l == nil {
			return w.lifeOver(fmt.Errorf("log %d: %w: it is gone", m.id, errLost))
		}
		if o := l.Offsets(); closed == nil && w.faulty.Hits() == 0 && o.End != m.now().end() {
			return fmt.Errorf("log %d: %w: it ends at %d after a clean stop, it was %d", m.id, errLost, o.End, m.now().end())
		}
		if _, err := l.BeginTerm(w.term); err != nil {
			if err := w.lifeOver(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// lifeOver lets all logs alone until the next power cut, if a fault explains the error.
func (w *tortureWorld) lifeOver(err error) error {
	if w.faulty.Hits() == 0 {
		return err
	}
	for _, m := range w.models {
		m.dead = true
	}
	return nil
}
