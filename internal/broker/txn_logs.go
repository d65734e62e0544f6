package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// txnLogs is how the coordinator reaches the logs. It remembers where each producer has written transactions, so that a
// decision need not ask every log; whether something is open there only the log knows.
type txnLogs struct {
	broker *Broker

	mu    sync.Mutex
	wrote map[int64]map[partitionKey]bool
}

// load finds what the recovered logs have open.
func (x *txnLogs) load() {
	for _, log := range x.broker.segments.Logs() {
		for _, open := range log.OpenTransactions() {
			x.note(open.ProducerID, partitionKey{log.ID(), log.Partition()})
		}
	}
}

// note comes before an append: the partition is one to ask.
func (x *txnLogs) note(producerID int64, k partitionKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.wrote == nil {
		x.wrote = map[int64]map[partitionKey]bool{}
	}
	at := x.wrote[producerID]
	if at == nil {
		at = map[partitionKey]bool{}
		x.wrote[producerID] = at
	}
	at[k] = true
}

// Open implements coordinator.TxnLogs.
func (x *txnLogs) Open(producerID int64) []meta.TransactionPartition {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []meta.TransactionPartition
	for k := range x.wrote[producerID] {
		if log, ok := x.broker.segments.Get(k.topic, k.partition); ok {
			if open, ok := log.OpenTransaction(producerID); ok {
				out = append(out, meta.TransactionPartition{TopicID: k.topic, Partition: k.partition, FirstOffset: open.FirstOffset})
			}
		}
	}
	return out
}

// Gone implements coordinator.TxnLogs.
func (x *txnLogs) Gone(producerID int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k := range x.wrote[producerID] {
		if _, ok := x.broker.segments.Get(k.topic, k.partition); !ok {
			return true
		}
	}
	return false
}

// forget drops places where nothing is open after a decision. No append of the producer is under way then.
func (x *txnLogs) forget(producerID int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.wrote[producerID]
	for k := range at {
		log, ok := x.broker.segments.Get(k.topic, k.partition)
		if ok {
			_, ok = log.OpenTransaction(producerID)
		}
		if !ok {
			delete(at, k)
		}
	}
	if len(at) == 0 {
		delete(x.wrote, producerID)
	}
}

// Flush implements coordinator.TxnLogs.
func (x *txnLogs) Flush(parts []meta.TransactionPartition, done func(error)) {
	type goal struct {
		log *segstore.Log
		to  int64
	}
	var goals []goal
	for _, p := range parts {
		if log, ok := x.broker.segments.Get(p.TopicID, p.Partition); ok {
			goals = append(goals, goal{log, log.Offsets().End})
		}
	}
	var left atomic.Int32
	left.Store(int32(len(goals)) + 1)
	arrived := func() {
		if left.Add(-1) > 0 {
			return
		}
		for _, g := range goals {
			if g.log.Offsets().Durable >= g.to {
				continue
			}
			if err := g.log.Err(); err != nil && !errors.Is(err, segstore.ErrClosed) {
				done(err)
				return
			}
			if x.exists(g.log.ID()) {
				done(fmt.Errorf("%s-%d was closed before it was durable: %w", g.log.Topic(), g.log.Partition(), segstore.ErrClosed))
				return
			}
		}
		done(nil)
	}
	for _, g := range goals {
		g.log.FlushTo(g.to)
		g.log.Watch(segstore.BoundDurable, g.to, arrived)
	}
	arrived()
}

func (x *txnLogs) exists(topic meta.UUID) bool {
	_, ok := x.broker.catalog.Load().topicByID(topic)
	return ok
}

// End implements coordinator.TxnLogs.
func (x *txnLogs) End(e coordinator.TxnEnding, done func(error)) {
	go func() {
		var first error
		for _, p := range e.Partitions {
			err := x.end(e, p)
			if err != nil && x.exists(p.TopicID) && first == nil {
				first = err
			}
		}
		if first == nil {
			x.forget(e.ProducerID)
		}
		done(first)
	}()
}

func (x *txnLogs) end(e coordinator.TxnEnding, p meta.TransactionPartition) error {
	t, ok := x.broker.catalog.Load().topicByID(p.TopicID)
	if !ok {
		return nil
	}
	part, ok := t.partition(p.Partition)
	if !ok {
		return nil
	}
	lead, err := part.leader()
	if err != nil {
		return err
	}
	_, err = lead.log.EndTransaction(segstore.Ending{ProducerID: e.ProducerID, FirstOffset: p.FirstOffset, MarkerEpoch: e.MarkerEpoch,
		Commit: e.Commit, CoordinatorTerm: e.CoordinatorTerm}, lead.row.Term)
	return err
}
