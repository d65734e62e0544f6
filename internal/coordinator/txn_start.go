package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// RecoverTxns comes after Load, while Run runs and before anybody is served: it writes the markers that stored
// decisions lack, and with fence it then aborts what is open and raises every epoch, since a power cut may have taken
// acknowledged records back. What is undecided stays open otherwise, until its client or its timeout ends it.
func (g *Groups) RecoverTxns(ctx context.Context, fence bool) error {
	if seededbug.On(seededbug.ServeBeforeMarkers) {
		time.AfterFunc(seededbug.Late, func() { _ = g.eachTxn(context.Background(), (*shard).finishDecision) })
	} else if err := g.eachTxn(ctx, (*shard).finishDecision); err != nil {
		return err
	}
	if fence && !seededbug.On(seededbug.NoFenceAfterPowerCut) || seededbug.On(seededbug.AbortUndecided) {
		if err := g.eachTxn(ctx, (*shard).fenceTxn); err != nil {
			return err
		}
	}
	for _, s := range g.shards {
		s.box.put(func(now time.Time) { s.reaping, s.nextReap = true, now.Add(reapEvery) })
	}
	return nil
}

// eachTxn runs do for every transactional id and waits for all; the first error counts.
func (g *Groups) eachTxn(ctx context.Context, do func(s *shard, now time.Time, x *txnEntry, done func(error))) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	done := func(err error) {
		mu.Lock()
		if first == nil {
			first = err
		}
		mu.Unlock()
		all.Done()
	}
	for _, s := range g.shards {
		all.Add(1)
		if !s.box.put(func(now time.Time) {
			for _, x := range s.txns {
				all.Add(1)
				do(s, now, x, done)
			}
			all.Done()
		}) {
			all.Done()
		}
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
		return first
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finishDecision writes the markers that are missing and makes them durable.
func (s *shard) finishDecision(_ time.Time, x *txnEntry, done func(error)) {
	if x.row.Outcome == meta.OutcomeNone || len(x.row.Partitions) == 0 {
		done(nil)
		return
	}
	parts := x.row.Partitions
	s.logs.End(x.markers(s.term), func(err error) {
		if err != nil {
			done(err)
			return
		}
		s.logs.Flush(parts, done)
	})
}

// fenceTxn aborts what is open and raises the epoch.
func (s *shard) fenceTxn(now time.Time, x *txnEntry, done func(error)) {
	s.abortTxn(now, x, done, func(bool) bool { return true })
}

// reapTxns aborts what has been open longer than its timeout. It looks again when its turn has come.
func (s *shard) reapTxns(now time.Time) {
	defer s.expireTxns(now)
	for _, x := range s.txns {
		if began := x.began(); began.IsZero() || x.row.Timeout <= 0 || now.Sub(began) < x.row.Timeout || x.busy {
			continue
		}
		s.abortTxn(now, x, func(err error) {
			if err != nil {
				s.log.Warn("a transaction that timed out could not be aborted yet", "transactional_id", x.id, "err", err)
			}
		}, func(open bool) bool {
			began := x.began()
			if seededbug.On(seededbug.ReapWithoutLooking) {
				return true
			}
			if open && !began.IsZero() && time.Since(began) >= x.row.Timeout {
				s.log.Info("a transaction timed out and is aborted", "transactional_id", x.id, "producer_id", x.row.ProducerID, "timeout", x.row.Timeout)
				return true
			}
			if !open { // an append failed, or only a registration came
				x.nothingOpen()
			}
			return false
		})
	}
}

// nothingOpen forgets since when something was.
func (x *txnEntry) nothingOpen() {
	x.since = time.Time{}
	x.gate.mu.Lock()
	x.gate.wrote = time.Time{}
	x.gate.mu.Unlock()
}

// abortTxn is a decision of the broker itself, if it is still wanted when its turn comes.
func (s *shard) abortTxn(now time.Time, x *txnEntry, done func(error), wanted func(open bool) bool) {
	c := &txnCall{fail: done}
	c.run = func(_ time.Time, x *txnEntry) {
		s.beginTxn(x, func(now time.Time) {
			d := &deciding{x: x, call: c, by: byBroker, newID: -1, list: s.logs.Open(x.row.ProducerID), done: func() { done(nil) }}
			if !wanted(d.open()) {
				c.answer(d.done)
				s.finishTxn(now, x)
				return
			}
			s.decideTxn(now, d)
		})
	}
	x.queue = append(x.queue, c)
	s.nextTxn(now, x)
}
