package history

import (
	"cmp"
	"slices"
)

// Agreement is rule 1: no offset of a partition holds two values, whoever says so: an acknowledgement or a read under
// either isolation, before or after a restart.
func Agreement(x *Index, _ Options) (found []Violation) {
	for _, l := range x.Logs {
		for _, offset := range l.offsets {
			if values := l.At[offset]; len(values) > 1 {
				found = append(found, broken([]*Op{values[0].shown(), values[1].shown()}, "%s offset %d holds %d values: %v and %v",
					l.Place, offset, len(values), values[0].key, values[1].key))
			}
		}
	}
	return found
}

// shown is the operation with nothing but the value.
func (s sighting) shown() *Op { return onlyRecord(s.op, ofValue(s.key)) }

// NoDuplicate is rule 2: each value has one offset in one partition. All producers are idempotent or transactional.
func NoDuplicate(x *Index, _ Options) (found []Violation) {
	type spot struct {
		place  Place
		offset int64
		sighting
	}
	first := map[Key]spot{}
	for _, l := range x.Logs {
		for _, offset := range l.offsets {
			for _, s := range l.At[offset] {
				if before, ok := first[s.key]; ok {
					found = append(found, broken([]*Op{before.shown(), s.shown()}, "value %v is at %s offset %d and at %s offset %d",
						s.key, before.place, before.offset, l.Place, offset))
					continue
				}
				first[s.key] = spot{l.Place, offset, s}
			}
		}
	}
	return found
}

// NoLostWrite is rule 3: a record that was certainly written is read. Where a partition was read as a whole at the end,
// such a read has every one of them; otherwise some read has every one up to the highest offset that any read reached.
func NoLostWrite(x *Index, _ Options) (found []Violation) {
	for _, l := range x.Logs {
		for _, committed := range []bool{false, true} {
			for _, read := range l.Final[committed] {
				for _, s := range l.Sends {
					if sure := x.must(s) || !committed && s.Type == OK; sure && !read.has[s.Value.Key()] && s.Complete < read.Invoke {
						found = append(found, broken([]*Op{s, x.commitOf(s), onlyRecord(read.Op, ofValue(s.Value.Key()))},
							"value %s was acknowledged at %s offset %d and is not in the log (read_committed=%t)", s.Value, l.Place, s.Offset, committed))
					}
				}
			}
		}
		if len(l.Final) == 0 {
			found = append(found, l.lostSoFar(x)...)
		}
	}
	return found
}

// commitOf is the end that made a send's transaction certain.
func (x *Index) commitOf(s *Op) *Op {
	if s.Txn == 0 {
		return nil
	}
	t := x.Txns[s.Txn]
	for _, e := range t.Ends {
		if e.Type == OK && e.Commit {
			return e
		}
	}
	return t.Seen
}

// lostSoFar is the running form of rule 3.
func (l *Log) lostSoFar(x *Index) (found []Violation) {
	bound := int64(-1)
	for offset, values := range l.At {
		if slices.ContainsFunc(values, func(s sighting) bool { return l.Read[s.key] }) {
			bound = max(bound, offset)
		}
	}
	for _, s := range l.Sends {
		if x.must(s) && s.Offset >= 0 && s.Offset <= bound && !l.Read[s.Value.Key()] {
			found = append(found, broken([]*Op{s, x.commitOf(s)}, "value %s at %s offset %d was passed by readers that came to %d, and none of them has it",
				s.Value, l.Place, s.Offset, bound))
		}
	}
	return found
}

// AckTruth is rule 4: what is read at an acknowledged offset is what was sent, and an acknowledged offset is no other
// record's.
func AckTruth(x *Index, _ Options) (found []Violation) {
	at := map[Key]int64{}
	where := map[Key]*Op{}
	for _, o := range x.Ops {
		if o.Kind != Poll {
			continue
		}
		for i := range o.Records {
			if r := &o.Records[i]; r.Bad == "" {
				at[r.Value.Key()], where[r.Value.Key()] = r.Offset, o
			}
		}
	}
	for k, s := range x.Sends {
		if s.Type != OK || s.Offset < 0 {
			continue
		}
		if offset, ok := at[k]; ok && offset != s.Offset {
			found = append(found, broken([]*Op{s, onlyRecord(where[k], ofValue(k))}, "value %v was acknowledged at %s offset %d and read at %d", k, s.place(), s.Offset, offset))
		}
	}
	return sorted(found)
}

// NoPhantom is rule 5: what is read was sent before, to that partition, and has the bytes that were sent.
func NoPhantom(x *Index, _ Options) (found []Violation) {
	for _, o := range x.Ops {
		if o.Kind != Poll {
			continue
		}
		for i := range o.Records {
			r := o.Records[i]
			only := onlyRecord(o, func(c Record) bool { return c.Offset == r.Offset && c.Topic == r.Topic && c.Partition == r.Partition })
			s := x.Sends[r.Value.Key()]
			switch {
			case r.Bad != "":
				found = append(found, broken([]*Op{only}, "%s-%d offset %d: %s", r.Topic, r.Partition, r.Offset, r.Bad))
			case s == nil:
				found = append(found, broken([]*Op{only}, "%s-%d offset %d holds value %s, which nobody sent", r.Topic, r.Partition, r.Offset, r.Value))
			case s.Invoke > o.Complete:
				found = append(found, broken([]*Op{s, only}, "value %s was read before it was sent", r.Value))
			case s.Topic != r.Topic || s.Partition >= 0 && s.Partition != r.Partition:
				found = append(found, broken([]*Op{s, only}, "value %s was sent to %s and read in %s-%d", r.Value, s.place(), r.Topic, r.Partition))
			case s.Value != r.Value:
				found = append(found, broken([]*Op{s, only}, "value %s was sent as %+v and read as %+v", r.Value, s.Value, r.Value))
			case s.Type == Fail && s.Txn == 0:
				found = append(found, broken([]*Op{s, only}, "value %s was refused and is in the log", r.Value))
			}
		}
	}
	return found
}

// sorted orders violations by their first evidence, so that two runs of the checker say the same.
func sorted(found []Violation) []Violation {
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.Evidence[0].Invoke, b.Evidence[0].Invoke) })
	return found
}
