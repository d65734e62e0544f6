package history

// AbortedRead is rule 12: no reader of committed records sees one of a transaction that was aborted, or one that was
// refused; readers of everything see the aborted ones too, as with Kafka.
func AbortedRead(x *Index, _ Options) (found []Violation) {
	for _, o := range x.Ops {
		if o.Kind != Poll || !o.Committed {
			continue
		}
		for i := range o.Records {
			r := &o.Records[i]
			if r.Bad != "" || r.Value.Txn == 0 {
				continue
			}
			if t := x.Txns[r.Value.Txn]; t.Fate == Aborted {
				found = append(found, broken([]*Op{x.Sends[r.Value.Key()], t.aborted(), onlyRecord(o, ofValue(r.Value.Key()))},
					"read_committed showed value %s at %s-%d offset %d, of transaction %d, which was aborted", r.Value, r.Topic, r.Partition, r.Offset, t.ID))
			}
		}
	}
	for _, l := range x.Logs {
		for _, read := range l.Final[false] {
			for _, s := range l.Sends {
				if s.Txn != 0 && s.Type == OK && x.Txns[s.Txn].Fate == Aborted && !read.has[s.Value.Key()] && s.Complete < read.Invoke {
					found = append(found, broken([]*Op{s, onlyRecord(read.Op, ofValue(s.Value.Key()))}, "value %s of an aborted transaction was acknowledged and is not in the log", s.Value))
				}
			}
		}
	}
	return found
}

// aborted is the end that aborted a transaction, if it was asked for.
func (t *Txn) aborted() *Op {
	for _, e := range t.Ends {
		if e.Type == OK && !e.Commit {
			return e
		}
	}
	return nil
}

// Atomicity is rule 13: of a transaction that committed (it was acknowledged, or one of its records was seen under
// read_committed) everything took effect: each record that was acknowledged is in the final read, and each offset in it is
// at least reached by the group. No transaction ends both ways. Of an aborted one no offset is seen.
func Atomicity(x *Index, opts Options) (found []Violation) {
	final := map[groupPlace]*Op{}
	for _, o := range x.Ops {
		if o.Kind == FetchOffset && o.Final && o.Type == OK {
			final[o.groupPlace()] = o
		}
	}
	for _, o := range x.Ops {
		if o.Kind == End && o.Type == OK && x.Txns[o.Txn].Ends[0] == o {
			found = append(found, x.Txns[o.Txn].bothWays()...)
		}
		if o.Kind == Send && o.Txn != 0 && o.Type == OK && x.Txns[o.Txn].Must() {
			for _, read := range x.Logs[o.place()].Final[true] {
				if read.Invoke > o.Complete && !read.has[o.Value.Key()] {
					t := x.Txns[o.Txn]
					found = append(found, broken([]*Op{o, x.commitOf(o), onlyRecord(read.Op, func(r Record) bool { return r.Value.Txn == t.ID })},
						"transaction %d committed and its value %s is not seen", t.ID, o.Value))
				}
			}
		}
		if o.Kind == CommitOffset && o.Txn != 0 && o.Type == OK && x.Txns[o.Txn].Must() {
			if last := final[o.groupPlace()]; last != nil && last.Offset < o.Offset && last.Invoke > o.Complete && opts.Rising[o.Group] {
				found = append(found, broken([]*Op{o, x.Txns[o.Txn].Seen, last}, "transaction %d committed offset %d of %s and the group is at %d", o.Txn, o.Offset, o.place(), last.Offset))
			}
		}
	}
	return append(found, ghostOffsets(x)...)
}

func (t *Txn) bothWays() (found []Violation) {
	for _, a := range t.Ends {
		for _, b := range t.Ends {
			if a.Type == OK && b.Type == OK && a.Commit && !b.Commit {
				return []Violation{broken([]*Op{a, b}, "transaction %d was committed and aborted", t.ID)}
			}
		}
	}
	return nil
}

// ghostOffsets wants each offset that was read to have been written: by a plain commit that did not surely fail, or by a
// transaction that did not surely abort, in either case invoked before the read completed (rule 22).
func ghostOffsets(x *Index) (found []Violation) {
	written := map[groupPlace]map[register]int64{} // when the earliest write of the value was invoked
	for _, o := range x.Ops {
		if o.Kind != CommitOffset || o.Type == Fail {
			continue
		}
		at := o.Invoke
		if o.Txn != 0 {
			t := x.Txns[o.Txn]
			if t.Fate == Aborted || len(t.Ends) == 0 {
				continue
			}
			at = t.firstCommit()
		}
		g := o.groupPlace()
		if written[g] == nil {
			written[g] = map[register]int64{}
		}
		if before, ok := written[g][o.register()]; !ok || at < before {
			written[g][o.register()] = at
		}
	}
	for _, o := range x.Ops {
		if o.Kind != FetchOffset || o.Type != OK || o.Offset < 0 {
			continue
		}
		if at, ok := written[o.groupPlace()][o.register()]; !ok || at > o.Complete {
			found = append(found, broken([]*Op{o}, "group %s is at offset %d (%q) of %s, which no transaction that was asked to commit and no plain commit had written",
				o.Group, o.Offset, o.Metadata, o.place()))
		}
	}
	return found
}

// firstCommit is when the transaction was first asked to commit; Never if it was not.
func (t *Txn) firstCommit() int64 {
	for _, e := range t.Ends {
		if e.Commit && e.Type != Fail {
			return e.Invoke
		}
	}
	return Never
}

// EarlyRead is rule 14: a read under read_committed that shows a record of a transaction did not complete before its
// commit was asked for.
func EarlyRead(x *Index, _ Options) (found []Violation) {
	for _, o := range x.Ops {
		if o.Kind != Poll || !o.Committed || o.Type == Fail {
			continue
		}
		for i := range o.Records {
			r := &o.Records[i]
			if r.Bad != "" || r.Value.Txn == 0 {
				continue
			}
			t := x.Txns[r.Value.Txn]
			if t.firstCommit() <= o.Complete || t.Fate == Aborted && r.Value.Txn != o.Txn { // rule 12 reports the aborted
				continue
			}
			var asked *Op
			if len(t.Ends) > 0 {
				asked = t.Ends[0]
			}
			found = append(found, broken([]*Op{x.Sends[r.Value.Key()], onlyRecord(o, ofValue(r.Value.Key())), asked},
				"read_committed showed value %s at %s-%d offset %d before the commit of transaction %d was asked for", r.Value, r.Topic, r.Partition, r.Offset, t.ID))
		}
	}
	return found
}
