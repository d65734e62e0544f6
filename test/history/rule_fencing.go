package history

import (
	"cmp"
	"slices"
)

// Fencing is rule 17: once an InitProducerId has answered with a producer id and epoch, nothing that is invoked later
// under a smaller one of the same transactional id succeeds; and no pair is handed out twice, whoever asks.
func Fencing(x *Index, _ Options) (found []Violation) {
	type pair struct {
		id    int64
		epoch int16
	}
	given := map[pair]*Op{}
	highest := map[string][]*Op{} // of each transactional id, those that were the highest when they completed
	for _, o := range x.Ops {
		if o.Kind != Init || o.Type != OK {
			continue
		}
		p := pair{o.ProducerID, o.Epoch}
		if before := given[p]; before != nil {
			found = append(found, broken([]*Op{before, o}, "producer %d epoch %d was handed out twice", p.id, p.epoch))
		}
		given[p] = o
		if o.Transactional != "" {
			highest[o.Transactional] = append(highest[o.Transactional], o)
		}
	}
	for _, o := range x.Ops {
		fenced := o.Kind == Send || o.Kind == AddPartitions || o.Kind == End || o.Kind == CommitOffset
		if !fenced || o.Type != OK || o.Transactional == "" || o.ProducerID == 0 && o.Epoch == 0 && o.Kind == CommitOffset {
			continue
		}
		for _, by := range highest[o.Transactional] {
			if by.Complete < o.Invoke && older(o, by) {
				found = append(found, broken([]*Op{by, o}, "%s of producer %d epoch %d succeeded after %s had been given to producer %d epoch %d",
					o.Kind, o.ProducerID, o.Epoch, o.Transactional, by.ProducerID, by.Epoch))
				break
			}
		}
	}
	return found
}

// older says that an operation was made under a smaller pair than another.
func older(o, than *Op) bool {
	if c := cmp.Compare(o.ProducerID, than.ProducerID); c != 0 {
		return c < 0
	}
	return o.Epoch < than.Epoch
}

// fenceCodes are INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE (the broker knows of no transaction that could end so) and
// PRODUCER_FENCED.
var fenceCodes = []int16{47, 48, 90}

// GroundlessFence is the other half of rule 17: who is told that it may not go on was replaced, by an
// InitProducerId of its transactional id, or was late: its transaction had become older than the timeout, or was being
// ended by the producer itself. (A power cut
// that took records back fences as well; histories with one do not ask for this rule.)
func GroundlessFence(x *Index, opts Options) (found []Violation) {
	if opts.TransactionTimeout == 0 {
		return nil
	}
	inits := map[string][]*Op{}
	began := map[int64]int64{} // transactions, by their first operation
	for _, o := range x.Ops {
		if o.Kind == Init && o.Transactional != "" {
			inits[o.Transactional] = append(inits[o.Transactional], o)
		}
		if _, ok := began[o.Txn]; o.Txn != 0 && !ok {
			began[o.Txn] = o.Invoke
		}
		if o.Type != Fail || o.Kind == Init || o.Transactional == "" || !slices.Contains(fenceCodes, o.Code) {
			continue
		}
		var own *Op // the latest one that had answered before the transaction began
		replaced := false
		for _, i := range inits[o.Transactional] {
			switch {
			case i.Type == OK && i.actor() == o.actor() && i.Complete < began[o.Txn]:
				own, replaced = i, false
			case own != nil && i.Type != Fail:
				replaced = true
			}
		}
		ended := slices.ContainsFunc(x.txnEnds(o.Txn), func(e *Op) bool { return e != o && e.Type != Fail && e.Invoke < o.Complete })
		if own != nil && !replaced && !ended && o.Complete-began[o.Txn] < int64(opts.TransactionTimeout) {
			found = append(found, broken([]*Op{own, o}, "%s of producer %d epoch %d was fenced with code %d, and nobody had taken its place", o.Kind, o.ProducerID, o.Epoch, o.Code))
		}
	}
	return found
}

// txnEnds are the attempts to end a transaction.
func (x *Index) txnEnds(id int64) []*Op {
	if t := x.Txns[id]; t != nil {
		return t.Ends
	}
	return nil
}
