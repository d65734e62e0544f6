package coordinator

import (
	"time"
)

// leaveGroup removes members (classicGroupLeaveToClassicGroup). An administrator names static members by instance id.
func (g *group) leaveGroup(now time.Time, to token, r *LeaveRequest, out *outcome) {
	if g.consumers != nil {
		g.leaveConsumers(now, to, r, out)
		return
	}
	results := make([]error, len(r.Members))
	var gone []string
	for i, l := range r.Members {
		id, err := g.leaving(l)
		switch {
		case err != nil:
			results[i] = err
		case g.isPending(id):
			g.remove(id)
		default:
			out.note(note{text: because("member leaves", l.Reason), member: id, generation: g.generation, members: len(g.members)})
			g.answerUnknown(g.members[id], out)
			g.detach(id, out)
			gone = append(gone, id)
		}
	}
	g.removeMembers(now, gone, note{text: "members left", rebalance: memberLeft}, out)
	g.completeJoinIfAll(now, out)
	out.reply(to, LeaveReply{Members: results})
}

func (g *group) leaving(l LeaveMember) (string, error) {
	if l.MemberID == "" {
		if l.InstanceID == nil {
			return "", ErrUnknownMember
		}
		id, ok := g.static[*l.InstanceID]
		if !ok {
			return "", ErrUnknownMember
		}
		return id, nil
	}
	if g.isPending(l.MemberID) {
		return l.MemberID, nil
	}
	return l.MemberID, g.check(l.MemberID, l.InstanceID)
}

// answerUnknown ends the requests of a member that goes; a client that still lives joins again.
func (g *group) answerUnknown(m *member, out *outcome) {
	out.reply(m.join, JoinReply{Err: ErrUnknownMember, Generation: -1})
	out.reply(m.sync, SyncReply{Err: ErrUnknownMember})
	m.join, m.sync = 0, 0
}

// detach forgets a member and its row.
func (g *group) detach(id string, out *outcome) {
	g.remove(id)
	if _, ok := g.storedMembers[id]; ok {
		delete(g.storedMembers, id)
		out.change.deletedMembers = append(out.change.deletedMembers, memberKey{g.id, id})
	}
}

// removeMembers ends the membership of those who left or expired and lets the others rebalance. Their rows go at
// once, and the group's row says that what is left of the generation is not stable, so that after a restart nobody's
// partitions stay without an owner.
func (g *group) removeMembers(now time.Time, gone []string, why note, out *outcome) {
	if len(gone) == 0 {
		return
	}
	for _, id := range gone {
		g.detach(id, out)
	}
	g.rebalance(now, why, out)
	if len(out.change.deletedMembers) > 0 && g.state != empty {
		g.storeUnstable(out)
	}
}
