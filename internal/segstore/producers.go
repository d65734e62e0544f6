package segstore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// windowSize is how many of a producer's last batches are recognised as
// duplicates (Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN): clients have
// at most five requests in flight.
const windowSize = 5

// placed is one remembered batch of a producer.
type placed struct {
	lastSequence int32
	offsetDelta  int32
	lastOffset   int64
	timestampMs  int64
}

func (p *placed) firstSequence() int32 { return addSequence(p.lastSequence, -p.offsetDelta) }
func (p *placed) firstOffset() int64   { return p.lastOffset - int64(p.offsetDelta) }

// producer is what the log knows of one producer id (ProducerStateEntry).
type producer struct {
	epoch           int16
	n               int8 // batches in the window, oldest first
	coordinatorTerm int32
	window          [windowSize]placed
	lastTimestampMs int64 // largest timestamp of the last batch, as clients see it
	txnFirst        int64 // first offset of the open transaction, -1 none
	touchedMs       int64 // when we last heard of it, by our clock: for expiry
}

func newProducer() *producer {
	return &producer{epoch: -1, coordinatorTerm: -1, txnFirst: -1, lastTimestampMs: noTimestamp}
}

func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return noSequence
	}
	return p.window[p.n-1].lastSequence
}

func (p *producer) push(b placed) {
	if p.n == windowSize {
		copy(p.window[:], p.window[1:])
		p.n--
	}
	p.window[p.n] = b
	p.n++
}

// duplicateOf finds the remembered batch that h repeats, or nil.
func (p *producer) duplicateOf(h *BatchHeader) *placed {
	if h.ProducerEpoch != p.epoch {
		return nil
	}
	for i := range p.window[:p.n] {
		b := &p.window[i]
		if b.firstSequence() == h.BaseSequence && b.lastSequence == h.lastSequence() {
			return b
		}
	}
	return nil
}

// check decides whether a client's data batch may follow what is known of its
// producer (Kafka's ProducerAppendInfo.checkSequence): a new epoch starts at
// sequence 0, an unknown producer anywhere.
func (p *producer) check(h *BatchHeader) error {
	switch {
	case h.ProducerEpoch < p.epoch:
		return fmt.Errorf("%w: producer id %d has epoch %d, batch has %d",
			ErrProducerEpoch, h.ProducerID, p.epoch, h.ProducerEpoch)
	case p.epoch == -1:
	case h.ProducerEpoch > p.epoch:
		if h.BaseSequence != 0 {
			return fmt.Errorf("%w: producer id %d begins epoch %d with sequence %d",
				ErrOutOfOrder, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
		}
	case h.BaseSequence != addSequence(p.lastSequence(), 1):
		return fmt.Errorf("%w: producer id %d epoch %d: sequence %d after %d",
			ErrOutOfOrder, h.ProducerID, p.epoch, h.BaseSequence, p.lastSequence())
	}
	if p.txnFirst >= 0 && !h.Transactional() {
		return fmt.Errorf("%w: producer id %d has an open transaction, batch is not in it", ErrTxnState, h.ProducerID)
	}
	return nil
}

// apply takes a data batch into the state.
func (p *producer) apply(h *BatchHeader, nowMs int64) {
	if h.ProducerEpoch != p.epoch {
		p.epoch, p.n = h.ProducerEpoch, 0
	}
	p.push(placed{lastSequence: h.lastSequence(), offsetDelta: h.LastOffsetDelta,
		lastOffset: h.LastOffset(), timestampMs: h.MaxTimestamp})
	p.lastTimestampMs, p.touchedMs = h.MaxTimestamp, nowMs
	if h.Transactional() && p.txnFirst < 0 {
		p.txnFirst = h.BaseOffset
	}
}

// applyMarker takes a transaction marker into the state.
func (p *producer) applyMarker(h *BatchHeader, m marker, nowMs int64) {
	if h.ProducerEpoch != p.epoch {
		p.epoch, p.n = h.ProducerEpoch, 0
	}
	p.coordinatorTerm, p.txnFirst = m.coordinatorTerm, -1
	p.lastTimestampMs, p.touchedMs = h.MaxTimestamp, nowMs
}

// txnSpan is a transaction that still bounds the last stable offset: open
// (marker -1), or ended with a marker that high has not passed.
type txnSpan struct{ producerID, first, marker int64 }

// abortedTxn is an entry of .txnindex (Kafka's AbortedTxn).
type abortedTxn struct {
	producerID, first, last int64 // last is the marker's offset
	lastStable              int64 // last stable offset once this marker is passed
}

// producers is the producer state of one log: what its batches up to some
// offset amount to. It can be rebuilt from a snapshot and the log.
type producers struct {
	byID map[int64]*producer
	txns []txnSpan // by first offset
}

func newProducers() producers { return producers{byID: map[int64]*producer{}} }

func (s *producers) get(id int64) *producer {
	p, ok := s.byID[id]
	if !ok {
		p = newProducer()
		s.byID[id] = p
	}
	return p
}

// apply takes a batch of the log into the state. records are the bytes behind
// the header, needed for control batches only. For an abort of an open
// transaction it gives the entry for the aborted list.
func (s *producers) apply(h *BatchHeader, records []byte, nowMs int64) (aborted abortedTxn, isAbort bool) {
	if h.ProducerID < 0 {
		return abortedTxn{}, false
	}
	p := s.get(h.ProducerID)
	if !h.Control() {
		if h.Transactional() && p.txnFirst < 0 {
			s.txns = append(s.txns, txnSpan{producerID: h.ProducerID, first: h.BaseOffset, marker: -1})
		}
		p.apply(h, nowMs)
		return abortedTxn{}, false
	}
	m, ok := parseMarker(records)
	if !ok || (m.kind != markerAbort && m.kind != markerCommit) {
		return abortedTxn{}, false // a control record of another kind says nothing about a producer
	}
	first := p.txnFirst
	p.applyMarker(h, m, nowMs)
	if first < 0 {
		return abortedTxn{}, false
	}
	s.end(first, h.BaseOffset)
	if m.kind == markerCommit {
		return abortedTxn{}, false
	}
	return abortedTxn{producerID: h.ProducerID, first: first, last: h.BaseOffset,
		lastStable: s.firstOpen(h.BaseOffset + 1)}, true
}

func (s *producers) end(first, marker int64) {
	i, ok := slices.BinarySearchFunc(s.txns, first, func(t txnSpan, first int64) int { return cmp.Compare(t.first, first) })
	if ok {
		s.txns[i].marker = marker
	}
}

// firstOpen is the first offset of the oldest open transaction, or otherwise.
func (s *producers) firstOpen(otherwise int64) int64 {
	for _, t := range s.txns {
		if t.marker < 0 {
			return t.first
		}
	}
	return otherwise
}

// stable is the last stable offset for a high watermark; ended transactions
// whose marker lies below high are forgotten.
func (s *producers) stable(high int64) int64 {
	s.txns = slices.DeleteFunc(s.txns, func(t txnSpan) bool { return t.marker >= 0 && t.marker < high })
	if len(s.txns) > 0 {
		if seededbug.On(seededbug.LSOOffByOne) {
			return min(high, s.txns[0].first+1)
		}
		return min(high, s.txns[0].first)
	}
	return high
}

// expire forgets producers without an open transaction not heard of after beforeMs.
func (s *producers) expire(beforeMs int64) {
	for id, p := range s.byID {
		if p.txnFirst < 0 && p.touchedMs <= beforeMs {
			delete(s.byID, id)
		}
	}
}
