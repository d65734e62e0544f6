package meta

import (
	"cmp"
	"slices"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// Resolve asks what became of a shard's commits: after a commit of unknown outcome, after a guard that missed, when a
// renewal has seen a lower seq than the known one, or when the server is another one. The guard row is locked and read; what
// follows from it is written under the same lock, so a statement of a lost session cannot come later.
type Resolve struct {
	Shard   int16
	Term    int32
	Seq     int64 // the highest known
	Unknown bool  // a commit that would make it Seq+1 is under way, or was
	// Settled is the highest seq that no crash of the server can take back. Less than that is stored only if the database
	// has gone back, and then everything must be put back.
	Settled int64
	// Missing is what was committed up to Seq and is not settled, each row once. It is put back if less than Seq is stored.
	Missing ShardChange
	// All is everything that the shard holds. It is put back whatever is stored; what is stored beside it, of versions up
	// to Highest, goes.
	All     *ShardRows
	Highest int64
}

// Unknown asks about one commit whose outcome is not known, and nothing else.
func Unknown(changes ...ShardChange) []Resolve {
	asked := make([]Resolve, len(changes))
	for i, c := range changes {
		asked[i] = Resolve{Shard: c.Shard, Term: c.Term, Seq: c.Seq, Unknown: true}
	}
	return asked
}

// Resolved is the outcome for one shard.
type Resolved struct {
	Shard      int16
	TookEffect bool      // the unknown commit is stored
	Seq        int64     // the shard's seq now; the unknown commit cannot take effect any more
	NeedAll    bool      // nothing was done: ask again, with All
	PutBack    int       // rows that were missing, or older than they should be
	Removed    int       // rows that should be gone
	Found      ShardRows // rows that somebody else has written, of versions above ours
}

// ResolveSeq decides from the stored seq, under the guard's lock. putBack says whether rows must be compared.
func ResolveSeq(r Resolve, stored int64) (out Resolved, putBack bool) {
	out = Resolved{Shard: r.Shard, Seq: stored}
	switch {
	case r.Unknown && stored == r.Seq+1:
		out.TookEffect = true
		if seededbug.On(seededbug.ResolveMovesSeq) {
			out.Seq++
		}
		return out, false
	case r.All != nil:
	case stored < r.Settled && !seededbug.On(seededbug.OnlyMissingAfterFork):
		out.NeedAll = true
		return out, false
	case r.Unknown && stored > r.Seq, !r.Unknown && stored >= r.Seq: // an earlier resolve has done it; nothing is missing
		return out, false
	}
	out.Seq = max(stored+1, r.Seq+2)
	if seededbug.On(seededbug.SeqNotRaised) {
		out.Seq = stored
	}
	return out, r.All != nil || stored < r.Seq
}

// PutBack compares what is stored with what should be, and returns what to write. It counts in out.
func PutBack(r Resolve, stored ShardRows, out *Resolved) ShardChange {
	c := ShardChange{Shard: r.Shard, Term: r.Term}
	want := ShardRows{Groups: r.Missing.Groups, Members: r.Missing.Members, Offsets: r.Missing.Offsets}
	if r.All != nil {
		want = *r.All
	} else if !seededbug.On(seededbug.ForgetDeletes) {
		c.DeletedGroups, c.DeletedMembers, c.DeletedOffsets = r.Missing.DeletedGroups, r.Missing.DeletedMembers, r.Missing.DeletedOffsets
		out.Removed += len(c.DeletedGroups) + len(c.DeletedMembers) + len(c.DeletedOffsets)
	}
	gone := func(version int64) bool { return r.All != nil && version <= r.Highest }

	var oldGroups []GroupRow
	c.Groups, out.Found.Groups, oldGroups = compareRows(stored.Groups, want.Groups, func(g *GroupRow) (string, int64) { return g.Group, g.Version })
	var oldMembers []MemberRow
	c.Members, out.Found.Members, oldMembers = compareRows(stored.Members, want.Members, func(m *MemberRow) (MemberKey, int64) {
		return MemberKey{Group: m.Group, MemberID: m.MemberID}, m.Version
	})
	var oldOffsets []OffsetRow
	c.Offsets, out.Found.Offsets, oldOffsets = compareRows(stored.Offsets, want.Offsets, func(o *OffsetRow) (OffsetKey, int64) {
		return OffsetKey{Group: o.Group, TopicID: o.TopicID, Partition: o.Partition}, o.Version
	})
	out.PutBack += len(c.Groups) + len(c.Members) + len(c.Offsets)
	for _, m := range oldMembers {
		if gone(m.Version) {
			c.DeletedMembers = append(c.DeletedMembers, MemberKey{m.Group, m.MemberID, m.Version})
			out.Removed++
		}
	}
	for _, o := range oldOffsets {
		switch {
		case gone(o.Version):
			c.DeletedOffsets = append(c.DeletedOffsets, OffsetKey{o.Group, o.TopicID, o.Partition, o.Version})
			out.Removed++
		case r.All != nil:
			out.Found.Offsets = append(out.Found.Offsets, o)
		}
	}
	for _, g := range oldGroups {
		if gone(g.Version) {
			c.DeletedGroups = append(c.DeletedGroups, GroupKey{g.Group, g.Version})
			out.Removed++
		}
	}
	if r.All != nil {
		putBackTransactions(r, stored, &c, out)
	}
	return c
}

// putBackTransactions is PutBack for rows that are always durable: they are missing only after the database went back.
func putBackTransactions(r Resolve, stored ShardRows, c *ShardChange, out *Resolved) {
	var old []TransactionRow
	known := map[string]int64{}
	for _, t := range stored.Transactions {
		known[t.ID] = t.Version
	}
	c.Transactions, out.Found.Transactions, old = compareRows(stored.Transactions, r.All.Transactions, func(t *TransactionRow) (string, int64) { return t.ID, t.Version })
	for i := range c.Transactions {
		c.Transactions[i].Known = known[c.Transactions[i].ID]
	}
	for _, t := range old {
		if t.Version <= r.Highest {
			c.DeletedTransactions = append(c.DeletedTransactions, TransactionKey{t.ID, t.Version})
			out.Removed++
		}
	}
	type key struct {
		id string
		OffsetKey
	}
	pending, _, oldPending := compareRows(stored.Pending, r.All.Pending, func(p *PendingOffsetRow) (key, int64) {
		return key{p.ID, OffsetKey{Group: p.Group, TopicID: p.TopicID, Partition: p.Partition}}, p.Version
	})
	ended := map[string]bool{}
	for _, p := range oldPending {
		if p.Version <= r.Highest {
			out.Removed++
			if !ended[p.ID] {
				ended[p.ID] = true
				c.EndedPending = append(c.EndedPending, TransactionKey{p.ID, r.Highest})
			}
		}
	}
	out.PutBack += len(c.Transactions) + len(pending)
	// An id's offsets go together, so whatever it still has is written again: each row once.
	c.Pending = slices.DeleteFunc(pending, func(p PendingOffsetRow) bool { return ended[p.ID] })
	for _, p := range r.All.Pending {
		if ended[p.ID] {
			c.Pending = append(c.Pending, p)
		}
	}
}

// compareRows returns the rows to write (missing, or stored in an older version), those that are stored in a newer version
// than wanted, and those that are stored and not wanted at all.
func compareRows[R any, K comparable](stored, want []R, of func(*R) (K, int64)) (write, newer, unwanted []R) {
	have := make(map[K]*R, len(stored))
	for i := range stored {
		k, _ := of(&stored[i])
		have[k] = &stored[i]
	}
	for i := range want {
		k, version := of(&want[i])
		row, ok := have[k]
		delete(have, k)
		if !ok {
			write = append(write, want[i])
			continue
		}
		switch _, is := of(row); cmp.Compare(is, version) {
		case -1:
			write = append(write, want[i])
		case 1:
			newer = append(newer, *row)
		}
	}
	for i := range stored {
		if k, _ := of(&stored[i]); have[k] != nil {
			unwanted = append(unwanted, stored[i])
		}
	}
	return write, newer, unwanted
}
