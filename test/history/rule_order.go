package history

import (
	"cmp"
	"slices"
)

// RealTimeOrder is rule 6: a record that was acknowledged before another one was sent to its partition has the lower
// offset.
func RealTimeOrder(x *Index, _ Options) (found []Violation) {
	for _, l := range x.Logs {
		var sends []*Op
		for _, s := range l.Sends {
			if s.Type == OK && s.Offset >= 0 {
				sends = append(sends, s)
			}
		}
		completed := slices.Clone(sends)
		slices.SortFunc(completed, func(a, b *Op) int { return cmp.Compare(a.Complete, b.Complete) })
		var highest *Op // of those that completed before the send at hand was invoked
		next := 0
		for _, s := range sends {
			for ; next < len(completed) && completed[next].Complete < s.Invoke; next++ {
				if c := completed[next]; highest == nil || c.Offset > highest.Offset {
					highest = c
				}
			}
			if highest != nil && highest.Offset >= s.Offset {
				found = append(found, broken([]*Op{highest, s}, "in %s value %s was acknowledged at offset %d before value %s was sent, which has offset %d",
					l.Place, highest.Value, highest.Offset, s.Value, s.Offset))
			}
		}
	}
	return found
}

// ProducerOrder is rule 7: the records of one producer have rising offsets in a partition, in the order they were sent.
// One whose outcome is unknown counts where it was read.
func ProducerOrder(x *Index, _ Options) (found []Violation) {
	read := x.offsetsRead()
	for _, l := range x.Logs {
		last := map[actor]*Op{}
		lastAt := map[actor]int64{}
		for _, s := range l.Sends {
			offset := s.Offset
			if s.Type != OK || offset < 0 {
				var ok bool
				if offset, ok = read[s.Value.Key()]; !ok {
					continue
				}
			}
			a := s.actor()
			if before := last[a]; before != nil && lastAt[a] >= offset {
				found = append(found, broken([]*Op{before, s}, "in %s value %s is at offset %d, and value %s, sent before it, at %d",
					l.Place, s.Value, offset, before.Value, lastAt[a]))
				continue
			}
			last[a], lastAt[a] = s, offset
		}
	}
	return found
}

// ConsumerOrder is rule 8: within an assignment a reader sees each record after the one before it: none twice, none
// backwards, none left out that readers of its isolation see.
func ConsumerOrder(x *Index, _ Options) (found []Violation) {
	type reader struct {
		actor
		Place
		assignment int
		committed  bool
	}
	type position struct {
		offset int64
		op     *Op
	}
	last := map[reader]position{}
	for _, o := range x.Ops {
		if o.Kind != Poll || o.Type == Fail {
			continue
		}
		for _, r := range o.Records {
			who := reader{o.actor(), Place{r.Topic, r.Partition}, o.Assignment, o.Committed}
			before, ok := last[who]
			last[who] = position{r.Offset, o}
			if !ok {
				continue
			}
			l := x.Logs[who.Place]
			if l == nil { // only bad records, which rule 5 reports
				continue
			}
			shown := []*Op{onlyRecord(before.op, at(who.Place, before.offset)), onlyRecord(o, at(who.Place, r.Offset))}
			if r.Offset <= before.offset {
				found = append(found, broken(shown, "%s/%d read %s offset %d after %d", o.Process, o.Incarnation, who.Place, r.Offset, before.offset))
				continue
			}
			known := l.offsets
			if o.Committed {
				known = l.visible
			}
			i, _ := slices.BinarySearch(known, before.offset+1)
			if i < len(known) && known[i] < r.Offset {
				skipped := l.At[known[i]][0]
				found = append(found, broken(append(shown, skipped.shown()), "%s/%d read %s offset %d after %d and left %d out",
					o.Process, o.Incarnation, who.Place, r.Offset, before.offset, known[i]))
			}
		}
	}
	return found
}

// at selects the record of an offset.
func at(p Place, offset int64) func(Record) bool {
	return func(r Record) bool { return r.Topic == p.Topic && r.Partition == p.Partition && r.Offset == offset }
}
