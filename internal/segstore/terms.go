package segstore

import "sort"

// termStart says that a leader term (Kafka's leader epoch) begins at an offset.
type termStart struct {
	term  int32
	start int64
}

// terms is the list of leader terms of a log, both columns rising (Kafka's
// LeaderEpochFileCache). The last one may have no batch yet.
type terms []termStart

func (t terms) last() int32 {
	if len(t) == 0 {
		return -1
	}
	return t[len(t)-1].term
}

// assign begins term at start if it is newer than all; older entries that
// would begin no earlier had no batch and go.
func (t terms) assign(term int32, start int64) terms {
	if term <= t.last() {
		return t
	}
	for len(t) > 0 && t[len(t)-1].start >= start {
		t = t[:len(t)-1]
	}
	return append(t[:len(t):len(t)], termStart{term, start})
}

// truncateEnd forgets terms that begin at end or later.
func (t terms) truncateEnd(end int64) terms {
	i := sort.Search(len(t), func(i int) bool { return t[i].start >= end })
	return t[:i:i]
}

// truncateStart forgets terms that ended at or before start; the one in force
// there now begins there.
func (t terms) truncateStart(start int64) terms {
	i := sort.Search(len(t), func(i int) bool { return t[i].start > start })
	if i == 0 {
		return t
	}
	out := append(terms{}, t[i-1:]...)
	out[0].start = start
	return out
}

// at is the term in force at offset, -1 if none.
func (t terms) at(offset int64) int32 {
	i := sort.Search(len(t), func(i int) bool { return t[i].start > offset })
	if i == 0 {
		return -1
	}
	return t[i-1].term
}

// endOf is the largest term <= term and where it ends; end is that of the log. A term older than all that are known
// (retention forgets terms with their records) ends where the oldest known one begins, whoever reads on from there
// has lost nothing; -1, -1 if nothing is known (Kafka's LeaderEpochFileCache.endOffsetFor).
func (t terms) endOf(term int32, end int64) (int32, int64) {
	i := sort.Search(len(t), func(i int) bool { return t[i].term > term })
	switch {
	case term < 0 || len(t) == 0:
		return -1, -1
	case i == 0:
		return term, t[0].start
	case i == len(t):
		return t[i-1].term, end
	}
	return t[i-1].term, t[i].start
}
