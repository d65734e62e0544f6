package coordinator

import (
	"time"
)

// ConsumerHeartbeat keeps a member of a consumer group, lets it join or leave, and tells it what it may have (KIP-848).
// What it decides is stored before it answers; one that tells nothing never waits for Postgres. Slices and strings of the
// request must stay as they are.
func (g *Groups) ConsumerHeartbeat(r ConsumerHeartbeatRequest, done func(ConsumerHeartbeatReply)) {
	c := &call{group: r.Group, immediate: r.saysNothing(), answer: func(body any, err error) {
		if err != nil {
			done(ConsumerHeartbeatReply{Err: err})
			return
		}
		done(body.(ConsumerHeartbeatReply))
	}}
	if err := r.check(g.opts.ConsumerAssignors); err != nil {
		c.finish(nil, err)
		return
	}
	g.submit(c, func(s *shard, e *entry, now time.Time) { s.consumerHeartbeat(now, e, c, &r) })
}

// DescribeConsumers shows consumer groups, in the order asked for; Err is in each row.
func (g *Groups) DescribeConsumers(groups []string, done func([]ConsumerGroupDescription)) {
	eachGroup(g, groups, (*group).describeConsumers, func(id string, err error) ConsumerGroupDescription {
		return ConsumerGroupDescription{Err: err, Group: id}
	}, done)
}

func (s *shard) consumerHeartbeat(now time.Time, e *entry, c *call, r *ConsumerHeartbeatRequest) {
	view := s.cfg.topics()
	// What tells nothing can be answered by the group as it is. While that is busy it has to be.
	if e.busy || e.g.nothingToDecide(view, r) {
		s.answer(c, e.g.aliveConsumer(now, r), nil)
		return
	}
	newID := ""
	if r.MemberID == "" {
		newID = s.newID(r.ClientID)
	}
	var next *group
	if e.g != nil {
		next = e.g.clone()
	} else {
		next = newGroup(e.id, s.cfg)
	}
	var out outcome
	reply := next.consumerHeartbeat(now, view, newID, r, &out)
	if reply.Err != nil {
		s.answer(c, reply, nil)
		return
	}
	if e.g == nil {
		e.g = newGroup(e.id, s.cfg)
	}
	out.reply(c.to, reply)
	s.settle(now, e, next, &out, c)
}

// consumerHeartbeat decides a ConsumerGroupHeartbeat. The first one makes a consumer group of an empty classic group, or
// of one with members if those may migrate. With an error the group is not to be used any more.
func (g *group) consumerHeartbeat(now time.Time, view *TopicView, newID string, r *ConsumerHeartbeatRequest, out *outcome) ConsumerHeartbeatReply {
	if g.consumers == nil {
		switch {
		case r.MemberEpoch != epochJoin:
			return ConsumerHeartbeatReply{Err: ErrGroupNotFound}
		case g.state == empty:
			g.becomeConsumers()
		default:
			if err := g.upgrade(now, view, out); err != nil {
				return ConsumerHeartbeatReply{Err: err}
			}
		}
	}
	reply := g.consumers.heartbeat(now, view, newID, r, out)
	if reply.Err == nil {
		g.conclude(now, out)
	}
	return reply
}

// nothingToDecide finds the heartbeats of a settled group, which are nearly all: a big group need not be copied for them.
func (g *group) nothingToDecide(view *TopicView, r *ConsumerHeartbeatRequest) bool {
	if g == nil || g.consumers == nil || !r.saysNothing() {
		return false
	}
	c := g.consumers
	m, ok := c.members[r.MemberID]
	return ok && m.classic == nil && view == c.view && c.epoch == c.targetEpoch && m.settledAt(c.targetEpoch) && m.confirmed &&
		r.ClientID == m.clientID && r.ClientHost == m.clientHost && (r.RackID == nil || equalText(r.RackID, m.rackID))
}

// aliveConsumer answers a heartbeat that tells nothing, without a decision.
func (g *group) aliveConsumer(now time.Time, r *ConsumerHeartbeatRequest) ConsumerHeartbeatReply {
	if g == nil || g.consumers == nil {
		return ConsumerHeartbeatReply{Err: ErrUnknownMember}
	}
	m, _, err := g.consumers.member("", r)
	if err != nil {
		return ConsumerHeartbeatReply{Err: err}
	}
	g.consumers.members[m.id].expires = startTimer(now, g.consumers.session(m))
	return ConsumerHeartbeatReply{MemberID: m.id, MemberEpoch: m.epoch, Interval: g.consumers.times().Interval}
}

// checkFetch says whether the member may read offsets now; without a member anybody may.
func (g *group) checkFetch(r *FetchOffsetsRequest) error {
	if g == nil || g.consumers == nil || r.MemberID == nil {
		return nil
	}
	m, ok := g.consumers.members[*r.MemberID]
	switch {
	case !ok:
		return ErrUnknownMember
	case r.MemberEpoch != m.epoch && m.classic != nil:
		return ErrIllegalGeneration
	case r.MemberEpoch != m.epoch:
		return ErrStaleEpoch
	}
	return nil
}
