package coordinator

import (
	"strings"
	"time"
)

// Migration is whether groups change their protocol while they have members (group.consumer.migration.policy).
type Migration struct {
	Off         bool // disabled: members of one group speak one protocol
	NoUpgrade   bool // a classic group stays one
	NoDowngrade bool // a consumer group stays one, even when all who are left speak the classic protocol
}

// ParseMigration takes Kafka's names for the policies; case does not matter, and what is none of them is bidirectional.
func ParseMigration(policy string) Migration {
	switch strings.ToLower(policy) {
	case "disabled":
		return Migration{Off: true, NoUpgrade: true, NoDowngrade: true}
	case "upgrade":
		return Migration{NoDowngrade: true}
	case "downgrade":
		return Migration{NoUpgrade: true}
	}
	return Migration{}
}

// becomeConsumers turns an empty classic group into a consumer group. Offsets stay, and the group's epoch goes on from
// the generation.
func (g *group) becomeConsumers() {
	c := newConsumers(g.id, g.cfg.consumer)
	c.epoch, c.targetEpoch = g.generation, g.generation
	n := newGroup(g.id, g.cfg)
	n.consumers, n.stored = c, g.stored
	*g = *n
	g.reflectConsumers()
}

// becomeClassic is the way back; an empty consumer group only.
func (g *group) becomeClassic() *group {
	c := newGroup(g.id, g.cfg)
	c.generation, c.protocolType, c.emptySince, c.stored = g.generation, g.protocolType, g.emptySince, g.stored
	c.subscribed, c.subscribedKnown = map[string]struct{}{}, true
	return c
}

// upgrade turns a classic group with members into a consumer group, whose next heartbeat is the first one's of another
// protocol (GroupMetadataManager.convertToConsumerGroup). Each member keeps what it was assigned and is told to join
// again; what it has not given up counts too, where a rebalance has made that unknown and nobody else has it. With an
// error nothing has changed.
func (g *group) upgrade(now time.Time, view *TopicView, out *outcome) error {
	switch {
	case g.cfg.migration.NoUpgrade, g.protocolType != consumerType, len(g.members) > g.cfg.consumer.maxSize:
		return ErrGroupNotFound
	}
	c := newConsumers(g.id, g.cfg.consumer)
	c.epoch, c.targetEpoch = g.generation, g.generation
	protocol := g.protocol
	if protocol == "" {
		protocol = g.vote()
	}
	taken, claims := assigned{}, make(map[string]assigned, len(g.members))
	for _, m := range g.byJoining() {
		said, ok := g.cfg.embedded.subscription(m.metadata(protocol))
		given, parsed := g.cfg.embedded.assignment(m.assignment)
		if !ok || !parsed {
			return ErrGroupNotFound
		}
		n := g.asConsumer(now, m, said)
		n.assigned = assignedFrom(view.withIDs(given)).minus(taken)
		taken = taken.or(n.assigned)
		claims[m.id] = assignedFrom(view.withIDs(said.Owned))
		c.members[m.id] = n
		if m.instanceID != nil {
			c.static[*m.instanceID] = m.id
		}
	}
	for _, m := range g.byJoining() {
		n := c.members[m.id]
		more := claims[m.id].minus(taken)
		n.assigned, taken = n.assigned.or(more), taken.or(more)
		n.target = n.assigned
		out.reply(m.join, JoinReply{Err: ErrRebalancing, MemberID: m.id, Generation: -1})
		out.reply(m.sync, SyncReply{Err: ErrRebalancing})
	}
	for id := range g.storedMembers {
		c.stored[id] = nil // written anew, or deleted
	}
	out.note(note{text: "classic group becomes a consumer group", generation: g.generation, members: len(g.members), matters: true})
	n := newGroup(g.id, g.cfg)
	n.consumers, n.stored = c, g.stored
	*g = *n
	g.reflectConsumers()
	return nil
}

// asConsumer is a member of a classic group as one of a consumer group.
func (g *group) asConsumer(now time.Time, m *member, said Subscription) *consumer {
	return &consumer{
		id: m.id, clientID: m.clientID, clientHost: m.clientHost, instanceID: m.instanceID, rackID: said.RackID,
		rebalance: m.rebalance, names: sortedNames(said.Topics), epoch: g.generation, previous: g.generation,
		classic: &classicMember{session: m.session, protocols: m.protocols}, expires: startTimer(now, m.session),
	}
}

// downgrades says whether the decision that was made took the last member of the consumer protocol away, and those who
// are left may be a classic group.
func (g *group) downgrades() bool {
	c := g.consumers
	if len(c.members) == 0 || g.cfg.migration.NoDowngrade || len(c.members) > g.cfg.maxSize {
		return false
	}
	for _, m := range c.members {
		if m.classic == nil {
			return false
		}
	}
	for _, m := range c.stored {
		if m != nil && m.classic == nil {
			return true
		}
	}
	return false
}

// downgrade turns a consumer group of classic members into a classic group (GroupMetadataManager.convertToClassicGroup).
// Unless all have what they shall have they rebalance. What a member has, and not what it was to have, is its assignment
// until then.
func (g *group) downgrade(now time.Time, out *outcome) {
	c := g.consumers
	n := newGroup(g.id, g.cfg)
	// The generation that most members know, so that they hear of a rebalance and not of an unknown generation.
	n.generation, n.stored, n.state = max(c.row.Generation, c.targetEpoch), g.stored, stable
	settled := c.epoch == c.targetEpoch
	for _, m := range c.byID() {
		n.add(&member{
			id: m.id, clientID: m.clientID, clientHost: m.clientHost, instanceID: m.instanceID,
			session: m.classic.session, rebalance: m.rebalance, protocols: m.classic.protocols,
			assignment: g.cfg.assign(m.protocol().Metadata, m.has()), expires: startTimer(now, m.classic.session),
		}, consumerType)
		settled = settled && m.settledAt(c.epoch)
	}
	n.protocol = n.vote()
	n.noteSubscriptions()
	for id := range c.stored {
		n.storedMembers[id] = struct{}{}
	}
	out.note(note{text: "consumer group becomes a classic group", generation: n.generation, members: len(n.members), matters: true})
	if !settled {
		n.prepare(now, note{text: "rebalance after the change of the protocol", rebalance: protocolMigrated}, out)
	}
	n.storeGeneration(out)
	*g = *n
}

// conclude ends a decision about a consumer group: what it has changed is to be stored.
func (g *group) conclude(now time.Time, out *outcome) {
	if g.downgrades() {
		g.downgrade(now, out)
		return
	}
	g.consumers.store(now, out)
	g.reflectConsumers()
}

// reflectConsumers makes what the rest of the coordinator asks of any group true of a consumer group.
func (g *group) reflectConsumers() {
	c := g.consumers
	g.state = empty
	if len(c.members) > 0 {
		g.state = stable
	}
	g.generation, g.protocolType, g.emptySince, g.subscribedKnown = c.epoch, consumerType, c.row.EmptySince, true
}
