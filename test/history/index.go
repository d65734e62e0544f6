package history

import (
	"cmp"
	"slices"
)

// Index is a history sorted for the rules. It is not changed once it is made.
type Index struct {
	Ops      []*Op // by time of invocation
	Sends    map[Key]*Op
	Twice    []*Op // sends of a value that had been sent already: the recorder's fault
	Logs     map[Place]*Log
	Txns     map[int64]*Txn
	LastHeal int64 // when the last fault was over, -1 if there was none
}

// Log is what is known of one partition.
type Log struct {
	Place
	At      map[int64][]sighting // by offset: the different values that were acknowledged or read there
	Sends   []*Op                // by time of invocation
	Read    map[Key]bool         // read by anyone
	Visible map[Key]bool         // read under read_committed
	Final   map[bool][]*Whole    // reads of the whole partition at the end, by read_committed
	offsets []int64              // known offsets, sorted
	visible []int64              // offsets of records that read_committed showed, sorted
}

// Whole is a read of a whole partition at the end.
type Whole struct {
	*Op
	has map[Key]bool
}

// sighting is one value at an offset, and the operation that said so first.
type sighting struct {
	key Key
	op  *Op
}

// Txn is what is known of one transaction.
type Txn struct {
	ID      int64
	Sends   []*Op
	Polls   []*Op
	Commits []*Op // of offsets
	Ends    []*Op // attempts to end it, by time
	Fate    Fate
	Seen    *Op // a read_committed read of one of its values
}

// Fate is what became of a transaction.
type Fate int

const (
	Unknown   Fate = iota
	Committed      // acknowledged
	Aborted        // acknowledged, or never ended before its producer was initialised anew
)

// Must says that the transaction has certainly committed: it was acknowledged, or seen.
func (t *Txn) Must() bool { return t.Fate == Committed || t.Fate == Unknown && t.Seen != nil }

// NewIndex sorts a history.
func NewIndex(h History) *Index {
	x := &Index{Sends: map[Key]*Op{}, Logs: map[Place]*Log{}, Txns: map[int64]*Txn{}, LastHeal: -1}
	for i := range h.Ops {
		x.Ops = append(x.Ops, &h.Ops[i])
	}
	slices.SortStableFunc(x.Ops, func(a, b *Op) int { return cmp.Compare(a.Invoke, b.Invoke) })
	for _, o := range x.Ops {
		x.add(o)
	}
	x.settleFates()
	for _, l := range x.Logs {
		l.sort(x)
	}
	return x
}

// log is the log of a partition; it is made at its first mention.
func (x *Index) log(p Place) *Log {
	l := x.Logs[p]
	if l == nil {
		l = &Log{Place: p, At: map[int64][]sighting{}, Read: map[Key]bool{}, Visible: map[Key]bool{}, Final: map[bool][]*Whole{}}
		x.Logs[p] = l
	}
	return l
}

// txn is the transaction of an id; it is made at its first mention.
func (x *Index) txn(id int64) *Txn {
	t := x.Txns[id]
	if t == nil {
		t = &Txn{ID: id}
		x.Txns[id] = t
	}
	return t
}

func (x *Index) add(o *Op) {
	switch o.Kind {
	case Send:
		if x.Sends[o.Value.Key()] != nil {
			x.Twice = append(x.Twice, o)
		}
		x.Sends[o.Value.Key()] = o
		l := x.log(o.place())
		l.Sends = append(l.Sends, o)
		if o.Type == OK && o.Offset >= 0 {
			l.see(o.Offset, o.Value.Key(), o)
		}
		if o.Txn != 0 {
			x.txn(o.Txn).Sends = append(x.txn(o.Txn).Sends, o)
		}
	case Poll:
		x.addPoll(o)
	case End:
		x.txn(o.Txn).Ends = append(x.txn(o.Txn).Ends, o)
	case CommitOffset:
		if o.Txn != 0 {
			x.txn(o.Txn).Commits = append(x.txn(o.Txn).Commits, o)
		}
	case Heal:
		x.LastHeal = max(x.LastHeal, o.Complete)
	}
}

// addPoll enters what a read saw, whatever became of its own transaction.
func (x *Index) addPoll(o *Op) {
	if o.Txn != 0 {
		x.txn(o.Txn).Polls = append(x.txn(o.Txn).Polls, o)
	}
	if o.Final {
		l := x.log(o.place())
		w := &Whole{o, map[Key]bool{}}
		for _, r := range o.Records {
			w.has[r.Value.Key()] = true
		}
		l.Final[o.Committed] = append(l.Final[o.Committed], w)
	}
	for i := range o.Records {
		r := &o.Records[i]
		if r.Bad != "" {
			continue
		}
		l := x.log(Place{r.Topic, r.Partition})
		l.see(r.Offset, r.Value.Key(), o)
		l.Read[r.Value.Key()] = true
		if o.Committed {
			l.Visible[r.Value.Key()] = true
			if r.Value.Txn != 0 && x.txn(r.Value.Txn).Seen == nil {
				x.txn(r.Value.Txn).Seen = o
			}
		}
	}
}

// see enters a value at an offset, if it is not known there.
func (l *Log) see(offset int64, k Key, o *Op) {
	if !slices.ContainsFunc(l.At[offset], func(s sighting) bool { return s.key == k }) {
		l.At[offset] = append(l.At[offset], sighting{k, o})
	}
}

// settleFates decides what became of each transaction. The last end that was acknowledged counts; one that was never
// asked to end has failed once its producer was initialised anew under the same transactional id.
func (x *Index) settleFates() {
	inits := map[string]int64{} // the latest invocation of an acknowledged one, by transactional id
	for _, o := range x.Ops {
		if o.Kind == Init && o.Type == OK && o.Transactional != "" {
			inits[o.Transactional] = o.Invoke
		}
	}
	for _, t := range x.Txns {
		asked := false
		for _, e := range t.Ends {
			asked = asked || e.Commit && e.Type != Fail
			switch {
			case e.Type == OK && e.Commit:
				t.Fate = Committed
			case e.Type == OK && t.Fate == Unknown:
				t.Fate = Aborted
			}
		}
		if t.Fate == Unknown && !asked && len(t.Sends) > 0 {
			first := t.Sends[0]
			if at, ok := inits[first.Transactional]; ok && first.Transactional != "" && at > t.lastSend() {
				t.Fate = Aborted
			}
		}
	}
}

// lastSend is when the last record of the transaction was acknowledged, or given up.
func (t *Txn) lastSend() (at int64) {
	for _, s := range t.Sends {
		if s.Complete != Never {
			at = max(at, s.Complete)
		}
		at = max(at, s.Invoke)
	}
	return at
}

// must says that a record was certainly written and is to be seen under read_committed.
func (x *Index) must(send *Op) bool {
	if send.Txn != 0 {
		return send.Type == OK && x.Txns[send.Txn].Must()
	}
	return send.Type == OK
}

// sort makes the sorted lists of a log.
func (l *Log) sort(x *Index) {
	for offset, values := range l.At {
		l.offsets = append(l.offsets, offset)
		if slices.ContainsFunc(values, func(s sighting) bool { return l.Visible[s.key] }) {
			l.visible = append(l.visible, offset)
		}
	}
	slices.Sort(l.offsets)
	slices.Sort(l.visible)
}

// offsetsRead is where each value was acknowledged or read.
func (x *Index) offsetsRead() map[Key]int64 {
	at := map[Key]int64{}
	for _, l := range x.Logs {
		for offset, values := range l.At {
			for _, s := range values {
				at[s.key] = offset
			}
		}
	}
	return at
}
