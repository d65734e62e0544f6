package history

// ExactlyOnce is rule 16: what a pipeline copied is in the final read_committed read of its topic once for each record
// below the offset that the copying group has committed, and nothing is there of records above it.
func ExactlyOnce(x *Index, opts Options) (found []Violation) {
	for out, in := range opts.Source {
		copies := map[Place]map[int64]Key{} // by partition and offset of the source
		var read bool
		for place, l := range x.Logs {
			if place.Topic != out || len(l.Final[true]) == 0 {
				continue
			}
			read = true
			last := l.Final[true][len(l.Final[true])-1]
			for _, r := range last.Records {
				if !r.Value.Copied {
					continue
				}
				source := Place{in, r.Value.SourcePartition}
				if copies[source] == nil {
					copies[source] = map[int64]Key{}
				}
				if before, ok := copies[source][r.Value.SourceOffset]; ok {
					found = append(found, broken([]*Op{x.Sends[before], x.Sends[r.Value.Key()], onlyRecord(last.Op, ofValue(r.Value.Key()))},
						"%s offset %d was copied to %s twice: as %v and as %s", source, r.Value.SourceOffset, out, before, r.Value))
				}
				copies[source][r.Value.SourceOffset] = r.Value.Key()
			}
		}
		if read {
			found = append(found, x.gaps(out, in, opts.Copier[out], copies)...)
		}
	}
	return found
}

// gaps compares the copies of a topic with the group's last offsets.
func (x *Index) gaps(out, in, group string, copies map[Place]map[int64]Key) (found []Violation) {
	for _, o := range x.Ops {
		if o.Kind != FetchOffset || !o.Final || o.Type != OK || o.Group != group || o.Topic != in {
			continue
		}
		source := o.place()
		for _, offset := range x.log(source).visible {
			key, copied := copies[source][offset]
			switch {
			case offset < o.Offset && !copied:
				found = append(found, broken([]*Op{o}, "%s offset %d is below %s's offset %d and was not copied to %s", source, offset, group, o.Offset, out))
			case offset >= o.Offset && copied:
				found = append(found, broken([]*Op{x.Sends[key], o}, "%s offset %d was copied to %s and %s is at %d", source, offset, out, group, o.Offset))
			}
		}
	}
	return found
}

// Money is the other form of rule 16: the amounts of the transactions that end below a last stable offset add up to nothing. (Of one
// that ends above it some records may lie below, wherever records of transactions interleave.).
func Money(x *Index, opts Options) (found []Violation) {
	for _, o := range x.Ops {
		if o.Kind == Snapshot && o.Type == OK && o.Sum != 0 {
			found = append(found, broken([]*Op{o}, "the amounts of the transactions that end in %s below its stable offset %d add up to %d", o.place(), o.Offset, o.Sum))
		}
	}
	for _, topic := range opts.Money {
		sum, read := int64(0), false
		var evidence []*Op
		for place, l := range x.Logs {
			if place.Topic != topic || len(l.Final[true]) == 0 {
				continue
			}
			read = true
			last := l.Final[true][len(l.Final[true])-1]
			evidence = append(evidence, onlyRecord(last.Op, func(Record) bool { return false }))
			for _, r := range last.Records {
				sum += r.Value.Amount
			}
		}
		if read && sum != 0 {
			found = append(found, broken(evidence, "all amounts of %s add up to %d", topic, sum))
		}
	}
	return found
}
