package segstore

import "github.com/pgbroker/pgbroker/internal/seededbug"

// OpenTransaction is a transaction that has records in a log and no marker yet. Whoever decides about it names it by
// its first offset: an old-protocol producer keeps its epoch, so producer id and epoch are the same for its next one.
type OpenTransaction struct {
	ProducerID  int64
	Epoch       int16
	FirstOffset int64
}

// OpenTransactions lists what is open, by first offset. Transactions whose first records are below the log's start are
// among them.
func (l *Log) OpenTransactions() []OpenTransaction {
	l.pos.Lock()
	defer l.pos.Unlock()
	var open []OpenTransaction
	for _, t := range l.producers.txns {
		if t.marker < 0 {
			open = append(open, OpenTransaction{ProducerID: t.producerID, Epoch: l.producers.byID[t.producerID].epoch, FirstOffset: t.first})
		}
	}
	return open
}

// OpenTransaction is what one producer has open.
func (l *Log) OpenTransaction(producerID int64) (OpenTransaction, bool) {
	l.pos.Lock()
	defer l.pos.Unlock()
	p := l.producers.byID[producerID]
	if p == nil || p.txnFirst < 0 {
		return OpenTransaction{}, false
	}
	return OpenTransaction{ProducerID: producerID, Epoch: p.epoch, FirstOffset: p.txnFirst}, true
}

// Ending is a decision about the transaction that a producer has open with exactly this first offset.
type Ending struct {
	ProducerID      int64
	FirstOffset     int64
	MarkerEpoch     int16 // the marker's; the log takes no older epoch of the producer from then on
	Commit          bool
	CoordinatorTerm int32 // of the shard; one below that of the producer's last marker is ErrTermStale
}

// EndTransaction writes the marker of a decision, or nothing (false) where no transaction with that first offset is
// open: it has its marker already, or what is open is the next one. It returns when the marker is in the page cache.
func (l *Log) EndTransaction(e Ending, term int32) (bool, error) {
	cfg := l.cfg.Load()
	now := l.store.now()
	b := buildMarker(e.ProducerID, e.MarkerEpoch, e.Commit, e.CoordinatorTerm, now.UnixMilli())
	l.mu.Lock()
	if open, ok := l.OpenTransaction(e.ProducerID); ok && seededbug.On(seededbug.IgnoreFirstOffset) {
		e.FirstOffset = open.FirstOffset
	}
	if p := l.producers.byID[e.ProducerID]; p == nil || p.txnFirst != e.FirstOffset || e.FirstOffset < 0 {
		err := l.writable()
		l.mu.Unlock()
		if err != nil {
			err = l.wrap("end transaction", err)
		}
		return false, err
	}
	err := l.markerLocked(&b, e.CoordinatorTerm, term, cfg, now)
	l.mu.Unlock()
	if err != nil {
		l.tell()
		return false, l.wrap("end transaction", err)
	}
	l.appended(cfg)
	return true, nil
}
