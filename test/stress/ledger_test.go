package stress

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/pgbroker/pgbroker/test/harness"
)

// ledger remembers what was acknowledged, and how far groups' commits and records' deletions had come.
type ledger struct {
	*harness.Ledger

	mu      sync.Mutex                  // guards the fields below
	starts  map[harness.Partition]int64 // highest offset that DeleteRecords was asked for
	commits map[groupPartition]int64
}

type groupPartition struct {
	group string
	harness.Partition
}

func newLedger() *ledger {
	return &ledger{Ledger: harness.NewLedger(), starts: map[harness.Partition]int64{}, commits: map[groupPartition]int64{}}
}

// deleting notes what will be asked for, before it is.
func (l *ledger) deleting(p harness.Partition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[p] = max(l.starts[p], offset)
}

// committed notes an acknowledged commit.
func (l *ledger) committed(p groupPartition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits[p] = max(l.commits[p], offset)
}

// commitsNow is a copy of the highest acknowledged commits.
func (l *ledger) commitsNow() map[groupPartition]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.commits)
}

// verify reads topics from their start to their end and compares every record with what was acknowledged. Topics in
// trimmed may have lost records from their front, by DeleteRecords or retention; in others nothing may be missing.
func (l *ledger) verify(ctx context.Context, t *testing.T, bootstrap string, topics []string, trimmed map[string]bool) {
	t.Helper()
	r, err := harness.ReadTopics(ctx, bootstrap, topics...)
	if err != nil {
		t.Fatal(err)
	}
	for p, start := range r.Starts {
		if !trimmed[p.Topic] && start != 0 {
			t.Errorf("%s-%d begins at %d: nobody deleted anything", p.Topic, p.Number, start)
		}
	}
	v := l.Compare(r)
	for _, err := range v.Problems {
		t.Error(err)
	}
	t.Log(v)
}
