package segstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Log is one partition's log: segments of record batches, their indexes, and
// what follows from the batches (producer state, terms). One writer at a time
// is ensured inside; all calls may overlap.
//
// Lock order: tidyMu, flushMu, mu, pos, then a segment's mu or the handle cache.
// Writes to the log file happen under mu, nothing else slow does except roll
// and truncation; pos is never held across I/O. wake functions and OnProgress
// run without locks.
type Log struct {
	store     *Store
	topic     string
	id        TopicID
	partition int32
	dir       string
	cfg       atomic.Pointer[LogConfig]

	flushMu sync.Mutex // one flush or truncation at a time
	tidyMu  sync.Mutex // who deletes, truncates or saves files around the active segment

	mu     sync.Mutex // the writer's: order of appends, the active segment
	writer vfs.File   // of the active segment, nil when its handle is given back
	idle   bool       // no append since the last look of the housekeeper
	saved  savedEnd   // what the files of the last clean stop describe
	swaps  []*swap    // pending, guarded by tidyMu
	// retiring are segments from the front that are gone from memory, while their files have their names; guarded by tidyMu
	retiring []*segment

	spare  *segment // the next segment's file, made in advance, or nil
	tendAt int64    // size of the active segment at which a tender is to come

	flushTurn, tendTurn turn
	gathered            chan struct{} // holds a token when the appends that a flush waits for are there; nil before the first such wait
	gatherTimer         *time.Timer   // of the same wait

	asked written // to be written by the kernel; the tender's own

	pos        sync.Mutex // guards the fields below; those marked * change only under mu too
	start      int64
	high       int64
	stable     int64
	end        int64 // *
	durable    int64
	err        error
	closed     bool
	closing    bool       // the store is being closed: reads and flushes only
	namesDirty bool       // a new segment's name is not durable yet
	pinned     []*segment // sealed, kept open until the next flush: a descriptor opened later may not see an earlier write error
	terms      terms      // *
	termsDirty bool       // terms are not in the checkpoint file
	producers  producers  // *
	recent     recentEnds // *
	waiting    [4]waiters // by Bound
	gather     gather
	pending    pending
	progress   func()      // see OnProgress
	segments   []*segment  // * never empty while open, sorted, replaced as a whole
	rebuilds   int         // how often the log was read anew after truncation
	timedFlush atomic.Bool // a flush.ms deadline is set
	writing    atomic.Bool // is in the queue of writers
}

// savedEnd is an active segment and the end of the log in it.
type savedEnd struct{ base, end int64 }

// Topic is the topic's name.
func (l *Log) Topic() string { return l.topic }

// ID is the topic's id.
func (l *Log) ID() TopicID { return l.id }

// Partition is the partition's number.
func (l *Log) Partition() int32 { return l.partition }

func (l *Log) name() partitionName { return partitionName{l.topic, l.partition} }

// Err is why the log is failed, or nil. A failed log stays failed until the
// store is opened again.
func (l *Log) Err() error {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.err
}

// SetConfig replaces the topic's properties; it holds for later appends.
func (l *Log) SetConfig(cfg LogConfig) { l.cfg.Store(&cfg) }

// usableLocked is ErrClosed or the reason of failure; the caller holds pos.
func (l *Log) usableLocked() error {
	if l.closed {
		return ErrClosed
	}
	return l.err
}

func (l *Log) usable() error {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.usableLocked()
}

// writable is usable for who adds to the log.
func (l *Log) writable() error {
	l.pos.Lock()
	defer l.pos.Unlock()
	if l.closing {
		return ErrClosed
	}
	return l.usableLocked()
}

// fail makes the log failed for good: what the disk holds can no longer be
// known, so the first error stands until the log is opened and checked again.
// It returns the error that later calls get; tell reports it.
func (l *Log) fail(err error) error {
	l.pos.Lock()
	defer l.pos.Unlock()
	if l.err != nil || l.closed {
		return l.usableLocked()
	}
	if errors.Is(err, ErrStorage) {
		l.err = err
	} else {
		l.err = fmt.Errorf("%w: %w", ErrStorage, err)
	}
	l.pending.failed = l.err
	l.noteLocked()
	return l.err
}

func (l *Log) wrap(op string, err error) error {
	return fmt.Errorf("%s %s-%d: %w", op, l.topic, l.partition, err)
}

// Offsets of the log. After recovery High is Start until SetHigh is called.
func (l *Log) Offsets() Offsets {
	l.pos.Lock()
	defer l.pos.Unlock()
	return Offsets{Start: l.start, Stable: l.stable, High: l.high, End: l.end, Durable: l.durable}
}

// SetHigh moves the high watermark forward, at most to the end; a lower value
// is ignored. The partition calls it, never the log.
func (l *Log) SetHigh(offset int64) {
	l.pos.Lock()
	offset = min(offset, l.end)
	if offset <= l.high || l.closed {
		l.pos.Unlock()
		return
	}
	l.high = offset
	l.stable = max(l.start, l.producers.stable(offset))
	l.noteLocked()
	l.pos.Unlock()
	l.tell()
}

// OnProgress sets the one function called, outside all locks, after End or
// Durable moved. Set before service.
func (l *Log) OnProgress(f func()) {
	l.pos.Lock()
	l.progress = f
	l.pos.Unlock()
}

// BeginTerm opens a leader term that begins at the current end. ErrTermStale
// if term is not above the last one. It is durable with the term's first batch.
func (l *Log) BeginTerm(term int32) (start int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pos.Lock()
	defer l.pos.Unlock()
	if err := l.usableLocked(); err != nil {
		return 0, l.wrap("begin term", err)
	}
	if term <= l.terms.last() {
		return 0, l.wrap("begin term", fmt.Errorf("%w: %d is not above %d", ErrTermStale, term, l.terms.last()))
	}
	l.terms = l.terms.assign(term, l.end)
	return l.end, nil
}

// LastTerm is the newest term known, -1 none.
func (l *Log) LastTerm() int32 {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.terms.last()
}

// EndOfTerm is the largest term <= term and the offset where it ends
// (KIP-101); -1, -1 if none.
func (l *Log) EndOfTerm(term int32) (found int32, end int64) {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.terms.endOf(term, l.end)
}

// TermAt is the term of the batch at offset, or the last term at End; -1 if unknown.
func (l *Log) TermAt(offset int64) int32 {
	l.pos.Lock()
	defer l.pos.Unlock()
	if offset >= l.end {
		return l.terms.last()
	}
	return l.terms.at(offset)
}

// Size is the bytes of all segments.
func (l *Log) Size() int64 {
	var sum int64
	for _, s := range l.list() {
		size, _ := s.shape()
		sum += size
	}
	return sum
}

// Segments is their number.
func (l *Log) Segments() int { return len(l.list()) }

func (l *Log) list() []*segment {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.segments
}

// Producers lists the producer state for DescribeProducers, in no order.
func (l *Log) Producers() []ProducerState {
	l.pos.Lock()
	defer l.pos.Unlock()
	out := make([]ProducerState, 0, len(l.producers.byID))
	for id, p := range l.producers.byID {
		out = append(out, ProducerState{ProducerID: id, Epoch: p.epoch, LastSequence: p.lastSequence(),
			LastTimestampMs: p.lastTimestampMs, CoordinatorTerm: p.coordinatorTerm, TxnFirstOffset: p.txnFirst})
	}
	return out
}

// recentEnds remembers where the newest batches of the active segment end, so
// that a read up to the high watermark finds its last byte without an index.
type recentEnds struct {
	ring []batchEnd
	next int // where the next one goes
	n    int
}

type batchEnd struct{ offset, pos int64 }

const (
	recentMin = 32
	recentMax = 4096
)

// push adds a batch end; the ring grows while what it would forget is above
// keep (the high watermark).
func (r *recentEnds) push(e batchEnd, keep int64) {
	if r.n == len(r.ring) && r.n < recentMax && (r.n == 0 || r.ring[r.next].offset > keep) {
		grown := make([]batchEnd, max(recentMin, 4*len(r.ring)))
		n := copy(grown, r.ring[r.next:])
		copy(grown[n:], r.ring[:r.next])
		r.ring, r.next = grown, r.n
	}
	r.ring[r.next] = e
	r.next = (r.next + 1) % len(r.ring)
	r.n = min(r.n+1, len(r.ring))
}

func (r *recentEnds) clear() { r.next, r.n = 0, 0 }

// find is the position in the active segment where the batch before offset ends.
func (r *recentEnds) find(offset int64) (pos int64, ok bool) {
	lo, hi := 0, r.n
	for lo < hi {
		mid := (lo + hi) / 2
		switch e := r.ring[(r.next-r.n+mid+len(r.ring))%len(r.ring)]; {
		case e.offset == offset:
			return e.pos, true
		case e.offset < offset:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0, false
}
