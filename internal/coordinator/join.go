package coordinator

import (
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// joinGroup decides a JoinGroup (GroupMetadataManager.classicGroupJoinToClassicGroup). newID is the member id to give
// out if one is needed.
func (g *group) joinGroup(now time.Time, to token, newID string, r *JoinRequest, out *outcome) {
	if g.consumers != nil {
		g.joinConsumers(now, to, newID, r, out)
		return
	}
	refuse := func(id string, err error) { out.reply(to, JoinReply{Err: err, MemberID: id, Generation: -1}) }
	switch {
	case !g.hasRoomFor(r.MemberID):
		g.expel(r.MemberID, out)
		refuse("", ErrGroupFull)
		g.completeJoinIfAll(now, out)
	case !g.accepts(r.ProtocolType, r.Protocols):
		refuse(r.MemberID, ErrInconsistentProtocol)
	case r.MemberID == "" && r.InstanceID != nil:
		g.joinStatic(now, to, newID, r, out)
	case r.MemberID == "" && r.Version >= 4:
		g.promise(now, newID, r.SessionTimeout)
		refuse(newID, ErrMemberIDRequired)
	case r.MemberID == "":
		g.joinNew(now, to, newID, r, out)
	case g.isPending(r.MemberID) && r.InstanceID == nil:
		g.joinNew(now, to, r.MemberID, r, out)
	default:
		if err := g.check(r.MemberID, r.InstanceID); err != nil {
			refuse(r.MemberID, err)
			return
		}
		g.rejoin(now, to, g.members[r.MemberID], r, out)
	}
}

// hasRoomFor applies group.max.size (acceptJoiningMember). While joins are collected those that wait are counted, so
// that a group above a lowered limit loses its last members.
func (g *group) hasRoomFor(id string) bool {
	m, known := g.members[id]
	switch g.state {
	case empty:
		return true
	case preparing:
		return known && m.join != 0 || g.joined() < g.cfg.maxSize
	default:
		return known || len(g.members) < g.cfg.maxSize
	}
}

// expel removes a member that has no room, answering what it may have waiting.
func (g *group) expel(id string, out *outcome) {
	if m, ok := g.members[id]; ok {
		g.answerUnknown(m, out)
	}
	g.remove(id)
}

func (g *group) isPending(id string) bool {
	_, ok := g.pending[id]
	return ok
}

// promise remembers an id that was given out, until the session timeout. The oldest gives way when there are too many.
func (g *group) promise(now time.Time, id string, session time.Duration) {
	if len(g.pending) >= g.cfg.maxPending {
		oldest := ""
		for p, t := range g.pending {
			if oldest == "" || t.at.Before(g.pending[oldest].at) {
				oldest = p
			}
		}
		delete(g.pending, oldest)
	}
	g.pending[id] = startTimer(now, session)
}

// joinNew adds a member (addMemberThenRebalanceOrCompleteJoin). Its session cannot be checked yet: it does not know
// its id, so only a long wait bounds its first Join.
func (g *group) joinNew(now time.Time, to token, id string, r *JoinRequest, out *outcome) {
	m := &member{
		id: id, clientID: r.ClientID, clientHost: r.ClientHost, instanceID: r.InstanceID,
		session: r.SessionTimeout, rebalance: r.RebalanceTimeout, protocols: r.Protocols,
		isNew: true, join: to, expires: startTimer(now, g.cfg.newMemberWait),
	}
	if g.state == preparing && g.initial {
		g.newcomer = true
	}
	g.add(m, r.ProtocolType)
	g.rebalance(now, note{text: because("member joined", r.Reason), member: id, rebalance: memberJoined}, out)
}

// joinStatic adds a static member or lets it take over from its former self (KIP-345,
// updateStaticMemberThenRebalanceOrCompleteJoin).
func (g *group) joinStatic(now time.Time, to token, newID string, r *JoinRequest, out *outcome) {
	oldID, ok := g.static[*r.InstanceID]
	if !ok {
		g.joinNew(now, to, newID, r, out)
		return
	}
	leader := g.leader
	m := g.replace(now, oldID, newID, r, out)
	switch {
	case g.state == stable && g.vote() == g.protocol:
		g.noteSubscriptions()
		out.reply(to, g.replacementReply(m, leader, r.Version))
	case g.state == stable:
		m.join = to
		g.rebalance(now, note{text: because("static member changes the group's protocol", r.Reason), member: newID, rebalance: memberChanged}, out)
	case g.state == completing:
		// The leader may have seen the old id already and would assign to it.
		m.join = to
		g.prepare(now, note{text: because("static member returned during assignment", r.Reason), member: newID, rebalance: staticReturned}, out)
	default:
		m.join = to
		g.completeJoinIfAll(now, out)
	}
	g.storeReplacement(oldID, m, out)
}

// replace gives a static member its new id; requests of the old id are fenced.
func (g *group) replace(now time.Time, oldID, newID string, r *JoinRequest, out *outcome) *member {
	old := g.members[oldID]
	out.reply(old.join, JoinReply{Err: ErrFencedInstance, MemberID: oldID, Generation: -1})
	out.reply(old.sync, SyncReply{Err: ErrFencedInstance})
	m := &member{
		id: newID, clientID: r.ClientID, clientHost: r.ClientHost, instanceID: r.InstanceID,
		session: r.SessionTimeout, rebalance: r.RebalanceTimeout, protocols: r.Protocols,
		assignment: old.assignment, seq: old.seq, expires: startTimer(now, r.SessionTimeout),
	}
	delete(g.members, oldID)
	delete(g.pendingSync, oldID)
	g.members[newID] = m
	g.static[*r.InstanceID] = newID
	if g.leader == oldID {
		g.leader = newID
	}
	return m
}

// replacementReply lets the member go on in the present generation. Only from v9 on may it learn that it leads, since
// older clients would assign anew (KIP-814).
func (g *group) replacementReply(m *member, oldLeader string, version int16) JoinReply {
	if version < 9 {
		return g.joinReply(m, oldLeader, nil)
	}
	if g.leader != m.id {
		return g.joinReply(m, g.leader, nil)
	}
	r := g.joinReply(m, g.leader, g.joinMembers())
	r.SkipAssignment = true
	return r
}

// rejoin decides the Join of a member.
func (g *group) rejoin(now time.Time, to token, m *member, r *JoinRequest, out *outcome) {
	switch {
	case g.state == preparing:
		g.update(m, to, r, out)
		g.completeJoinIfAll(now, out)
	case g.state == completing && m.matches(r.Protocols):
		// It has missed the answer to its Join.
		var members []JoinMember
		if g.leader == m.id {
			members = g.joinMembers()
		}
		out.reply(to, g.joinReply(m, g.leader, members))
	case g.state == stable && g.leader != m.id && m.matches(r.Protocols):
		out.reply(to, g.joinReply(m, g.leader, nil))
	case g.state == completing || g.state == stable:
		// A leader rejoins when what it assigns has changed, such as the number of partitions.
		text, reason := "member changed its metadata", memberChanged
		if g.leader == m.id {
			text, reason = "leader rejoined", leaderRejoined
		}
		g.update(m, to, r, out)
		g.rebalance(now, note{text: because(text, r.Reason), member: m.id, rebalance: reason}, out)
	default:
		out.reply(to, JoinReply{Err: ErrUnknownMember, MemberID: m.id, Generation: -1})
	}
}

// update takes over what a member says in a new Join, which takes the place of one that waits already.
func (g *group) update(m *member, to token, r *JoinRequest, out *outcome) {
	out.reply(m.join, JoinReply{Err: ErrRebalancing, MemberID: m.id, Generation: -1})
	m.join = to
	m.protocols, m.session, m.rebalance = r.Protocols, r.SessionTimeout, r.RebalanceTimeout
}

func (g *group) joinReply(m *member, leader string, members []JoinMember) JoinReply {
	return JoinReply{
		MemberID: m.id, Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol,
		Leader: leader, Members: members,
	}
}

func (g *group) joinMembers() []JoinMember {
	all := make([]JoinMember, 0, len(g.members))
	for _, m := range g.byJoining() {
		all = append(all, JoinMember{MemberID: m.id, InstanceID: m.instanceID, Metadata: m.metadata(g.protocol)})
	}
	return all
}

// onePerName drops protocols whose name came before, as Kafka's collection does.
func onePerName(protocols []meta.MemberProtocol) []meta.MemberProtocol {
	kept := make([]meta.MemberProtocol, 0, len(protocols))
	seen := make(map[string]bool, len(protocols))
	for _, p := range protocols {
		if !seen[p.Name] {
			seen[p.Name] = true
			kept = append(kept, p)
		}
	}
	return kept
}
