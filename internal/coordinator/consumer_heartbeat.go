package coordinator

import (
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// check refuses what no state of a group can make right (throwIfConsumerGroupHeartbeatRequestIsInvalid).
func (r *ConsumerHeartbeatRequest) check(assignors []string) error {
	isEmpty := func(s *string) bool { return s != nil && *s == "" }
	needsID := r.MemberEpoch != epochJoin || r.NamesItself
	switch {
	case r.Group == "", isEmpty(r.InstanceID), isEmpty(r.RackID), r.MemberEpoch < epochLeaveStatic:
		return ErrInvalidRequest
	case needsID && r.MemberID == "", len(r.MemberID) > meta.MaxKeyBytes:
		return ErrInvalidRequest
	case r.InstanceID != nil && len(*r.InstanceID) > meta.MaxKeyBytes:
		return ErrInvalidRequest
	case r.MemberEpoch == epochLeaveStatic && r.InstanceID == nil:
		return ErrInvalidRequest
	case r.MemberEpoch == epochJoin && (r.RebalanceTimeout < 0 || r.Owned == nil || len(r.Owned) > 0):
		return ErrInvalidRequest
	case r.MemberEpoch == epochJoin && r.Topics == nil && r.Regex == nil:
		return ErrInvalidRequest
	case r.Assignor != nil && !slices.Contains(assignors, *r.Assignor):
		return ErrUnsupportedAssignor
	}
	return nil
}

// saysNothing is a heartbeat that only keeps the session.
func (r *ConsumerHeartbeatRequest) saysNothing() bool {
	return r.MemberEpoch > 0 && r.Owned == nil && r.Topics == nil && r.Regex == nil && r.Assignor == nil && r.RebalanceTimeout < 0
}

// heartbeat decides a ConsumerGroupHeartbeat that check has let pass (GroupMetadataManager.consumerGroupHeartbeat).
// newID is the id for a member that brings none. With an error nothing has changed. The caller concludes.
func (c *consumers) heartbeat(now time.Time, view *TopicView, newID string, r *ConsumerHeartbeatRequest, out *outcome) ConsumerHeartbeatReply {
	if r.MemberEpoch < 0 {
		return c.leave(r, out)
	}
	m, isNew, err := c.member(newID, r)
	if err != nil {
		return ConsumerHeartbeatReply{Err: err}
	}
	was := m.assigned
	changed, err := m.update(r)
	if err != nil {
		return ConsumerHeartbeatReply{Err: err}
	}
	m = c.advance(now, view, m, changed || isNew, r.Owned, out)
	// What changes now it has not been told, even if it is what it happens to have: it may be on its way to the last one.
	m.confirmed = m.assigned.equal(was) && (m.confirmed || r.Owned != nil && assignedFrom(r.Owned).equal(m.assigned))
	reply := ConsumerHeartbeatReply{MemberID: m.id, MemberEpoch: m.epoch, Interval: c.times().Interval}
	// A reply can be lost, so an assignment is repeated until the member says that it has it.
	full := r.MemberEpoch == epochJoin || r.RebalanceTimeout >= 0 && r.Topics != nil && r.Owned != nil
	if full || !m.confirmed {
		reply.Assignment = m.assigned.list()
	}
	return reply
}

// advance takes a member into the group, gives the group its next epoch and targets where something has changed, and
// moves the member on. owned is what it says that it has, nil when it does not say. What it returns is the member as it is
// then, which may be changed.
func (c *consumers) advance(now time.Time, view *TopicView, m *consumer, changed bool, owned []TopicPartitions, out *outcome) *consumer {
	reason := topicsChanged
	if _, known := c.members[m.id]; !known {
		reason = memberJoined
	} else if changed {
		reason = memberChanged
	}
	c.admit(m)
	if changed || view != c.view {
		if hash := c.resolve(view); hash != c.hash || changed {
			c.hash = hash
			c.epoch++
			out.note(note{text: "assignment begins", member: m.id, generation: c.epoch, members: len(c.members), rebalance: reason})
		}
	}
	if c.epoch > c.targetEpoch {
		c.retarget()
	}
	m = c.members[m.id] // resolve or retarget may have replaced it
	if !m.settledAt(c.targetEpoch) {
		m = c.change(m)
		c.reconcile(now, m, owned)
	}
	m.expires = startTimer(now, c.session(m))
	return m
}

// session is how long the member may be silent.
func (c *consumers) session(m *consumer) time.Duration {
	if m.classic != nil {
		return m.classic.session
	}
	return c.times().Session
}

// member finds who speaks, makes a new one, or lets a static member take its place again. What it returns may be changed
// and is not in the group yet.
func (c *consumers) member(newID string, r *ConsumerHeartbeatRequest) (m *consumer, isNew bool, err error) {
	id := r.MemberID
	if id == "" {
		id = newID
	}
	old, known := c.members[id]
	if r.InstanceID != nil {
		holder, taken := c.static[*r.InstanceID]
		switch {
		case taken && holder == id: // as any member
		case r.MemberEpoch > 0 && !taken:
			return nil, false, ErrUnknownMember
		case r.MemberEpoch > 0:
			return nil, false, ErrFencedInstance
		case taken && c.members[holder].epoch != epochLeaveStatic && c.members[holder].classic == nil:
			return nil, false, ErrUnreleasedInstance
		case taken:
			return c.members[holder].returned(id), false, nil
		case known: // takes an instance id late; its old self goes
			known = false
		}
	}
	switch {
	case known && r.MemberEpoch == epochJoin:
		return old.returned(id), false, nil
	case known:
		copied := *old
		return &copied, false, old.checkEpoch(r)
	case r.MemberEpoch != epochJoin:
		return nil, false, ErrUnknownMember
	case len(c.members) >= c.cfg.maxSize:
		return nil, false, ErrGroupFull
	}
	return &consumer{id: strings.Clone(id), instanceID: r.InstanceID}, true, nil
}

// returned is a member that joins again, with nothing in its hands: what it was to give up is free, and what it may have
// it gets again, if that is still its target.
func (m *consumer) returned(id string) *consumer {
	n := *m
	n.id = strings.Clone(id)
	n.epoch, n.previous, n.state, n.revoking, n.confirmed = 0, 0, memberStable, nil, false
	n.revokeBy, n.joinBy, n.syncBy = timer{}, timer{}, timer{}
	return &n
}

// checkEpoch fences a member whose epoch is not ours. The one before is let pass when the member has nothing but what it
// may have, since the reply that told the new one can have been lost.
func (m *consumer) checkEpoch(r *ConsumerHeartbeatRequest) error {
	switch {
	case r.MemberEpoch == m.epoch:
		return nil
	case r.MemberEpoch == m.previous && m.epoch > m.previous && r.Owned != nil && assignedFrom(r.Owned).minus(m.assigned).size() == 0:
		return nil
	}
	return ErrFencedEpoch
}

// update takes over what the member says of itself, and says whether its subscription is another.
func (m *consumer) update(r *ConsumerHeartbeatRequest) (bool, error) {
	changed := false
	m.classic, m.joinBy, m.syncBy = nil, timer{}, timer{}
	if r.Regex != nil && *r.Regex != m.regex {
		m.match = nil
		if *r.Regex != "" {
			match, err := compileRegex(*r.Regex)
			if err != nil {
				return false, err
			}
			m.match = match
		}
		m.regex, changed = strings.Clone(*r.Regex), true
	}
	if r.Topics != nil {
		if names := sortedNames(r.Topics); !slices.Equal(names, m.names) {
			m.names, changed = names, true
		}
	}
	if r.RackID != nil {
		m.rackID = r.RackID
	}
	if r.Assignor != nil {
		m.assignor = *r.Assignor
	}
	if r.RebalanceTimeout >= 0 {
		m.rebalance = r.RebalanceTimeout
	}
	if r.ClientID != m.clientID || r.ClientHost != m.clientHost {
		m.clientID, m.clientHost = strings.Clone(r.ClientID), strings.Clone(r.ClientHost)
	}
	return changed, nil
}

// admit puts a member into the group, in place of who had its id or its instance id.
func (c *consumers) admit(m *consumer) {
	if old, ok := c.members[m.id]; ok {
		c.remove(old)
	}
	if m.instanceID != nil {
		if holder, ok := c.static[*m.instanceID]; ok && holder != m.id {
			delete(c.members, holder)
		}
		c.static[*m.instanceID] = m.id
	}
	c.members[m.id] = m
}

// leave ends a membership, or for a static member that will be back only says so.
func (c *consumers) leave(r *ConsumerHeartbeatRequest, out *outcome) ConsumerHeartbeatReply {
	m, ok := c.members[r.MemberID]
	if r.InstanceID != nil {
		holder, taken := c.static[*r.InstanceID]
		switch {
		case !taken:
			return ConsumerHeartbeatReply{Err: ErrUnknownMember}
		case holder != r.MemberID:
			return ConsumerHeartbeatReply{Err: ErrFencedInstance}
		}
	}
	if !ok {
		return ConsumerHeartbeatReply{Err: ErrUnknownMember}
	}
	if r.MemberEpoch == epochLeaveStatic {
		m = c.change(m)
		m.epoch, m.state, m.revoking, m.revokeBy = epochLeaveStatic, memberStable, nil, timer{}
		out.note(note{text: "static member leaves for a while", member: m.id, generation: c.epoch, members: len(c.members)})
	} else {
		c.expel(m, "member leaves", memberLeft, out)
	}
	return ConsumerHeartbeatReply{MemberID: r.MemberID, MemberEpoch: r.MemberEpoch}
}

// expel removes a member; the next heartbeat of any other finds a new target.
func (c *consumers) expel(m *consumer, why string, reason rebalanceReason, out *outcome) {
	c.remove(m)
	c.bump()
	out.note(note{text: why, member: m.id, generation: c.epoch, members: len(c.members), rebalance: reason})
}

// bump is the next epoch, because members are gone.
func (c *consumers) bump() {
	c.epoch++
	if c.view != nil {
		c.hash = c.subscriptions()
	}
}
