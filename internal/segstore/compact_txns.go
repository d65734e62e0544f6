package segstore

import (
	"cmp"
	"slices"
)

// cleanedTxns follows transactions through a log that is read in order
// (Kafka's CleanedTransactionMetadata). It says which batches were aborted and
// which markers have no batch left. Removal takes three rounds: the data of an
// aborted transaction goes; then its entry in .txnindex and the marker gets a
// time to live; then the marker. So a reader whose records and aborted list are
// one round apart still skips what it must.
type cleanedTxns struct {
	pending   []abortedTxn // that overlap the segment being read and have not begun, by first offset
	aborted   map[int64]*seenTxn
	committed map[int64]struct{} // producers with a batch since their last marker, not aborted
	kept      []abortedTxn       // entries for the .txnindex of the new segment
}

type seenTxn struct {
	abortedTxn
	seen bool // a batch of it was read
}

func newCleanedTxns() *cleanedTxns {
	return &cleanedTxns{aborted: map[int64]*seenTxn{}, committed: map[int64]struct{}{}}
}

// load gives the aborted transactions that overlap the segment read next.
func (t *cleanedTxns) load(list []abortedTxn) {
	slices.SortFunc(list, func(a, b abortedTxn) int { return cmp.Compare(a.first, b.first) })
	t.pending = list
}

// begin takes transactions that began at or before offset from the list.
func (t *cleanedTxns) begin(offset int64) {
	for len(t.pending) > 0 && t.pending[0].first <= offset {
		txn := t.pending[0]
		t.pending = t.pending[1:]
		if t.aborted[txn.producerID] == nil {
			t.aborted[txn.producerID] = &seenTxn{abortedTxn: txn}
		}
	}
}

// data says whether a data batch was aborted.
func (t *cleanedTxns) data(h *BatchHeader) bool {
	t.begin(h.LastOffset())
	if !h.Transactional() {
		return false
	}
	if txn := t.aborted[h.ProducerID]; txn != nil {
		txn.seen = true
		return true
	}
	t.committed[h.ProducerID] = struct{}{}
	return false
}

// marker says whether a control batch has no batch of its transaction before
// it, so that it may go.
func (t *cleanedTxns) marker(h *BatchHeader, records []byte) bool {
	t.begin(h.LastOffset())
	m, ok := parseMarker(records)
	if !ok {
		return h.Records == 0
	}
	if m.kind != markerAbort && m.kind != markerCommit {
		return false // not of a transaction
	}
	_, seen := t.committed[h.ProducerID]
	delete(t.committed, h.ProducerID)
	if txn := t.aborted[h.ProducerID]; m.kind == markerAbort && txn != nil {
		delete(t.aborted, h.ProducerID)
		if txn.seen {
			t.kept = append(t.kept, txn.abortedTxn)
			return false
		}
	}
	return !seen
}
