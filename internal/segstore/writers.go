package segstore

import "sync"

// writers are the logs whose active segment is open to append to, the one
// opened longest ago first. Such a file is not closed like a reader's: until it
// is synced its descriptor is the one that is sure to hear of a write error. So
// when there are too many, the first ones are flushed and give theirs back, and
// whoever wants to open one more waits for that.
type writers struct {
	limit int

	turn sync.Mutex // held while room is made: who waits for it finds room

	mu    sync.Mutex // guards queue
	queue []*Log     // their writing flag is set; some may have given the file back by other ways
}

// join notes that a log has its active segment open. The caller holds the log's mu.
func (w *writers) join(l *Log) {
	if l.writing.Load() || l.writing.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, l)
}

// admit waits until l may open its active segment, if it has not. The caller
// holds none of any log's locks.
func (w *writers) admit(l *Log) {
	if l.writing.Load() || len(w.oldest(false)) == 0 {
		return
	}
	w.turn.Lock()
	defer w.turn.Unlock()
	// A failed flush fails its own log and no other.
	oldest := w.oldest(true)
	_ = inParallel(len(oldest), flushParallel, func(i int) error {
		l := oldest[i]
		err := l.flush()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.writer == nil {
			return err
		}
		if err == nil && l.unflushed() > 0 {
			w.join(l) // appended to meanwhile
			return nil
		}
		l.layDown()
		return err
	})
}

// oldest is an eighth of the queue if it is full, else nothing; take removes it.
func (w *writers) oldest(take bool) []*Log {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) < w.limit {
		return nil
	}
	n := max(1, w.limit/8)
	first := w.queue[:n:n]
	if take {
		w.queue = append([]*Log(nil), w.queue[n:]...)
		for _, l := range first {
			l.writing.Store(false)
		}
	}
	return first
}

// layDown gives the active segment's file back. The caller holds mu.
func (l *Log) layDown() {
	l.store.handles.release(&l.segments[len(l.segments)-1].file)
	l.writer = nil
}
