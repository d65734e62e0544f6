package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// txnGate keeps Produce and the operations of one transactional id apart: a Produce holds it shared from its check to
// the end of its append, an operation alone from before it lists what is open until the markers are appended. It also
// has the copy of the id's state that Produce is judged by, so that appends need not visit the shard.
type txnGate struct {
	mu      sync.Mutex
	readers int
	free    func()        // of the operation that waits for the readers to leave
	alone   chan struct{} // not nil while an operation holds or awaits the gate; closed at its end
	lost    bool          // the shard is not ours any more

	exists     bool
	producerID int64
	epoch      int16
	known      bool
	added      map[TopicPartition]bool // shared with the txn: changed under mu
	wrote      time.Time               // first append since the last decision, zero none
}

// ProduceTxn is the right of one Produce request to append to a transaction. It must end.
type ProduceTxn struct{ gate *txnGate }

// BeginProduce waits until no operation of the transactional id is under way, or ctx ends (context.DeadlineExceeded).
// ErrProducerMapping: nobody has initialised the id.
func (g *Groups) BeginProduce(ctx context.Context, id string) (*ProduceTxn, error) {
	found, ok := g.gates.Load(id)
	if !ok {
		if g.gatesLost.Load() {
			return nil, ErrNotCoordinator
		}
		return nil, ErrProducerMapping
	}
	gate := found.(*txnGate)
	for {
		gate.mu.Lock()
		wait := gate.alone
		switch {
		case gate.lost:
			gate.mu.Unlock()
			return nil, ErrNotCoordinator
		case wait == nil || seededbug.On(seededbug.ProduceDuringEnd):
			gate.readers++
			gate.mu.Unlock()
			return &ProduceTxn{gate}, nil
		}
		gate.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.DeadlineExceeded
		}
	}
}

// Check says whether a batch of this producer may be appended to the partition. openThere tells whether its log has a
// transaction of the producer open. From version 12 of Produce a partition needs no registration.
func (p *ProduceTxn) Check(producerID int64, epoch int16, at TopicPartition, version int16, openThere func() bool) error {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.exists || producerID != g.producerID:
		return ErrProducerMapping
	case epoch != g.epoch:
		return ErrProducerEpoch
	case version < 12 && g.known && !g.added[at] && !openThere():
		if version == 11 {
			return ErrTxnAbortable
		}
		return ErrTxnState
	}
	if g.wrote.IsZero() {
		g.wrote = time.Now()
	}
	return nil
}

// End lets operations go on.
func (p *ProduceTxn) End() {
	g := p.gate
	g.mu.Lock()
	g.readers--
	var free func()
	if g.readers == 0 {
		free, g.free = g.free, nil
	}
	g.mu.Unlock()
	if free != nil {
		free()
	}
}

// lock keeps new appends out and calls f when those under way have ended; from any goroutine.
func (g *txnGate) lock(f func()) {
	g.mu.Lock()
	g.alone = make(chan struct{})
	if g.readers > 0 && !seededbug.On(seededbug.ProduceDuringEnd) {
		g.free = f
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	f()
}

func (g *txnGate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone != nil { // not lost meanwhile
		close(g.alone)
	}
	g.alone, g.free = nil, nil
}

// show copies the state that Produce is judged by.
func (g *txnGate) show(t *txn, decided bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exists, g.producerID, g.epoch, g.known, g.added = t.exists(), t.row.ProducerID, t.row.Epoch, t.known, t.added
	if decided {
		g.wrote = time.Time{}
	}
}

// firstWrite is when the open transaction was first written to, zero never.
func (g *txnGate) firstWrite() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrote
}

// lose ends the gate: whoever waits is told.
func (g *txnGate) lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = true
	if g.alone != nil {
		close(g.alone)
		g.alone = nil
	}
	g.free = nil
}
