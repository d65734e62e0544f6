package coordinator

import (
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// lastEpoch is the highest epoch a producer writes under; its marker has one more. Then it gets another producer id.
const lastEpoch = meta.LastProducerEpoch

// txn is what is known of one transactional id: the stored row, and what only memory has. It is changed on its shard's
// goroutine, when what it became is stored.
type txn struct {
	row meta.TransactionRow // Version 0: there is none yet
	// known says that a decision was applied since the start. Before that nobody can say what was added.
	known   bool
	added   map[TopicPartition]bool // partitions added since the last decision, by old clients
	groups  map[string]bool
	pending map[groupPartition]meta.PendingOffsetRow // stored offsets that wait for the decision
	newest  [2]uint64                                // by role: the newest connection that has spoken for this id
	since   time.Time                                // when what is open was first heard of, zero nothing is
}

type groupPartition struct {
	group string
	TopicPartition
}

// Roles of a connection: a client may use one for each coordinator.
const (
	roleTxn = iota
	roleGroup
)

func newTxn(id string) txn {
	t := txn{row: meta.TransactionRow{ID: id, ProducerID: -1, LastEpoch: -1, DecidedProducerID: -1, DecidedEpoch: -1, MarkerEpoch: -1, DecidedTerm: -1}}
	t.forget()
	return t
}

func (t *txn) exists() bool { return t.row.Version != 0 }

// forget drops what belongs to the transaction that was decided.
func (t *txn) forget() {
	t.added, t.groups, t.pending = map[TopicPartition]bool{}, map[string]bool{}, map[groupPartition]meta.PendingOffsetRow{}
	t.since = time.Time{}
}

func (t *txn) addedAny() bool { return len(t.added)+len(t.groups) > 0 }

// judge says whether somebody speaks for this id now.
func (t *txn) judge(who TxnID, fenced error) error {
	switch {
	case !t.exists() || who.ProducerID != t.row.ProducerID:
		return ErrProducerMapping
	case who.Epoch != t.row.Epoch:
		return fenced
	}
	return nil
}

// hear refuses a late request of an old client: its epoch cannot tell one transaction from the next. It comes after
// judge.
func (t *txn) hear(role int, connection uint64, oldClient bool) error {
	if oldClient && connection < t.newest[role] && !seededbug.On(seededbug.LateOldClient) {
		return ErrStaleConnection
	}
	t.newest[role] = max(t.newest[role], connection)
	return nil
}

// fencedCode is what a fenced producer hears: PRODUCER_FENCED where the version knows it.
func fencedCode(knows bool) error {
	if knows {
		return ErrProducerFenced
	}
	return ErrProducerEpoch
}

// decider is who ends a transaction: it says what becomes of the epochs.
type decider int

const (
	byEnd     decider = iota // EndTxn up to v4: the epoch stays
	byEndBump                // EndTxn from v5
	byBroker                 // timeout, or records that a power cut took back
	byInit                   // InitProducerId: nobody may repeat what the old epoch asked
	byRecover                // InitProducerId with producer id and epoch (KIP-360)
)

// verdict on a request: an answer, or a decision to take.
type verdict struct {
	decide bool
	err    error
}

// judgeEnd is the table of EndTxn. open says that a log has an open entry of the producer, or an offset is pending.
func (t *txn) judgeEnd(r *EndTxnRequest, open bool) verdict {
	fenced := fencedCode(r.Version >= 2)
	row := &t.row
	outcome := outcomeOf(r.Commit)
	bump := r.Version >= 5
	switch {
	case bump && t.repeats(r) && row.Outcome == outcome:
		return verdict{}
	case bump && t.repeats(r):
		return verdict{err: ErrTxnState}
	case !t.exists() || r.ProducerID != row.ProducerID:
		return verdict{err: ErrProducerMapping}
	}
	if seededbug.On(seededbug.AcceptStaleEndTxn) {
		r.Epoch = max(r.Epoch, row.Epoch)
	}
	if r.Epoch != row.Epoch {
		return verdict{err: fenced}
	}
	if err := t.hear(roleTxn, r.Connection, !bump); err != nil {
		return verdict{err: err}
	}
	decided := row.Outcome != meta.OutcomeNone && row.DecidedEpoch == r.Epoch && row.DecidedProducerID == row.ProducerID
	switch {
	case open, t.known && t.addedAny():
		return verdict{decide: true}
	case decided && !bump && row.Outcome == outcome:
		return verdict{}
	case decided && !bump && !seededbug.On(seededbug.EndOfNothing):
		return verdict{err: ErrTxnState}
	case !t.known:
		return verdict{decide: true}
	case bump && !r.Commit:
		return verdict{decide: true}
	case seededbug.On(seededbug.EndOfNothing):
		return verdict{}
	}
	return verdict{err: ErrTxnState}
}

// repeats says that the request is that of the last decision once more, whose answer was lost: its ids are those before the
// ones that the answer carried, which are the next epoch, or another producer id where there was none.
func (t *txn) repeats(r *EndTxnRequest) bool {
	row := &t.row
	if row.Outcome == meta.OutcomeNone || r.ProducerID != row.DecidedProducerID || r.Epoch != row.DecidedEpoch || r.Epoch != row.LastEpoch {
		return false
	}
	if row.ProducerID == row.DecidedProducerID {
		return row.Epoch == r.Epoch+1
	}
	return r.Epoch == lastEpoch && row.Epoch == 0
}

// judgeInit is InitProducerId. by is whose decision it is.
func (t *txn) judgeInit(r *InitTxnRequest, open bool) (v verdict, by decider) {
	if r.ProducerID < 0 || !t.exists() {
		return verdict{decide: true}, byInit
	}
	switch {
	case r.ProducerID != t.row.ProducerID:
	case r.Epoch == t.row.Epoch:
		return verdict{decide: true}, byRecover
	case r.Epoch == t.row.LastEpoch && t.row.Epoch == r.Epoch+1 && !open:
		return verdict{}, byRecover
	}
	return verdict{err: fencedCode(r.Version >= 4)}, byRecover
}

// judgeAdd is AddPartitionsToTxn and AddOffsetsToTxn; what is allowed is added.
func (t *txn) judgeAdd(now time.Time, r *AddToTxnRequest) error {
	if err := t.judge(r.TxnID, fencedCode(r.Fenced)); err != nil {
		return err
	}
	if r.VerifyOnly {
		if slices.ContainsFunc(r.Partitions, func(p TopicPartition) bool { return t.known && !t.added[p] }) {
			return ErrTxnAbortable
		}
		return nil
	}
	if err := t.hear(roleTxn, r.Connection, r.OldClient); err != nil {
		return err
	}
	for _, p := range r.Partitions {
		t.added[p] = true
	}
	if r.Group != "" {
		t.groups[r.Group] = true
	}
	if t.since.IsZero() {
		t.since = now
	}
	return nil
}

// judgeOffsets is TxnOffsetCommit.
func (t *txn) judgeOffsets(r *TxnCommitRequest) error {
	if err := t.judge(r.TxnID, ErrProducerEpoch); err != nil {
		return err
	}
	if err := t.hear(roleGroup, r.Connection, r.Version < 5); err != nil {
		return err
	}
	switch {
	case r.Version >= 5, !t.known, t.groups[r.Group]:
		return nil
	case r.Version == 4:
		return ErrTxnAbortable
	}
	return ErrTxnState
}

func outcomeOf(commit bool) meta.Outcome {
	if commit {
		return meta.OutcomeCommit
	}
	return meta.OutcomeAbort
}

// needsProducerID says whether a decision has to give out another producer id.
func (t *txn) needsProducerID(by decider) bool {
	return !t.exists() || by != byEnd && t.row.Epoch >= lastEpoch
}

// decision is the row after a decision. list is what is open in the logs; open says whether anything is, offsets
// included. newID is used where needsProducerID says so.
func (t *txn) decision(by decider, commit bool, list []meta.TransactionPartition, open bool, newID int64, term int32) meta.TransactionRow {
	row := t.row
	row.Known = row.Version
	row.Partitions = list
	if open || by == byEnd || by == byEndBump {
		row.Outcome, row.DecidedProducerID, row.DecidedEpoch = outcomeOf(commit), t.row.ProducerID, t.row.Epoch
		row.DecidedBy, row.DecidedTerm = "broker", term
	}
	switch {
	case !t.exists():
		row.ProducerID, row.Epoch, row.LastEpoch = newID, 0, -1
		return row
	case by == byEnd, by == byBroker && seededbug.On(seededbug.ReaperKeepsEpoch):
		row.MarkerEpoch = row.Epoch
		return row
	case row.Epoch >= lastEpoch:
		row.MarkerEpoch = row.Epoch + 1
		row.ProducerID, row.Epoch, row.LastEpoch = newID, 0, -1
		if by == byEndBump {
			row.LastEpoch = t.row.Epoch // of the old id, see repeats
		}
		return row
	}
	row.LastEpoch = row.Epoch
	row.Epoch++
	row.MarkerEpoch = row.Epoch
	if by == byInit && !seededbug.On(seededbug.InitKeepsLastEpoch) {
		row.LastEpoch = -1
	}
	return row
}

// markers is what the logs have to write for the stored decision.
func (t *txn) markers(term int32) TxnEnding {
	return TxnEnding{ProducerID: t.row.DecidedProducerID, MarkerEpoch: t.row.MarkerEpoch, Commit: t.row.Outcome == meta.OutcomeCommit,
		CoordinatorTerm: term, Partitions: t.row.Partitions}
}

// both joins lists of partitions; first offsets do not matter.
func both(a, b []meta.TransactionPartition) []meta.TransactionPartition {
	out := slices.Clone(a)
	for _, p := range b {
		if !slices.ContainsFunc(a, func(q meta.TransactionPartition) bool { return q.TopicID == p.TopicID && q.Partition == p.Partition }) {
			out = append(out, p)
		}
	}
	return out
}
