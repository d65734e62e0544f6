package coordinator

import (
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestDecisionOfSomebodyElse: a decision that is in the row already, taken by a SQL user in a transaction of their own, is
// accepted and its markers are written; the client that asks for the same outcome hears of success, for the other one not.
func TestDecisionOfSomebodyElse(t *testing.T) {
	for _, commit := range []bool{true, false} {
		txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
			if err := logs.write(partAt(1), p.who.ProducerID, p.who.Epoch, "x"); err != nil {
				t.Fatal(err)
			}
			if err := logs.write(partAt(2), p.who.ProducerID, p.who.Epoch, "x"); err != nil {
				t.Fatal(err)
			}
			row := s.stored(p.name).Transactions[0]
			row.Outcome, row.DecidedProducerID, row.DecidedEpoch, row.DecidedBy = outcomeOf(commit), p.who.ProducerID, p.who.Epoch, "sql"
			row.Epoch, row.LastEpoch, row.MarkerEpoch = p.who.Epoch+1, p.who.Epoch, p.who.Epoch+1
			row.Partitions, row.Version = logs.Open(p.who.ProducerID), row.Version+1<<32
			s.mem.Decide(row)

			if r := <-endOf(s, p, commit); r.Err != ErrLoading {
				t.Fatalf("the first EndTxn meets the other's decision: %+v", r)
			}
			if r := <-endOf(s, p, commit); r.Err != nil || r.Epoch != p.who.Epoch+1 {
				t.Fatalf("the same outcome: %+v", r)
			}
			want := map[bool]string{true: "c", false: "a"}[commit]
			for _, at := range []TopicPartition{partAt(1), partAt(2)} {
				if how := logs.outcomes()["x"][at]; how != want {
					t.Errorf("the record ended %q, want %q", how, want)
				}
			}
			if r := <-endOf(s, p, !commit); r.Err != ErrTxnState {
				t.Errorf("the other outcome: %+v", r)
			}
			stored := s.stored(p.name).Transactions[0]
			if stored.DecidedBy != "sql" || stored.Outcome != meta.Outcome(row.Outcome) {
				t.Errorf("stored %+v", stored)
			}
		})
	}
}

// TestDecisionOfSomebodyElseIsFinished: when the client that should hear of it is gone, the timeout meets the decision and
// writes its markers, with its outcome and not as an abort.
func TestDecisionOfSomebodyElseIsFinished(t *testing.T) {
	txnBubble(t, func(t *testing.T, s *shell, logs *fakeLogs, p *producer) {
		if err := p.write(partAt(1), "x"); err != nil {
			t.Fatal(err)
		}
		row := s.stored(p.name).Transactions[0]
		row.Outcome, row.DecidedProducerID, row.DecidedEpoch, row.DecidedBy = meta.OutcomeCommit, p.who.ProducerID, p.who.Epoch, "sql"
		row.Epoch, row.LastEpoch, row.MarkerEpoch = p.who.Epoch+1, p.who.Epoch, p.who.Epoch+1
		row.Partitions, row.Version = logs.Open(p.who.ProducerID), row.Version+1<<32
		s.mem.Decide(row)
		time.Sleep(row.Timeout + 3*reapEvery)
		if how := logs.outcomes()["x"][partAt(1)]; how != "c" {
			t.Errorf("the record ended %q, want %q", how, "c")
		}
		if stored := s.stored(p.name).Transactions[0]; stored.DecidedBy != "sql" || stored.Outcome != meta.OutcomeCommit {
			t.Errorf("stored %+v", stored)
		}
	})
}
