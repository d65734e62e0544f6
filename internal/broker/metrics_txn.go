package broker

import (
	"context"
	"time"

	"github.com/pgbroker/pgbroker/internal/coordinator"
)

// Series of transactions that are counted when somebody scrapes; those of their ends are the coordinator's.
var (
	seriesTxnIDs    = gauge("pgbroker_txn_ids", "Transactional ids by Kafka's state of their transaction.", "state")
	seriesTxnOpen   = gauge("pgbroker_txn_open", "Transactions that are open or being ended.")
	seriesTxnOldest = gauge("pgbroker_txn_oldest_open_seconds", "Age of the oldest open transaction, 0 without one. Consumers with read_committed may wait for it.")
)

// txnReader is what the metrics ask of the coordinator about transactions.
type txnReader interface {
	CountTxns(done func(coordinator.TxnCounts))
}

// readTxns asks the coordinator's memory, as readGroups does.
func readTxns(ctx context.Context, txns txnReader) (counts coordinator.TxnCounts, ok bool) {
	return await(ctx, txns.CountTxns)
}

// collectTxns shows how many transactional ids there were a few seconds ago.
func collectTxns(out sink, c coordinator.TxnCounts, now time.Time) {
	open := 0
	for _, state := range coordinator.TxnStates {
		n := c.ByState[state]
		out.put(seriesTxnIDs, float64(n), state)
		if state == "Ongoing" || state == "PrepareCommit" || state == "PrepareAbort" {
			open += n
		}
	}
	out.put(seriesTxnOpen, float64(open))
	age := 0.0
	if !c.OldestOpen.IsZero() {
		age = max(now.Sub(c.OldestOpen).Seconds(), 0)
	}
	out.put(seriesTxnOldest, age)
}
