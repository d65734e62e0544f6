package coordinator

import (
	"slices"
	"strings"
	"time"
)

// The functions here serve members that speak the classic protocol in a consumer group (KIP-848, "online migration").
// The group assigns to them as to all others; a Join brings what they own and moves them on, a Sync tells them what they
// may have, and REBALANCE_IN_PROGRESS makes them come again. Nobody waits for anybody in a Join.

// joinConsumers decides a JoinGroup (GroupMetadataManager.classicGroupJoinToConsumerGroup).
func (g *group) joinConsumers(now time.Time, to token, newID string, r *JoinRequest, out *outcome) {
	refuse := func(id string, err error) { out.reply(to, JoinReply{Err: err, MemberID: id, Generation: -1}) }
	c := g.consumers
	said, ok := c.accepts(r, &g.cfg.embedded)
	switch {
	case g.cfg.migration.Off, !ok:
		refuse(r.MemberID, ErrInconsistentProtocol)
		return
	case r.MemberID == "" && r.InstanceID == nil && r.Version >= 4:
		refuse(newID, ErrMemberIDRequired) // whatever id comes then is taken, so none needs to be remembered
		return
	}
	m, isNew, err := c.classicMember(newID, r, len(said.Owned) > 0)
	if err != nil {
		refuse(r.MemberID, err)
		return
	}
	names := sortedNames(said.Topics)
	changed := isNew || m.regex != "" || !slices.Equal(names, m.names)
	m.names, m.regex, m.match, m.assignor, m.rackID = names, "", nil, "", said.RackID
	m.rebalance = r.RebalanceTimeout
	m.clientID, m.clientHost = strings.Clone(r.ClientID), strings.Clone(r.ClientHost)
	m.classic = &classicMember{session: r.SessionTimeout, protocols: r.Protocols}
	view := g.cfg.topics()
	m = c.advance(now, view, m, changed, view.withIDs(said.Owned), out)
	m.joinBy, m.syncBy = timer{}, startTimer(now, max(m.rebalance, shortestWait))
	g.conclude(now, out)
	if g.consumers == nil && g.state == preparing { // the last other member was this one's former self
		joined := g.members[m.id]
		joined.join = to
		g.completeJoinIfAll(now, out)
		return
	}
	out.reply(to, JoinReply{MemberID: m.id, Generation: m.epoch, ProtocolType: consumerType, Protocol: m.protocol().Name})
}

// accepts says whether a Join fits in: it must have a protocol that all other classic members have, and its metadata must
// tell what it subscribes to.
func (c *consumers) accepts(r *JoinRequest, embedded *ConsumerProtocol) (Subscription, bool) {
	if r.ProtocolType != consumerType || len(r.Protocols) == 0 {
		return Subscription{}, false
	}
	said, ok := embedded.subscription(r.Protocols[0].Metadata)
	if !ok {
		return Subscription{}, false
	}
	for _, p := range r.Protocols {
		common := true
		for _, m := range c.members {
			common = common && (m.classic == nil || m.classic.supports(p.Name))
		}
		if common {
			return said, true
		}
	}
	return Subscription{}, false
}

func (m *classicMember) supports(protocol string) bool {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return true
		}
	}
	return false
}

// classicMember finds who joins, makes a new member, or lets a static one take its place again, whatever protocol its
// former self speaks. What it returns may be changed and is not in the group yet. One that owns partitions and is not known
// was removed and has not heard of it: it may not go on with what others have by now.
func (c *consumers) classicMember(newID string, r *JoinRequest, owns bool) (m *consumer, isNew bool, err error) {
	id := r.MemberID
	if id == "" {
		id = newID
	}
	if r.InstanceID != nil {
		holder, taken := c.static[*r.InstanceID]
		switch {
		case r.MemberID == "" && taken:
			return c.members[holder].returned(id), false, nil
		case r.MemberID == "":
		case !taken:
			return nil, false, ErrUnknownMember
		case holder != id:
			return nil, false, ErrFencedInstance
		}
	}
	if old, ok := c.members[id]; ok {
		copied := *old
		return &copied, false, nil
	}
	switch {
	case owns:
		return nil, false, ErrUnknownMember
	case len(c.members) >= c.cfg.maxSize:
		return nil, false, ErrGroupFull
	}
	return &consumer{id: strings.Clone(id), instanceID: r.InstanceID}, true, nil
}

// classic finds the classic member that a request comes from.
func (c *consumers) classic(id string, instanceID *string) (*consumer, error) {
	if instanceID != nil {
		holder, ok := c.static[*instanceID]
		switch {
		case !ok:
			return nil, ErrUnknownMember
		case holder != id:
			return nil, ErrFencedInstance
		}
	}
	m, ok := c.members[id]
	if !ok || m.classic == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

// syncConsumers decides a SyncGroup (classicGroupSyncToConsumerGroup). It stores nothing.
func (g *group) syncConsumers(now time.Time, to token, r *SyncRequest, out *outcome) {
	c := g.consumers
	refuse := func(err error) { out.reply(to, SyncReply{Err: err}) }
	m, err := c.classic(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		refuse(err)
	case r.Generation != m.epoch:
		refuse(ErrIllegalGeneration)
	case r.ProtocolType != nil && *r.ProtocolType != consumerType, r.Protocol != nil && *r.Protocol != m.protocol().Name:
		refuse(ErrInconsistentProtocol)
	case c.epoch > m.epoch && m.state != memberUnrevoked:
		m.mustJoin(now)
		refuse(ErrRebalancing)
	default:
		m.syncBy = timer{}
		m.expires = startTimer(now, m.classic.session)
		out.reply(to, SyncReply{ProtocolType: consumerType, Protocol: m.protocol().Name, Assignment: g.cfg.assign(m.protocol().Metadata, m.assigned)})
	}
}

// mustJoin gives a member that is told to join again its rebalance timeout for it.
func (m *consumer) mustJoin(now time.Time) {
	if !m.joinBy.running() {
		m.joinBy = startTimer(now, max(m.rebalance, shortestWait))
	}
}

// heartbeatConsumers keeps a classic member's session (classicGroupHeartbeatToConsumerGroup). The member has to join again
// when the group has gone on, when it has to give something up, when what it waits for is free, or when the topics have
// changed.
func (g *group) heartbeatConsumers(now time.Time, r *HeartbeatRequest) error {
	c := g.consumers
	m, err := c.classic(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return err
	case r.Generation != m.epoch:
		return ErrIllegalGeneration
	}
	m.expires = startTimer(now, m.classic.session)
	waits := false
	if m.state == memberUnreleased {
		wants := m.target.minus(m.assigned)
		waits = c.released(m, wants).size() < wants.size()
	}
	if m.epoch < c.epoch || m.state == memberUnrevoked || m.state == memberUnreleased && !waits || c.outdated(g.cfg.topics()) {
		m.mustJoin(now)
		return ErrRebalancing
	}
	return nil
}

// outdated says whether the topics that members subscribe to are others than when the targets were made.
func (c *consumers) outdated(view *TopicView) bool {
	if view == c.view {
		return false
	}
	now := c.clone()
	if now.resolve(view) != c.hash {
		return true
	}
	c.members, c.view = now.members, view // so that the next heartbeat need not look
	return false
}

// leaveConsumers removes members for a LeaveGroup (classicGroupLeaveToConsumerGroup): a classic one that goes, or any that
// an administrator names by member id or instance id.
func (g *group) leaveConsumers(now time.Time, to token, r *LeaveRequest, out *outcome) {
	c := g.consumers
	results := make([]error, len(r.Members))
	var gone []*consumer
	for i, l := range r.Members {
		m, err := c.leaving(l)
		if results[i] = err; err != nil {
			continue
		}
		c.remove(m)
		gone = append(gone, m)
		left := note{text: because("member leaves", l.Reason), member: m.id, generation: c.epoch, members: len(c.members)}
		if len(gone) == 1 { // one rebalance for all
			left.rebalance = memberLeft
		}
		out.note(left)
	}
	if len(gone) > 0 {
		c.bump()
		g.conclude(now, out)
	}
	out.reply(to, LeaveReply{Members: results})
}

func (c *consumers) leaving(l LeaveMember) (*consumer, error) {
	id := l.MemberID
	if l.InstanceID != nil {
		holder, ok := c.static[*l.InstanceID]
		switch {
		case !ok:
			return nil, ErrUnknownMember
		case id != "" && holder != id:
			return nil, ErrFencedInstance
		}
		id = holder
	}
	m, ok := c.members[id]
	if !ok {
		return nil, ErrUnknownMember
	}
	return m, nil
}
