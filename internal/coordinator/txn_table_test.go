package coordinator

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

var onePart = []meta.TransactionPartition{{TopicID: meta.UUID{1}, Partition: 2, FirstOffset: 3}}

// TestEndTxnTable has a case for each row of the table of EndTxn, in both protocols, and for what does not fit any.
func TestEndTxnTable(t *testing.T) {
	const decideIt = "decide"
	// A row of epoch 5 whose last decision ended epoch 5 (old protocol), 4 (new protocol) or 3.
	for _, c := range []struct {
		name                  string
		epoch                 int16
		last, decided         int16
		outcome               meta.Outcome
		open, known, added    bool
		oldCommit, oldAbort   string
		bumpCommit, bumpAbort string
	}{
		{"something open", 5, 4, 4, meta.OutcomeAbort, true, true, false, decideIt, decideIt, decideIt, decideIt},
		{"something open after a restart", 5, 4, 4, meta.OutcomeAbort, true, false, false, decideIt, decideIt, decideIt, decideIt},
		{"open, although this epoch was decided once", 5, -1, 5, meta.OutcomeCommit, true, true, false, decideIt, decideIt, decideIt, decideIt},
		{"added and nothing written", 5, -1, 5, meta.OutcomeCommit, false, true, true, decideIt, decideIt, decideIt, decideIt},
		{"decided as commit", 5, -1, 5, meta.OutcomeCommit, false, true, false, "", "48", "48", decideIt},
		{"decided as abort", 5, -1, 5, meta.OutcomeAbort, false, true, false, "48", "", "48", decideIt},
		{"decided as commit before a restart", 5, -1, 5, meta.OutcomeCommit, false, false, false, "", "48", decideIt, decideIt},
		{"nothing in this epoch", 5, 4, 4, meta.OutcomeCommit, false, true, false, "48", "48", "48", decideIt},
		{"nothing ever", 5, -1, -1, meta.OutcomeNone, false, true, false, "48", "48", "48", decideIt},
		{"nothing known after a restart", 5, 4, 4, meta.OutcomeCommit, false, false, false, decideIt, decideIt, decideIt, decideIt},
		{"again, a commit", 4, 4, 4, meta.OutcomeCommit, false, true, false, "F", "F", "", "48"},
		{"again, an abort", 4, 4, 4, meta.OutcomeAbort, false, false, false, "F", "F", "48", ""},
		{"again, while the next one is open", 4, 4, 4, meta.OutcomeCommit, true, true, false, "F", "F", "", "48"},
		{"again, after InitProducerId", 4, -1, 4, meta.OutcomeCommit, false, true, false, "F", "F", "F", "F"},
		{"again, of two epochs ago", 3, 4, 3, meta.OutcomeCommit, false, true, false, "F", "F", "F", "F"},
		{"an epoch that ended without a decision", 4, 4, 3, meta.OutcomeCommit, false, true, false, "F", "F", "F", "F"},
		{"an old epoch", 2, 4, 4, meta.OutcomeCommit, true, true, false, "F", "F", "F", "F"},
		{"a future epoch", 6, 4, 4, meta.OutcomeCommit, true, true, false, "F", "F", "F", "F"},
	} {
		for i, want := range []string{c.oldCommit, c.oldAbort, c.bumpCommit, c.bumpAbort} {
			versions := []int16{1, 2, 4}
			if i >= 2 {
				versions = []int16{5}
			}
			for _, version := range versions {
				x := newTxn("id")
				x.row = meta.TransactionRow{ID: "id", ProducerID: 7, Epoch: 5, LastEpoch: c.last, Outcome: c.outcome, DecidedProducerID: 7, DecidedEpoch: c.decided, Version: 1}
				x.known = c.known
				if c.added {
					x.groups["g"] = true
				}
				r := EndTxnRequest{TxnID: TxnID{ID: "id", ProducerID: 7, Epoch: c.epoch}, Commit: i%2 == 0, Version: version}
				v := x.judgeEnd(&r, c.open)
				got := ""
				switch {
				case v.decide:
					got = decideIt
				case errors.Is(v.err, ErrTxnState):
					got = "48"
				case version < 2 && errors.Is(v.err, ErrProducerEpoch), version >= 2 && errors.Is(v.err, ErrProducerFenced):
					got = "F"
				case v.err != nil:
					got = v.err.Error()
				}
				if got != want {
					t.Errorf("%s, v%d commit %v: %q, want %q", c.name, version, r.Commit, got, want)
				}
				r.ProducerID = 8
				if v := x.judgeEnd(&r, c.open); !errors.Is(v.err, ErrProducerMapping) {
					t.Errorf("%s: another producer id: %v", c.name, v.err)
				}
			}
		}
	}
	x := newTxn("id")
	if v := x.judgeEnd(&EndTxnRequest{TxnID: TxnID{ID: "id", ProducerID: -1}}, false); !errors.Is(v.err, ErrProducerMapping) {
		t.Errorf("an unknown id: %v", v.err)
	}
}

// TestDecisionEpochs: what each decider makes of the epochs, the markers and the retry window.
func TestDecisionEpochs(t *testing.T) {
	for _, c := range []struct {
		by                  decider
		epoch               int16
		open                bool
		producer            int64
		wantEpoch, wantLast int16
		wantMarker          int16
		outcome             meta.Outcome
		decidedID           int64
		decidedEpoch        int16
	}{
		{byEnd, 5, true, 7, 5, 4, 5, meta.OutcomeAbort, 7, 5},
		{byEnd, 5, false, 7, 5, 4, 5, meta.OutcomeAbort, 7, 5},
		{byEndBump, 5, true, 7, 6, 5, 6, meta.OutcomeAbort, 7, 5},
		{byEndBump, 5, false, 7, 6, 5, 6, meta.OutcomeAbort, 7, 5},
		{byBroker, 5, true, 7, 6, 5, 6, meta.OutcomeAbort, 7, 5},
		{byBroker, 5, false, 7, 6, 5, 6, meta.OutcomeCommit, 7, 4},
		{byInit, 5, true, 7, 6, -1, 6, meta.OutcomeAbort, 7, 5},
		{byInit, 5, false, 7, 6, -1, 6, meta.OutcomeCommit, 7, 4},
		{byRecover, 5, true, 7, 6, 5, 6, meta.OutcomeAbort, 7, 5},
		{byRecover, 5, false, 7, 6, 5, 6, meta.OutcomeCommit, 7, 4},
		{byEnd, lastEpoch, true, 7, lastEpoch, 4, lastEpoch, meta.OutcomeAbort, 7, lastEpoch},
		{byEndBump, lastEpoch, true, 99, 0, lastEpoch, math.MaxInt16, meta.OutcomeAbort, 7, lastEpoch},
		{byBroker, lastEpoch, true, 99, 0, -1, math.MaxInt16, meta.OutcomeAbort, 7, lastEpoch},
		{byInit, lastEpoch, false, 99, 0, -1, math.MaxInt16, meta.OutcomeCommit, 7, 4},
		{byRecover, lastEpoch, true, 99, 0, -1, math.MaxInt16, meta.OutcomeAbort, 7, lastEpoch},
		{byEndBump, lastEpoch - 1, true, 7, lastEpoch, lastEpoch - 1, lastEpoch, meta.OutcomeAbort, 7, lastEpoch - 1},
	} {
		x := newTxn("id")
		x.row = meta.TransactionRow{ID: "id", ProducerID: 7, Epoch: c.epoch, LastEpoch: 4, Outcome: meta.OutcomeCommit, DecidedProducerID: 7, DecidedEpoch: 4, Version: 12,
			Partitions: []meta.TransactionPartition{{Partition: 9}}}
		var list []meta.TransactionPartition
		if c.open {
			list = onePart
		}
		if x.needsProducerID(c.by) != (c.producer == 99) {
			t.Errorf("%+v: needs a producer id: %v", c, x.needsProducerID(c.by))
		}
		row := x.decision(c.by, false, list, c.open, 99, 3)
		if row.ProducerID != c.producer || row.Epoch != c.wantEpoch || row.LastEpoch != c.wantLast || row.MarkerEpoch != c.wantMarker ||
			row.Outcome != c.outcome || row.DecidedProducerID != c.decidedID || row.DecidedEpoch != c.decidedEpoch || row.Known != 12 || !slices.Equal(row.Partitions, list) {
			t.Errorf("%+v: %+v", c, row)
		}
	}
	fresh := newTxn("id")
	row := fresh.decision(byInit, false, nil, false, 99, 3)
	if fmt.Sprint(row) != fmt.Sprint(meta.TransactionRow{ID: "id", ProducerID: 99, LastEpoch: -1, DecidedProducerID: -1, DecidedEpoch: -1, MarkerEpoch: -1, DecidedTerm: -1}) {
		t.Errorf("the first row: %+v", row)
	}
}

// TestInitTable: the forms of InitProducerId.
func TestInitTable(t *testing.T) {
	for _, c := range []struct {
		name    string
		id      int64
		epoch   int16
		version int16
		open    bool
		decide  bool
		by      decider
		err     error
	}{
		{"a new incarnation", -1, -1, 5, false, true, byInit, nil},
		{"a new incarnation over an open transaction", -1, -1, 2, true, true, byInit, nil},
		{"KIP-360", 7, 5, 4, true, true, byRecover, nil},
		{"again after a lost answer", 7, 4, 4, false, false, byRecover, nil},
		{"again, but the next transaction is open", 7, 4, 4, true, false, byRecover, ErrProducerFenced},
		{"an old epoch", 7, 3, 4, false, false, byRecover, ErrProducerFenced},
		{"an old epoch, old version", 7, 3, 3, false, false, byRecover, ErrProducerEpoch},
		{"a future epoch", 7, 6, 5, false, false, byRecover, ErrProducerFenced},
		{"another producer id", 8, 5, 5, false, false, byRecover, ErrProducerFenced},
	} {
		x := newTxn("id")
		x.row = meta.TransactionRow{ID: "id", ProducerID: 7, Epoch: 5, LastEpoch: 4, Version: 1}
		v, by := x.judgeInit(&InitTxnRequest{TxnID: TxnID{ID: "id", ProducerID: c.id, Epoch: c.epoch}, Version: c.version}, c.open)
		if v.decide != c.decide || by != c.by || !errors.Is(v.err, c.err) || (v.err == nil) != (c.err == nil) {
			t.Errorf("%s: %+v %v", c.name, v, by)
		}
	}
	x := newTxn("id")
	if v, by := x.judgeInit(&InitTxnRequest{TxnID: TxnID{ID: "id", ProducerID: 7, Epoch: 5}, Version: 5}, false); !v.decide || by != byInit {
		t.Errorf("ids of an unknown transactional id: %+v %v", v, by)
	}
}

// TestJudgeProtocols: what old clients must have announced, late requests of theirs, and the codes of each version.
func TestJudgeProtocols(t *testing.T) {
	fresh := func() txn {
		x := newTxn("id")
		x.row = meta.TransactionRow{ID: "id", ProducerID: 7, Epoch: 5, LastEpoch: 4, Version: 1}
		x.known = true
		return x
	}
	who := func(connection uint64) TxnID { return TxnID{ID: "id", ProducerID: 7, Epoch: 5, Connection: connection} }
	is := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	now := time.Unix(0, 0)
	x := fresh()
	is("not announced, v3", x.judgeOffsets(&TxnCommitRequest{TxnID: who(1), Group: "g", Version: 3}), ErrTxnState)
	is("not announced, v4", x.judgeOffsets(&TxnCommitRequest{TxnID: who(1), Group: "g", Version: 4}), ErrTxnAbortable)
	is("v5 announces itself", x.judgeOffsets(&TxnCommitRequest{TxnID: who(1), Group: "g", Version: 5}), nil)
	is("announce", x.judgeAdd(now, &AddToTxnRequest{TxnID: who(4), Group: "g", OldClient: true}), nil)
	is("announced, v3", x.judgeOffsets(&TxnCommitRequest{TxnID: who(2), Group: "g", Version: 3}), nil)
	is("late, on an older connection", x.judgeOffsets(&TxnCommitRequest{TxnID: who(1), Group: "g", Version: 3}), ErrStaleConnection)
	is("new clients' epochs tell", x.judgeOffsets(&TxnCommitRequest{TxnID: who(1), Group: "g", Version: 5}), nil)
	is("late in the other role", x.judgeAdd(now, &AddToTxnRequest{TxnID: who(3), OldClient: true}), ErrStaleConnection)
	end := EndTxnRequest{TxnID: who(3), Commit: true, Version: 4}
	is("a late EndTxn", x.judgeEnd(&end, true).err, ErrStaleConnection)
	old := who(3)
	old.Epoch = 4
	is("a fenced one hears that instead", x.judgeAdd(now, &AddToTxnRequest{TxnID: old, OldClient: true, Fenced: true}), ErrProducerFenced)
	is("a fenced one, old version", x.judgeAdd(now, &AddToTxnRequest{TxnID: old, OldClient: true}), ErrProducerEpoch)
	is("offsets of a fenced one", x.judgeOffsets(&TxnCommitRequest{TxnID: old, Group: "g", Version: 5}), ErrProducerEpoch)
	y := fresh()
	y.known = false
	is("nobody knows what was announced before the restart", y.judgeOffsets(&TxnCommitRequest{TxnID: who(1), Group: "g", Version: 3}), nil)
	p := TopicPartition{meta.UUID{1}, 0}
	is("verify", x.judgeAdd(now, &AddToTxnRequest{TxnID: who(4), Partitions: []TopicPartition{p}, VerifyOnly: true}), ErrTxnAbortable)
	is("verify what may have been added", y.judgeAdd(now, &AddToTxnRequest{TxnID: who(4), Partitions: []TopicPartition{p}, VerifyOnly: true}), nil)
	is("add", x.judgeAdd(now, &AddToTxnRequest{TxnID: who(4), Partitions: []TopicPartition{p}}), nil)
	is("verify what was added", x.judgeAdd(now, &AddToTxnRequest{TxnID: who(4), Partitions: []TopicPartition{p}, VerifyOnly: true}), nil)
}
