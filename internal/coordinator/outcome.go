package coordinator

import (
	"slices"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// outcome is all that one event leads to: replies, rows to store, and what operators may want to read in the log.
// With rows to store, the copy of the group that made the decision counts, and the replies leave, once they are stored.
type outcome struct {
	replies []reply
	change  change
	notes   []note
}

// reply answers one request; body is the exported reply of its kind.
type reply struct {
	to   token
	body any
}

// note is a line for the log. Operators see those that matter to them without debugging.
type note struct {
	text       string
	member     string
	generation int32
	members    int
	matters    bool
	rebalance  rebalanceReason // a rebalance begins for this reason; "" none does
}

// because adds the reason that a client gives (KIP-800), cut to what Kafka's clients send at most.
func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason[:min(len(reason), 255)]
}

func (o *outcome) reply(to token, body any) {
	if to != 0 {
		o.replies = append(o.replies, reply{to, body})
	}
}

func (o *outcome) note(n note) { o.notes = append(o.notes, n) }

// change is what one decision stores. Versions are set when it is sent.
type change struct {
	groups         []meta.GroupRow
	members        []meta.MemberRow
	offsets        []meta.OffsetRow
	deletedGroups  []string // with members and offsets
	deletedMembers []memberKey
	deletedOffsets []offsetKey

	transactions        []meta.TransactionRow // Version is set when it is sent
	held                []meta.TransactionKey // must still have exactly this version
	deletedTransactions []string              // with their pending offsets
	pending             []meta.PendingOffsetRow
	endedPending        []string // transactional ids whose pending offsets go
}

type memberKey struct{ group, member string }

type offsetKey struct {
	group string
	TopicPartition
}

func (c *change) isEmpty() bool { return c.rows() == 0 }

func (c *change) ofTxn() bool {
	return len(c.transactions)+len(c.held)+len(c.deletedTransactions)+len(c.pending)+len(c.endedPending) > 0
}

func (c *change) needsDisk() bool {
	return c.ofTxn() || slices.ContainsFunc(c.groups, func(g meta.GroupRow) bool { return g.Kind == kindConsumer }) ||
		slices.ContainsFunc(c.members, func(m meta.MemberRow) bool { return m.Consumer != nil })
}

func (c *change) rows() int {
	return len(c.groups) + len(c.members) + len(c.offsets) +
		len(c.deletedGroups) + len(c.deletedMembers) + len(c.deletedOffsets) +
		len(c.transactions) + len(c.held) + len(c.deletedTransactions) + len(c.pending) + len(c.endedPending)
}
