package metatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func (m *Memory) transactionRows(n int16, rows *meta.ShardRows) {
	for _, id := range slices.Sorted(maps.Keys(m.db.transactions)) {
		if t := m.db.transactions[id]; t.shard == n {
			rows.Transactions = append(rows.Transactions, cloneTransaction(t.row))
		}
	}
	keys := slices.SortedFunc(maps.Keys(m.db.pending), func(a, b pendingKey) int {
		if c := strings.Compare(a.id, b.id); c != 0 {
			return c
		}
		if c := strings.Compare(a.group, b.group); c != 0 {
			return c
		}
		if c := slices.Compare(a.topic[:], b.topic[:]); c != 0 {
			return c
		}
		return int(a.partition - b.partition)
	})
	for _, k := range keys {
		if p := m.db.pending[k]; p.shard == n {
			rows.Pending = append(rows.Pending, p.row)
		}
	}
}

func cloneTransaction(r meta.TransactionRow) meta.TransactionRow {
	r.Partitions = slices.Clone(r.Partitions)
	return r
}

// writeTransactions is in Postgres' order: held and deleted rows first, then what is written.
func (m *Memory) writeTransactions(c meta.ShardChange) error {
	for _, k := range c.HeldTransactions {
		if old, ok := m.db.transactions[k.ID]; !ok || old.row.Version != k.Version {
			return meta.ErrRowMoved
		}
	}
	for _, k := range c.DeletedTransactions {
		if m.db.transactions[k.ID].row.Version <= k.Version {
			remove(m, m.db.transactions, k.ID)
		}
	}
	for _, ended := range c.EndedPending {
		for _, k := range slices.Collect(maps.Keys(m.db.pending)) {
			if k.id == ended.ID && m.db.pending[k].row.Version <= ended.Version {
				remove(m, m.db.pending, k)
			}
		}
	}
	for _, r := range c.Transactions {
		old, ok := m.db.transactions[r.ID]
		if ok != (r.Known != 0) || ok && (old.row.Version != r.Known || old.shard != c.Shard) {
			return meta.ErrRowMoved
		}
		r.Known, r.Timeout, r.DecidedTerm = 0, r.Timeout.Truncate(time.Millisecond), max(r.DecidedTerm, -1)
		r.UsedAt = meta.StoredTime(r.UsedAt)
		put(m, m.db.transactions, r.ID, stored[meta.TransactionRow]{c.Shard, cloneTransaction(r)})
	}
	seen := map[pendingKey]bool{}
	for _, r := range c.Pending {
		k := pendingKey{r.ID, offsetKey{r.Group, r.TopicID, r.Partition}}
		if seen[k] {
			return fmt.Errorf("pending offset of %s in %s-%d twice in one commit", r.ID, r.Group, r.Partition) // as Postgres
		}
		seen[k] = true
		if old, ok := m.db.pending[k]; !ok || old.row.Version < r.Version {
			put(m, m.db.pending, k, stored[meta.PendingOffsetRow]{c.Shard, r})
		}
	}
	return nil
}
