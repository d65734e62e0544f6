package coordinator

import (
	"bytes"
	"time"
)

// syncGroup decides a SyncGroup (classicGroupSyncToClassicGroup). The leader's makes the generation stable once it is
// stored.
func (g *group) syncGroup(now time.Time, to token, r *SyncRequest, out *outcome) {
	if g.consumers != nil {
		g.syncConsumers(now, to, r, out)
		return
	}
	if err := g.checkSync(r); err != nil {
		out.reply(to, SyncReply{Err: err})
		return
	}
	m := g.members[r.MemberID]
	switch g.state {
	case preparing:
		out.reply(to, SyncReply{Err: ErrRebalancing})
	case stable:
		g.synced(m)
		out.reply(to, g.syncReply(m))
	default:
		g.synced(m)
		out.reply(m.sync, SyncReply{Err: ErrRebalancing}) // a repetition takes its place
		m.sync = to
		if g.leader == m.id {
			g.assign(now, r.Assignments, out)
		}
	}
}

func (g *group) checkSync(r *SyncRequest) error {
	if g.state == empty {
		return ErrUnknownMember
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	switch {
	case r.Generation != g.generation:
		return ErrIllegalGeneration
	case r.ProtocolType != nil && *r.ProtocolType != g.protocolType:
		return ErrInconsistentProtocol
	case r.Protocol != nil && g.protocol != "" && *r.Protocol != g.protocol:
		return ErrInconsistentProtocol
	}
	return nil
}

// synced notes that a member has asked for its assignment.
func (g *group) synced(m *member) {
	delete(g.pendingSync, m.id)
	if len(g.pendingSync) == 0 {
		g.syncTimer = timer{}
	}
}

// assign makes the generation stable. Members that the leader left out get nothing; names it made up are ignored.
func (g *group) assign(now time.Time, assignments []Assignment, out *outcome) {
	for _, m := range g.members {
		m.assignment = nil
	}
	for _, a := range assignments {
		if m, ok := g.members[a.MemberID]; ok {
			m.assignment = bytes.Clone(a.Bytes)
		}
	}
	g.state = stable
	for _, m := range g.byJoining() {
		if m.sync != 0 {
			out.reply(m.sync, g.syncReply(m))
			m.sync = 0
			m.expires = startTimer(now, m.session)
		}
	}
	g.storeGeneration(out)
	out.note(note{text: "generation is stable", generation: g.generation, members: len(g.members), matters: true})
}

func (g *group) syncReply(m *member) SyncReply {
	assignment := m.assignment
	if assignment == nil {
		assignment = []byte{}
	}
	return SyncReply{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: assignment}
}

// heartbeat keeps a member's session (classicGroupHeartbeatToClassicGroup). It changes nothing else.
func (g *group) heartbeat(now time.Time, r *HeartbeatRequest) error {
	if g.consumers != nil {
		return g.heartbeatConsumers(now, r)
	}
	if err := g.check(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	if r.Generation != g.generation {
		return ErrIllegalGeneration
	}
	g.keepAlive(now, r.MemberID)
	if g.state == preparing {
		return ErrRebalancing
	}
	return nil
}

func (g *group) keepAlive(now time.Time, id string) {
	if m, ok := g.members[id]; ok && !m.isNew {
		m.expires = startTimer(now, m.session)
	}
}
