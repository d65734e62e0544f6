package coordinator

import (
	"testing"
	"time"
)

// TestTransactionMetrics: each way in which a transaction ends is counted once, with its phases; what ends nothing is not.
func TestTransactionMetrics(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		m := &s.groups.shards[0].meter.txn
		one := func(what string, commit bool) {
			t.Helper()
			if err := p.write(partAt(1), what); err != nil {
				t.Fatal(err)
			}
			if err := p.end(what, commit); err != nil {
				t.Fatal(err)
			}
		}
		one("a", true)
		one("b", true)
		one("c", false)
		if err := p.write(partAt(1), "d"); err != nil {
			t.Fatal(err)
		}
		if err := p.init(2 * time.Second); err != nil {
			t.Fatal(err)
		}
		if err := p.init(2 * time.Second); err != nil { // over nothing
			t.Fatal(err)
		}
		if err := p.write(partAt(2), "e"); err != nil {
			t.Fatal(err)
		}
		counts := func() TxnCounts { return await(s.groups.CountTxns) }
		if c := counts(); c.ByState["Ongoing"] != 1 || c.OldestOpen.IsZero() {
			t.Errorf("one is open: %+v", c)
		}
		time.Sleep(5 * time.Second) // longer than its timeout
		if c := counts(); c.ByState["CompleteAbort"] != 1 || !c.OldestOpen.IsZero() {
			t.Errorf("none is open: %+v", c)
		}
		want := map[string]float64{resultCommitted: 2, resultAborted: 1, resultReplaced: 1, resultTimedOut: 1, resultFailed: 0}
		for result, n := range counted(t, m.ended) {
			if n != want[result] {
				t.Errorf("%s: %v, want %v", result, n, want[result])
			}
		}
		phases := counted(t, m.duration)
		for _, phase := range []string{phaseFlush, phasePostgres, phaseMarkers} {
			if phases[phase] != 5 {
				t.Errorf("%s: %v of 5", phase, phases[phase])
			}
		}
		if phases[phaseTotal] != 4 { // nobody waited for the one that timed out
			t.Errorf("total: %v of 4", phases[phaseTotal])
		}
	})
}
