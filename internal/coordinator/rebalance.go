package coordinator

import (
	"time"
)

// shortestWait bounds what clients can ask for: with a rebalance timeout of nothing, nobody could sync in time, and a
// group that nobody rejoins would be woken without end.
const shortestWait = time.Second

// rebalance begins a rebalance, or goes on with the one under way (maybePrepareRebalanceOrCompleteJoin).
func (g *group) rebalance(now time.Time, why note, out *outcome) {
	if g.state == preparing {
		g.completeJoinIfAll(now, out)
		return
	}
	g.prepare(now, why, out)
}

// prepare asks all members to join again (prepareRebalance). The first members of an empty group wait for others.
func (g *group) prepare(now time.Time, why note, out *outcome) {
	if g.state == completing {
		for _, m := range g.byJoining() {
			m.assignment = nil
			if m.sync != 0 {
				out.reply(m.sync, SyncReply{Err: ErrRebalancing})
				m.sync = 0
				m.expires = startTimer(now, m.session)
			}
		}
	}
	g.endSyncs()
	g.initial = g.state == empty
	g.state = preparing
	g.rebalanceAt = now
	why.generation, why.members = g.generation, len(g.members)
	out.note(why)
	if g.initial {
		g.newcomer = false
		g.initialTimer = startTimer(now, g.cfg.initialDelay)
		g.initialLeft = max(g.rebalanceTimeout()-g.cfg.initialDelay, 0)
		return
	}
	g.completeJoinIfAll(now, out)
}

// completeJoinIfAll ends the wait for joins when all have come; the first rebalance of a group waits its time.
func (g *group) completeJoinIfAll(now time.Time, out *outcome) {
	if g.state == preparing && !g.initial && g.allJoined() {
		g.completeJoin(now, out)
	}
}

// initialDelayOver ends the first wait or, if somebody joined meanwhile, adds to it (KIP-134,
// tryCompleteInitialRebalanceElseSchedule).
func (g *group) initialDelayOver(now time.Time, out *outcome) {
	if !g.newcomer || g.initialLeft == 0 {
		g.completeJoin(now, out)
		return
	}
	g.newcomer = false
	waited := g.initialTimer.full
	g.initialTimer = startTimer(now, min(g.cfg.initialDelay, g.initialLeft))
	g.initialLeft = max(g.initialLeft-waited, 0)
}

// completeJoin makes the next generation of those who joined (completeClassicGroupJoin). Dynamic members that did not
// are out; static ones keep their place until their session ends.
func (g *group) completeJoin(now time.Time, out *outcome) {
	g.initialTimer = timer{}
	for _, m := range g.byJoining() {
		if m.join == 0 && m.instanceID == nil {
			out.note(note{text: "member did not rejoin in time", member: m.id, generation: g.generation, members: len(g.members), matters: true})
			g.remove(m.id)
		}
	}
	if len(g.members) > 0 && !g.leaderJoined() {
		// Nobody joined. Wait for another round, until sessions end.
		g.rebalanceAt, g.initial = now.Add(shortestWait), false
		return
	}
	g.initial = false
	g.generation++
	if len(g.members) == 0 {
		g.becomeEmpty(now, out)
		return
	}
	g.state = completing
	g.protocol = g.vote()
	g.noteSubscriptions()
	g.pendingSync = map[string]struct{}{}
	members := g.joinMembers()
	for _, m := range g.byJoining() {
		if m.join != 0 {
			var forLeader []JoinMember
			if m.id == g.leader {
				forLeader = members
			}
			out.reply(m.join, g.joinReply(m, g.leader, forLeader))
			m.join = 0
		}
		m.expires = startTimer(now, m.session)
		m.isNew = false
		g.pendingSync[m.id] = struct{}{}
	}
	g.syncTimer = startTimer(now, max(g.rebalanceTimeout(), shortestWait))
	out.note(note{text: "generation waits for its assignment", generation: g.generation, members: len(g.members)})
}

// leaderJoined makes sure that the leader is one of those who joined.
func (g *group) leaderJoined() bool {
	if l, ok := g.members[g.leader]; ok && l.join != 0 {
		return true
	}
	for _, m := range g.byJoining() {
		if m.join != 0 {
			g.leader = m.id
			return true
		}
	}
	return false
}

// becomeEmpty ends the last generation that had members. The group stays, until it is deleted or its offsets expire, even
// if it never had an assignment, as Kafka's does.
func (g *group) becomeEmpty(now time.Time, out *outcome) {
	g.state = empty
	g.protocol, g.leader = "", ""
	g.emptySince = now
	g.noteSubscriptions()
	g.endSyncs()
	out.note(note{text: "group is empty", generation: g.generation, matters: true})
	g.storeGroup(out)
	g.dropStoredMembers(out)
}

func (g *group) endSyncs() {
	g.pendingSync = map[string]struct{}{}
	g.syncTimer = timer{}
}

// rebalanceTimer is when the wait for joins ends. It follows the members: a slow one that leaves shortens it.
func (g *group) rebalanceTimer() timer {
	if g.state != preparing {
		return timer{}
	}
	if g.initial {
		return g.initialTimer
	}
	return startTimer(g.rebalanceAt, g.rebalanceTimeout())
}

// deadline is when the group wants to be told the time again; zero never.
func (g *group) deadline() time.Time {
	if g.consumers != nil {
		return g.consumers.deadline()
	}
	var next time.Time
	earlier := func(t timer) {
		if t.running() && (next.IsZero() || t.at.Before(next)) {
			next = t.at
		}
	}
	earlier(g.rebalanceTimer())
	earlier(g.syncTimer)
	for _, m := range g.members {
		earlier(m.expires)
	}
	for _, p := range g.pending {
		earlier(p)
	}
	return next
}

// restartTimers gives everyone the full time again, after Postgres was away or this process stood still.
func (g *group) restartTimers(now time.Time) {
	if g.consumers != nil {
		g.consumers.restartTimers(now)
	}
	for _, m := range g.members {
		m.expires.restart(now)
	}
	for id, p := range g.pending {
		p.restart(now)
		g.pending[id] = p
	}
	g.initialTimer.restart(now)
	g.syncTimer.restart(now)
	if g.state == preparing {
		g.rebalanceAt = now
	}
}

// tick ends whatever has run out of time.
func (g *group) tick(now time.Time, out *outcome) {
	if g.consumers != nil {
		g.consumers.tick(now, out)
		g.conclude(now, out)
		return
	}
	for id, p := range g.pending {
		if p.due(now) {
			g.remove(id)
		}
	}
	g.completeJoinIfAll(now, out)
	g.expireSessions(now, out)
	if g.syncTimer.due(now) {
		g.expireSyncs(now, out)
	}
	if g.rebalanceTimer().due(now) {
		if g.initial {
			g.initialDelayOver(now, out)
		} else {
			g.completeJoin(now, out)
		}
	}
}

// expireSessions removes members that have been silent too long. Who waits for an answer is alive, unless it is the
// first Join of a new member, whose client may be gone.
func (g *group) expireSessions(now time.Time, out *outcome) {
	var gone []string
	for _, m := range g.byJoining() {
		switch {
		case !m.expires.due(now):
		case !m.isNew && m.awaiting():
			m.expires = timer{} // starts again with the answer
		default:
			out.note(note{text: "session of member ended", member: m.id, generation: g.generation, members: len(g.members), matters: true})
			g.answerUnknown(m, out)
			gone = append(gone, m.id)
		}
	}
	g.removeMembers(now, gone, note{text: "members expired", rebalance: memberExpired}, out)
}

// expireSyncs removes members that joined but never asked for their assignment (expirePendingSync).
func (g *group) expireSyncs(now time.Time, out *outcome) {
	var gone []string
	for _, m := range g.byJoining() {
		if _, ok := g.pendingSync[m.id]; ok {
			out.note(note{text: "member did not sync in time", member: m.id, generation: g.generation, members: len(g.members), matters: true})
			gone = append(gone, m.id)
		}
	}
	g.syncTimer = timer{}
	g.removeMembers(now, gone, note{text: "members did not sync", rebalance: memberTooSlow}, out)
}
