package coordinator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// store adds the rows that differ from what is stored. Each decision stores all of its consequences before its reply
// leaves, so a restart loses no epoch and nobody's partitions.
func (c *consumers) store(now time.Time, out *outcome) {
	for _, id := range slices.Sorted(maps.Keys(c.stored)) {
		if c.members[id] == nil {
			delete(c.stored, id)
			out.change.deletedMembers = append(out.change.deletedMembers, memberKey{c.group, id})
		}
	}
	for _, m := range c.byID() {
		old := c.stored[m.id]
		if old != m && (old == nil || !m.sameRow(old)) {
			out.change.members = append(out.change.members, c.memberRow(m))
		}
		c.stored[m.id] = m
	}
	row := meta.GroupRow{
		Group: c.group, Kind: kindConsumer, ProtocolType: consumerType, Protocol: c.assignor(), Generation: c.epoch,
		AssignmentEpoch: c.targetEpoch, SubscriptionHash: int64(c.hash), EmptySince: c.row.EmptySince,
	}
	switch {
	case len(c.members) > 0:
		row.EmptySince = time.Time{}
	case row.EmptySince.IsZero():
		row.EmptySince = meta.StoredTime(now)
	}
	if row != c.row {
		c.row = row
		out.change.groups = append(out.change.groups, row)
	}
}

// sameRow says whether a member needs no other row than old. The timers and what a restart works out anew are in none.
func (m *consumer) sameRow(old *consumer) bool {
	return equalText(m.instanceID, old.instanceID) && equalText(m.rackID, old.rackID) && m.clientID == old.clientID &&
		m.clientHost == old.clientHost && m.rebalance == old.rebalance && slices.Equal(m.names, old.names) &&
		m.regex == old.regex && m.assignor == old.assignor && m.epoch == old.epoch && m.previous == old.previous &&
		m.state == old.state && m.classic.equal(old.classic) && m.assigned.equal(old.assigned) && m.revoking.equal(old.revoking) && m.target.equal(old.target)
}

func equalText(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

var memberStateNames = [...]string{memberStable: "stable", memberUnrevoked: "unrevoked", memberUnreleased: "unreleased"}

func (c *consumers) memberRow(m *consumer) meta.MemberRow {
	var protocols []meta.MemberProtocol // tell a classic member from others
	if m.classic != nil {
		protocols = m.classic.protocols
	}
	return meta.MemberRow{
		Group: c.group, MemberID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, ClientHost: m.clientHost,
		SessionTimeout: c.session(m), RebalanceTimeout: m.rebalance, Protocols: protocols,
		Consumer: &meta.ConsumerMember{
			RackID: m.rackID, Topics: m.names, Regex: m.regex, Assignor: m.assignor,
			Epoch: m.epoch, PreviousEpoch: m.previous, State: memberStateNames[m.state],
			Assigned: m.assigned.stored(), Revoking: m.revoking.stored(), Target: m.target.stored(),
		},
	}
}

func (a assigned) stored() []meta.TopicPartitions {
	rows := make([]meta.TopicPartitions, 0, len(a))
	for _, t := range a.list() {
		rows = append(rows, meta.TopicPartitions(t))
	}
	return rows
}

func assignedFromStored(rows []meta.TopicPartitions) assigned {
	list := make([]TopicPartitions, 0, len(rows))
	for _, r := range rows {
		list = append(list, TopicPartitions(r))
	}
	return assignedFrom(list)
}

// loadConsumers rebuilds a group from what is stored. Sessions start their clock now. A reply that told of an assignment
// may have been lost with the process before: its client asks in full then.
func loadConsumers(now time.Time, cfg *consumerSettings, row meta.GroupRow, members []meta.MemberRow) *consumers {
	c := newConsumers(row.Group, cfg)
	c.epoch, c.targetEpoch, c.hash = row.Generation, row.AssignmentEpoch, uint64(row.SubscriptionHash)
	row.Version = 0
	c.row = row
	for _, r := range members {
		if r.Consumer == nil { // not ours
			continue
		}
		m := &consumer{
			id: r.MemberID, instanceID: r.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
			rackID: r.Consumer.RackID, rebalance: r.RebalanceTimeout, names: r.Consumer.Topics, regex: r.Consumer.Regex,
			assignor: r.Consumer.Assignor, epoch: r.Consumer.Epoch, previous: r.Consumer.PreviousEpoch,
			assigned: assignedFromStored(r.Consumer.Assigned), revoking: assignedFromStored(r.Consumer.Revoking),
			target: assignedFromStored(r.Consumer.Target),
		}
		if len(r.Protocols) > 0 {
			m.classic = &classicMember{session: r.SessionTimeout, protocols: r.Protocols}
		}
		m.expires = startTimer(now, c.session(m))
		m.state = memberState(max(slices.Index(memberStateNames[:], r.Consumer.State), 0))
		m.confirmed = m.state != memberUnrevoked
		if m.state == memberUnrevoked {
			m.revokeBy = startTimer(now, m.rebalance)
		}
		if m.regex != "" {
			m.match, _ = compileRegex(m.regex) // it was good when it was stored
		}
		if m.instanceID != nil {
			c.static[strings.Clone(*m.instanceID)] = m.id
		}
		c.members[m.id], c.stored[m.id] = m, m
	}
	return c
}
