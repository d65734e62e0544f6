package coordinator

import (
	"maps"
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// storeGroup adds the group's row. Only a stable group's row names a protocol.
func (g *group) storeGroup(out *outcome) {
	row := meta.GroupRow{
		Group: g.id, Kind: kindClassic, ProtocolType: g.protocolType,
		Generation: g.generation, Leader: g.leader, EmptySince: g.emptySince,
	}
	if g.state == stable {
		row.Protocol = g.protocol
	}
	if len(g.members) > 0 {
		row.EmptySince = time.Time{}
	}
	out.change.groups = append(out.change.groups, row)
	g.stored = true
}

// storeGeneration adds all rows of a generation that has just become stable.
func (g *group) storeGeneration(out *outcome) {
	g.storeGroup(out)
	for _, m := range g.byJoining() {
		out.change.members = append(out.change.members, g.memberRow(m))
		delete(g.storedMembers, m.id)
	}
	g.dropStoredMembers(out)
	for id := range g.members {
		g.storedMembers[id] = struct{}{}
	}
}

// storeReplacement adds the rows of a static member under its new id, whatever the group's state: after a restart the
// old id would fence the new one (KAFKA-10284). Where the old id was never stored there is nothing to replace.
func (g *group) storeReplacement(oldID string, m *member, out *outcome) {
	if _, ok := g.storedMembers[oldID]; !ok {
		return
	}
	delete(g.storedMembers, oldID)
	g.storedMembers[m.id] = struct{}{}
	out.change.deletedMembers = append(out.change.deletedMembers, memberKey{g.id, oldID})
	out.change.members = append(out.change.members, g.memberRow(m))
	g.storeGroup(out) // the leader may have a new id
}

// storeUnstable marks the stored generation as one that rebalances.
func (g *group) storeUnstable(out *outcome) {
	g.storeGroup(out)
	last := &out.change.groups[len(out.change.groups)-1]
	last.Protocol = ""
}

// dropStoredMembers deletes the rows of members that are no more.
func (g *group) dropStoredMembers(out *outcome) {
	for _, id := range slices.Sorted(maps.Keys(g.storedMembers)) {
		out.change.deletedMembers = append(out.change.deletedMembers, memberKey{g.id, id})
	}
	g.storedMembers = map[string]struct{}{}
}

func (g *group) memberRow(m *member) meta.MemberRow {
	return meta.MemberRow{
		Group: g.id, MemberID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, ClientHost: m.clientHost,
		SessionTimeout: m.session, RebalanceTimeout: m.rebalance, Protocols: m.protocols, Assignment: m.assignment,
	}
}

// loadGroup rebuilds a group from what is stored. Sessions start their clock now.
func loadGroup(now time.Time, cfg *settings, row meta.GroupRow, members []meta.MemberRow) *group {
	g := newGroup(row.Group, cfg)
	g.stored = true
	if row.Kind == kindConsumer {
		g.consumers = loadConsumers(now, cfg.consumer, row, members)
		g.reflectConsumers()
		return g
	}
	g.generation, g.protocolType = row.Generation, row.ProtocolType
	g.emptySince = row.EmptySince
	slices.SortFunc(members, func(a, b meta.MemberRow) int {
		switch {
		case a.MemberID < b.MemberID:
			return -1
		case a.MemberID > b.MemberID:
			return 1
		}
		return 0
	})
	for _, r := range members {
		g.add(&member{
			id: r.MemberID, instanceID: r.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
			session: r.SessionTimeout, rebalance: r.RebalanceTimeout, protocols: r.Protocols, assignment: r.Assignment,
			expires: startTimer(now, r.SessionTimeout),
		}, row.ProtocolType)
		g.storedMembers[r.MemberID] = struct{}{}
	}
	if _, ok := g.members[row.Leader]; ok {
		g.leader = row.Leader
	}
	switch {
	case len(members) == 0:
		g.state = empty
	case row.Protocol == "":
		g.state, g.rebalanceAt = preparing, now
	default:
		g.state, g.protocol = stable, row.Protocol
	}
	g.noteSubscriptions()
	return g
}
