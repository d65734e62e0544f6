package segstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// AppendLeader checks one batch against the producer window and the topic's
// properties, compresses it anew if compression.type asks for it, stamps base
// offset and term in place (both outside the CRC) and writes it. It returns when the bytes are in the page cache; durable follows
// by the shared flush. A duplicate answers the original offsets with Duplicate
// set. term must be the one of the last BeginTerm, else ErrTermStale. Faults of
// the batch are *RecordError or wrap ErrOutOfOrder, ErrProducerEpoch,
// ErrTxnState; after ErrFull and all of these no offset is used.
func (l *Log) AppendLeader(b Batch, term int32) (Appended, error) {
	cfg := l.cfg.Load()
	now := l.store.now()
	made, err := l.store.recode.prepare(&b, cfg, now.UnixMilli())
	var a Appended
	if err == nil {
		l.store.writers.admit(l)
		l.mu.Lock()
		a, err = l.leaderLocked(&b, term, cfg, now)
		l.mu.Unlock()
		l.store.recode.put(made)
	}
	if err != nil {
		l.tell()
		return Appended{}, l.wrap("append", err)
	}
	if !a.Duplicate {
		l.appended(cfg)
	}
	return a, nil
}

func (l *Log) leaderLocked(b *Batch, term int32, cfg *LogConfig, now time.Time) (Appended, error) {
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	if last := l.terms.last(); term != last {
		return Appended{}, fmt.Errorf("%w: %d, the log is in %d", ErrTermStale, term, last)
	}
	if p := l.producers.byID[b.ProducerID]; p != nil && b.ProducerID >= 0 {
		if d := p.duplicateOf(&b.BatchHeader); d != nil {
			return duplicate(d), nil
		}
		if err := p.check(&b.BatchHeader); err != nil {
			return Appended{}, err
		}
	}
	if err := l.store.space.take(len(b.Raw)); err != nil {
		return Appended{}, err
	}
	if cfg.LogAppendTime {
		b.stampTime(true, now.UnixMilli())
	}
	b.stampPlace(l.end, term)
	if err := l.writeLocked(b.Raw, &b.BatchHeader, cfg, now); err != nil {
		return Appended{}, err
	}
	a := Appended{BaseOffset: b.BaseOffset, LastOffset: b.LastOffset(), LogAppendTimeMs: noTimestamp, Records: int(b.Records)}
	if cfg.LogAppendTime {
		a.LogAppendTimeMs = b.MaxTimestamp
	}
	return a, nil
}

// duplicate answers what is remembered of a batch, its largest timestamp as the time of the append whatever the topic's
// type of timestamps (Kafka's UnifiedLog.append).
func duplicate(d *placed) Appended {
	return Appended{BaseOffset: d.firstOffset(), LastOffset: d.lastOffset, LogAppendTimeMs: d.timestampMs,
		Records: int(d.offsetDelta) + 1, Duplicate: true}
}

// AppendMarker writes a transaction marker (control batch). coordinatorTerm is
// the shard's term; one below that of the producer's last marker is
// ErrTermStale, an old producer epoch ErrProducerEpoch. A second marker is
// harmless.
func (l *Log) AppendMarker(producerID int64, producerEpoch int16, commit bool, coordinatorTerm, term int32) (Appended, error) {
	cfg := l.cfg.Load()
	now := l.store.now()
	b := buildMarker(producerID, producerEpoch, commit, coordinatorTerm, now.UnixMilli())
	l.store.writers.admit(l)
	l.mu.Lock()
	err := l.markerLocked(&b, coordinatorTerm, term, cfg, now)
	l.mu.Unlock()
	if err != nil {
		l.tell()
		return Appended{}, l.wrap("append marker", err)
	}
	l.appended(cfg)
	return Appended{BaseOffset: b.BaseOffset, LastOffset: b.BaseOffset, LogAppendTimeMs: noTimestamp, Records: 1}, nil
}

func (l *Log) markerLocked(b *Batch, coordinatorTerm, term int32, cfg *LogConfig, now time.Time) error {
	if err := l.writable(); err != nil {
		return err
	}
	if last := l.terms.last(); term != last {
		return fmt.Errorf("%w: %d, the log is in %d", ErrTermStale, term, last)
	}
	if p := l.producers.byID[b.ProducerID]; p != nil {
		if b.ProducerEpoch < p.epoch {
			return fmt.Errorf("%w: producer id %d has epoch %d, marker has %d", ErrProducerEpoch, b.ProducerID, p.epoch, b.ProducerEpoch)
		}
		if coordinatorTerm < p.coordinatorTerm {
			return fmt.Errorf("%w: coordinator term %d of a marker for producer id %d, %d was seen",
				ErrTermStale, coordinatorTerm, b.ProducerID, p.coordinatorTerm)
		}
	}
	b.stampPlace(l.end, term)
	return l.writeLocked(b.Raw, &b.BatchHeader, cfg, now)
}

// AppendFollower writes batches verbatim: offsets and terms are in them. Each
// must be whole (else ErrCorrupt) and begin at or above the end (else
// ErrNotContiguous; compaction leaves gaps). Batches before the bad one stay.
func (l *Log) AppendFollower(batches []byte) (end int64, err error) {
	cfg := l.cfg.Load()
	now := l.store.now()
	l.store.writers.admit(l)
	l.mu.Lock()
	err = l.writable()
	for err == nil && len(batches) > 0 {
		var n int
		if n, err = l.followerLocked(batches, cfg, now); err == nil {
			batches = batches[n:]
		}
	}
	end = l.end
	l.mu.Unlock()
	l.appended(cfg)
	if err != nil {
		return end, l.wrap("append", err)
	}
	return end, nil
}

func (l *Log) followerLocked(batches []byte, cfg *LogConfig, now time.Time) (n int, err error) {
	if len(batches) < batchOverhead {
		return 0, fmt.Errorf("%w: %d bytes are no batch", ErrCorrupt, len(batches))
	}
	h := decodeHeader(batches)
	n = h.Size()
	if h.Magic != 2 || h.Length < batchOverhead-lengthOverhead || n > len(batches) || h.LastOffsetDelta < 0 {
		return 0, fmt.Errorf("%w: magic %d, length %d, %d bytes left", ErrCorrupt, h.Magic, h.Length, len(batches))
	}
	if !crcGood(batches[:n]) {
		return 0, fmt.Errorf("%w: CRC at offset %d", ErrCorrupt, h.BaseOffset)
	}
	if h.BaseOffset < l.end || h.Term < l.terms.last() {
		return 0, fmt.Errorf("%w: offset %d term %d after %d term %d", ErrNotContiguous, h.BaseOffset, h.Term, l.end, l.terms.last())
	}
	if err := l.store.space.take(n); err != nil {
		return 0, err
	}
	return n, l.writeLocked(batches[:n], &h, cfg, now)
}

// writeLocked writes one stamped batch to the active segment, after a roll if
// it is full, and publishes the new end.
func (l *Log) writeLocked(raw []byte, h *BatchHeader, cfg *LogConfig, now time.Time) error {
	seg := l.segments[len(l.segments)-1]
	if seg.full(h, int64(len(raw)), h.LastOffset(), cfg, now) {
		if err := l.rollLocked(l.end, cfg, now); err != nil {
			return l.ioError("roll", err)
		}
		seg = l.segments[len(l.segments)-1]
	}
	if l.writer == nil {
		f, err := l.store.handles.acquire(&seg.file)
		if err != nil {
			return l.ioError("open", err)
		}
		l.writer = f
	}
	l.store.writers.join(l)
	l.idle = false
	if _, err := l.writer.WriteAt(raw, seg.size); err != nil && !(seededbug.On(seededbug.SwallowENOSPC) && isFull(err)) {
		if terr := l.writer.Truncate(seg.size); terr != nil {
			return l.fail(errors.Join(err, terr))
		}
		return l.ioError("write", err)
	}
	l.publishLocked(seg, raw, h, cfg, now)
	if seg.size >= l.tendAt {
		l.tendLocked(seg, cfg)
	}
	return nil
}

// ioError sorts errors of the writer: a full disk and a lack of descriptors
// pass, everything else is final.
func (l *Log) ioError(op string, err error) error {
	l.store.faults.note(op, l, err)
	switch {
	case isFull(err):
		l.store.space.refuse()
		return fmt.Errorf("%w: %s: %w", ErrFull, op, err)
	case isShort(err):
		return fmt.Errorf("%w: %s: %w", ErrStorage, op, err)
	}
	return l.fail(err)
}

// publishLocked takes a written batch into memory and moves the end.
func (l *Log) publishLocked(seg *segment, raw []byte, h *BatchHeader, cfg *LogConfig, now time.Time) {
	seg.add(h, int64(len(raw)), cfg.IndexIntervalBytes, now)
	l.pos.Lock()
	if aborted, ok := l.producers.apply(h, raw[batchOverhead:], now.UnixMilli()); ok {
		seg.addAborted(aborted)
	}
	if h.Term > l.terms.last() {
		l.terms = l.terms.assign(h.Term, h.BaseOffset)
	}
	if n := len(l.terms); n > 0 && l.terms[n-1].start == h.BaseOffset {
		l.termsDirty = true // the term's first batch
	}
	l.end = h.LastOffset() + 1
	l.recent.push(batchEnd{l.end, seg.size}, l.high)
	if l.gather.appended() {
		select {
		case l.gathered <- struct{}{}:
		default: // the wait has ended
		}
	}
	l.pending.moved = true
	l.noteLocked()
	l.pos.Unlock()
}

// appended tells the flusher and the partition that the end moved.
func (l *Log) appended(cfg *LogConfig) {
	switch {
	case l.store.durability == Strict:
		l.store.flusher.mark(l)
	case cfg.FlushMessages < 1<<63-1 && l.unflushed() >= cfg.FlushMessages:
		l.store.flusher.mark(l)
	case cfg.FlushAge < 1<<63-1 && l.timedFlush.CompareAndSwap(false, true):
		l.store.flusher.markAfter(l, cfg.FlushAge)
	}
	l.tell()
}

func (l *Log) unflushed() int64 {
	l.pos.Lock()
	defer l.pos.Unlock()
	return l.end - l.durable
}
