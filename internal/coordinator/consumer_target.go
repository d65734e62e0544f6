package coordinator

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// resolve finds the topics that members subscribe to in the view, and returns the hash of all that an assignment depends
// on but the members themselves.
func (c *consumers) resolve(view *TopicView) uint64 {
	matched := map[string][]meta.UUID{}
	for id, m := range c.members {
		topics := make([]meta.UUID, 0, len(m.names))
		for _, name := range m.names {
			if t, ok := view.ByName[name]; ok {
				topics = append(topics, t)
			}
		}
		if m.match != nil {
			found, ok := matched[m.regex]
			if !ok {
				found = matching(m.match, view)
				matched[m.regex] = found
			}
			topics = append(topics, found...)
		}
		slices.SortFunc(topics, compareTopics)
		topics = slices.Compact(topics)
		if !slices.Equal(topics, m.topics) {
			n := *m
			n.topics = topics
			c.members[id] = &n
		}
	}
	c.view = view
	return c.subscriptions()
}

func matching(re *regexp.Regexp, view *TopicView) []meta.UUID {
	var found []meta.UUID
	for name, id := range view.ByName {
		if re.MatchString(name) {
			found = append(found, id)
		}
	}
	return found
}

// subscriptions hashes the distinct subscriptions with their topics' numbers of partitions.
func (c *consumers) subscriptions() uint64 {
	distinct := map[uint64]struct{}{}
	for _, m := range c.members {
		h := fnv.New64a()
		for _, t := range m.topics {
			_, _ = h.Write(t[:])
			_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(c.view.Partitions[t])))
		}
		distinct[h.Sum64()] = struct{}{}
	}
	all := fnv.New64a()
	for _, sum := range slices.Sorted(maps.Keys(distinct)) {
		_, _ = all.Write(binary.BigEndian.AppendUint64(nil, sum))
	}
	return all.Sum64()
}

// retarget makes the targets of the group's epoch.
func (c *consumers) retarget() {
	members := c.byID()
	in := make([]assignMember, len(members))
	for i, m := range members {
		in[i] = assignMember{id: m.id, instanceID: m.instanceID, topics: m.topics, owned: m.target}
	}
	assign, _ := assignorNamed(c.assignor())
	for i, target := range assign(in, c.view.Partitions) {
		if m := members[i]; !target.equal(m.target) {
			c.change(m).target = target
		}
	}
	c.targetEpoch = c.epoch
}

// reconcile moves a member towards its target as far as others let it (CurrentAssignmentBuilder). owned is what it says
// that it has, nil when it does not say.
func (c *consumers) reconcile(now time.Time, m *consumer, owned []TopicPartitions) {
	epoch := m.epoch
	if m.state == memberUnrevoked {
		if owned == nil || assignedFrom(owned).overlaps(m.revoking) {
			return
		}
		epoch = m.epoch + 1
	}
	keeps := m.assigned.and(m.target)
	revoking := m.assigned.minus(keeps)
	if revoking.size() > 0 && (owned == nil || assignedFrom(owned).overlaps(revoking)) {
		// It stays in its epoch until it has given these up.
		m.moveTo(epoch, memberUnrevoked, keeps, revoking)
		m.revokeBy = startTimer(now, m.rebalance)
		return
	}
	wants := m.target.minus(keeps)
	free := c.released(m, wants)
	state := memberStable
	if free.size() < wants.size() {
		state = memberUnreleased
	}
	m.moveTo(c.targetEpoch, state, keeps.or(free), nil)
	m.revokeBy = timer{}
}

func (m *consumer) moveTo(epoch int32, state memberState, has, revoking assigned) {
	if epoch != m.epoch {
		m.previous, m.epoch = m.epoch, epoch
	}
	m.state, m.assigned, m.revoking = state, has, revoking
}

// released is what no other member has of wants.
func (c *consumers) released(m *consumer, wants assigned) assigned {
	for id, other := range c.members {
		if id == m.id || len(wants) == 0 {
			continue
		}
		if other.assigned.overlaps(wants) {
			wants = wants.minus(other.assigned)
		}
		if other.revoking.overlaps(wants) {
			wants = wants.minus(other.revoking)
		}
	}
	return wants
}

// deadline is when tick has something to do.
func (c *consumers) deadline() time.Time {
	var next time.Time
	for _, m := range c.members {
		for _, t := range []timer{m.expires, m.revokeBy, m.joinBy, m.syncBy} {
			if t.running() && (next.IsZero() || t.at.Before(next)) {
				next = t.at
			}
		}
	}
	return next
}

// tick removes members that are silent or do not do in time what they were told. The caller concludes.
func (c *consumers) tick(now time.Time, out *outcome) {
	for _, m := range c.byID() {
		switch {
		case m.expires.due(now):
			c.expel(m, "member's session has expired", memberExpired, out)
		case m.revokeBy.due(now):
			c.expel(m, "member has not given up its partitions in time", memberTooSlow, out)
		case m.joinBy.due(now):
			c.expel(m, "member did not rejoin in time", memberTooSlow, out)
		case m.syncBy.due(now):
			c.expel(m, "member did not sync in time", memberTooSlow, out)
		}
	}
}

func (c *consumers) restartTimers(now time.Time) {
	for _, m := range c.members {
		m.expires.restart(now)
		m.revokeBy.restart(now)
		m.joinBy.restart(now)
		m.syncBy.restart(now)
	}
}
