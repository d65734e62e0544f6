package coordinator

import (
	"errors"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

const (
	// expireAtOnce bounds how many transactional ids of one shard are removed at a time; all of them share a transaction.
	expireAtOnce = 500
	expireAgain  = time.Second // until the next ones, when there are more
)

// expiry is when a shard removes transactional ids that nobody uses any more.
type expiry struct {
	after time.Duration // transactional.id.expiration.ms; 0 never
	every time.Duration // transaction.remove.expired.transaction.cleanup.interval.ms
	most  int           // ids at a time
	next  time.Time
}

// expireTxns removes ids that were not used for long, in batches. As in Kafka's
// TransactionStateManager.removeExpiredTransactionalIds an id with an open transaction stays, and a client of one that
// went hears INVALID_PRODUCER_ID_MAPPING and begins anew, with another producer id.
func (s *shard) expireTxns(now time.Time) {
	e := &s.expiry
	if e.after <= 0 || now.Before(e.next) {
		return
	}
	e.next = now.Add(e.every)
	begun := 0
	for _, x := range s.txns {
		if x.busy || !s.unused(now, x) {
			continue
		}
		if begun == e.most {
			e.next = now.Add(min(expireAgain, e.every))
			return
		}
		begun++
		s.expireTxn(now, x)
	}
}

// unused says whether the id may go: nothing of it is open, and its row is old. What is open ends by its timeout first.
func (s *shard) unused(now time.Time, x *txnEntry) bool {
	return x.exists() && now.Sub(x.row.UsedAt) >= s.expiry.after && x.began().IsZero() && len(x.pending) == 0 &&
		len(s.logs.Open(x.row.ProducerID)) == 0
}

// expireTxn is an operation of the id, so it looks again when its turn has come. The markers of the last decision have
// to be durable before the row goes, since nobody could write them again.
func (s *shard) expireTxn(now time.Time, x *txnEntry) {
	c := &txnCall{fail: func(error) {}}
	c.run = func(_ time.Time, x *txnEntry) {
		s.beginTxn(x, func(now time.Time) {
			if !s.unused(now, x) {
				s.finishTxn(now, x)
				return
			}
			s.logs.Flush(x.row.Partitions, func(err error) {
				s.later(x, func(now time.Time) {
					if err != nil {
						s.log.Warn("an unused transactional id stays: a log is not durable", "transactional_id", x.id, "err", err)
						s.finishTxn(now, x)
						return
					}
					s.deleteTxn(now, x)
				})
			})
		})
	}
	x.queue = append(x.queue, c)
	s.nextTxn(now, x)
}

// deleteTxn deletes the row in the version that is known. When that fails, the next round tries again.
func (s *shard) deleteTxn(now time.Time, x *txnEntry) {
	o := &op{shard: s.id, deadline: now.Add(s.timeout), change: change{
		held: []meta.TransactionKey{{ID: x.id, Version: x.row.Version}}, deletedTransactions: []string{x.id},
	}}
	o.done = func(err error) {
		s.later(x, func(now time.Time) {
			switch {
			case errors.Is(err, meta.ErrRowMoved):
				s.reloadTxn(x)
				return
			case err == nil:
				s.forgetTxn(x)
			}
			s.finishTxn(now, x)
		})
	}
	if !s.committer.submit(o) {
		s.finishTxn(now, x)
	}
}

// forgetTxn makes the id one that nobody has initialised. Who waits for it is judged by that.
func (s *shard) forgetTxn(x *txnEntry) {
	s.log.Info("a transactional id was not used for long and is removed", "transactional_id", x.id, "producer_id", x.row.ProducerID, "used", x.row.UsedAt)
	fresh := newTxn(x.id)
	fresh.newest = x.newest
	x.gate.mu.Lock()
	x.txn = fresh
	x.gate.mu.Unlock()
	x.gate.show(&x.txn, true)
	s.gates.Delete(x.id)
	s.meter.txn.expired.Inc()
}
