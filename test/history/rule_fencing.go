package history

import "cmp"

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
