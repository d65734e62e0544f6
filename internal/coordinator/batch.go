package coordinator

import (
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// op is one decision on its way to Postgres.
type op struct {
	shard    int16
	change   change
	deadline time.Time     // not begun after it; the caller has its error then
	durable  bool          // waits for the disk whatever the mode; set by submit
	solo     bool          // shares no transaction, because one it was part of was refused
	done     func(e error) // nil: stored. Called once, by the committer
	also     []part        // of other shards, in the same transaction
	shadow   bool          // stands for a part of another shard's decision: done is called only when it is stored

	// What its shard does when it is stored.
	entry   *entry
	next    *group
	replies []reply
	call    *call
}

// ofTxn says whether the decision is about a transactional id.
func (o *op) ofTxn() bool { return o.change.ofTxn() }

// needsDisk says whether losing the decision would break more than freshness, even where commits are relaxed: fencing
// (epochs of members and producers), or the wholeness of a transaction.
func (o *op) needsDisk() bool {
	needs := o.change.needsDisk()
	for i := range o.also {
		needs = needs || o.also[i].change.needsDisk()
	}
	return needs
}

// part is what a decision changes in another shard.
type part struct {
	shard  int16
	change change
	stored func() // called once it is, in the order in which that shard's changes were stored
}

// rowSet folds the changes of one shard, in order, so that each row is written or deleted once, last wins.
type rowSet struct {
	groups  map[string]*meta.GroupRow // nil: deleted
	members map[memberKey]*meta.MemberRow
	offsets map[offsetKey]*meta.OffsetRow
	// Operations of one transactional id follow one another, so no two changes of one set are about the same id.
	transactions []*change
	order        struct {
		groups  []string
		members []memberKey
		offsets []offsetKey
	}
}

func newRowSet() *rowSet {
	return &rowSet{
		groups:  map[string]*meta.GroupRow{},
		members: map[memberKey]*meta.MemberRow{},
		offsets: map[offsetKey]*meta.OffsetRow{},
	}
}

func (s *rowSet) add(c *change) {
	if c.ofTxn() {
		s.transactions = append(s.transactions, c)
	}
	for _, g := range c.deletedGroups {
		s.forget(g)
		s.putGroup(g, nil)
	}
	for _, k := range c.deletedMembers {
		s.putMember(k, nil)
	}
	for _, k := range c.deletedOffsets {
		s.putOffset(k, nil)
	}
	for i := range c.groups {
		s.putGroup(c.groups[i].Group, &c.groups[i])
	}
	for i := range c.members {
		m := &c.members[i]
		s.putMember(memberKey{m.Group, m.MemberID}, m)
	}
	for i := range c.offsets {
		o := &c.offsets[i]
		s.putOffset(offsetKey{o.Group, TopicPartition{o.TopicID, o.Partition}}, o)
	}
}

// forget drops what was to be written of a group that is deleted with all it has.
func (s *rowSet) forget(group string) {
	for k := range s.members {
		if k.group == group {
			delete(s.members, k)
		}
	}
	for k := range s.offsets {
		if k.group == group {
			delete(s.offsets, k)
		}
	}
}

func (s *rowSet) putGroup(k string, row *meta.GroupRow) {
	if _, ok := s.groups[k]; !ok {
		s.order.groups = append(s.order.groups, k)
	}
	s.groups[k] = row
}

func (s *rowSet) putMember(k memberKey, row *meta.MemberRow) {
	if _, ok := s.members[k]; !ok {
		s.order.members = append(s.order.members, k)
	}
	s.members[k] = row
}

func (s *rowSet) putOffset(k offsetKey, row *meta.OffsetRow) {
	if _, ok := s.offsets[k]; !ok {
		s.order.offsets = append(s.order.offsets, k)
	}
	s.offsets[k] = row
}

// fill writes the rows into c under one version. Keys that were forgotten and put again occur twice in the order and
// are taken once.
func (s *rowSet) fill(c *meta.ShardChange, version int64) {
	s.fillTransactions(c, version)
	for _, k := range s.order.groups {
		if row := s.groups[k]; row != nil {
			row.Version = version
			c.Groups = append(c.Groups, *row)
		} else {
			c.DeletedGroups = append(c.DeletedGroups, meta.GroupKey{Group: k, Version: version})
		}
	}
	for _, k := range s.order.members {
		row, ok := s.members[k]
		switch {
		case !ok:
		case row != nil:
			row.Version = version
			c.Members = append(c.Members, *row)
		default:
			c.DeletedMembers = append(c.DeletedMembers, meta.MemberKey{Group: k.group, MemberID: k.member, Version: version})
		}
		delete(s.members, k)
	}
	for _, k := range s.order.offsets {
		row, ok := s.offsets[k]
		switch {
		case !ok:
		case row != nil:
			row.Version = version
			c.Offsets = append(c.Offsets, *row)
		default:
			c.DeletedOffsets = append(c.DeletedOffsets, meta.OffsetKey{
				Group: k.group, TopicID: k.TopicID, Partition: k.Partition, Version: version,
			})
		}
		delete(s.offsets, k)
	}
}

func (s *rowSet) fillTransactions(c *meta.ShardChange, version int64) {
	for _, t := range s.transactions {
		for i := range t.transactions {
			t.transactions[i].Version = version // its owner reads it there when it is stored
		}
		for i := range t.pending {
			t.pending[i].Version = version
		}
		c.Transactions = append(c.Transactions, t.transactions...)
		c.HeldTransactions = append(c.HeldTransactions, t.held...)
		c.Pending = append(c.Pending, t.pending...)
		for _, id := range t.deletedTransactions {
			c.DeletedTransactions = append(c.DeletedTransactions, meta.TransactionKey{ID: id, Version: version})
			c.EndedPending = append(c.EndedPending, meta.TransactionKey{ID: id, Version: version})
		}
		for _, id := range t.endedPending {
			c.EndedPending = append(c.EndedPending, meta.TransactionKey{ID: id, Version: version})
		}
	}
}
