package coordinator

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

const kindConsumer = "consumer"

// memberState says what a member is on the way to (KIP-848, MemberState).
type memberState uint8

const (
	memberStable     memberState = iota // has its target, or has not heard of a newer one yet
	memberUnrevoked                     // must give up partitions before it may go on
	memberUnreleased                    // waits for partitions that others still have
)

// consumer is a member of a consumer group. It is replaced, not changed, when a decision changes it; only timers that
// heartbeats move change in place.
type consumer struct {
	id, clientID, clientHost string
	instanceID, rackID       *string
	rebalance                time.Duration
	names                    []string // sorted, each once
	regex                    string
	assignor                 string // "" no wish

	epoch, previous int32
	state           memberState
	assigned        assigned // what it may have
	revoking        assigned // what it was told to give up
	target          assigned // what it is to have in the end
	confirmed       bool     // has said that it has what was assigned

	match    *regexp.Regexp // of regex; nil for none
	topics   []meta.UUID    // subscribed to, as of the group's view
	expires  timer
	revokeBy timer

	classic *classicMember // nil: it speaks the consumer protocol
	joinBy  timer          // of a classic member that was told to join again
	syncBy  timer          // of a classic member that has joined
}

// has says what nobody else may be given.
func (m *consumer) has() assigned {
	if len(m.revoking) == 0 {
		return m.assigned
	}
	return m.assigned.or(m.revoking)
}

func (m *consumer) settledAt(epoch int32) bool { return m.state == memberStable && m.epoch == epoch }

// consumerSettings are what all consumer groups of a broker share.
type consumerSettings struct {
	session   time.Duration // group.consumer.session.timeout.ms
	interval  time.Duration // group.consumer.heartbeat.interval.ms
	maxSize   int           // group.consumer.max.size
	assignors []string      // group.consumer.assignors, the default first
	// times are what a group's own properties say; nil: no group has any.
	times func(group string) ConsumerTimes
}

// ConsumerTimes are the properties of one consumer group that differ from the broker's; zero is the broker's.
type ConsumerTimes struct {
	Session  time.Duration // consumer.session.timeout.ms
	Interval time.Duration // consumer.heartbeat.interval.ms
}

// times are those in effect now. What a member was told before holds until its next heartbeat.
func (c *consumers) times() ConsumerTimes {
	var t ConsumerTimes
	if c.cfg.times != nil {
		t = c.cfg.times(c.group)
	}
	set(&t.Session, c.cfg.session)
	set(&t.Interval, c.cfg.interval)
	return t
}

// consumers is a group under the consumer protocol of KIP-848. The coordinator assigns; each member moves to its target
// on its own, partition by partition, and nobody waits for everybody.
//
// What holds: no partition is with two members, counting what one still has to give up; the group's epoch and each
// member's only rise; and when every member is stable in the target's epoch all partitions are with somebody.
type consumers struct {
	group string
	cfg   *consumerSettings

	epoch       int32  // rises with every reason for another assignment
	targetEpoch int32  // epoch that the targets are for; below epoch until the next heartbeat
	hash        uint64 // of the subscriptions and partitions that epoch stands for
	members     map[string]*consumer
	static      map[string]string // instance id → member id
	view        *TopicView        // that members' topics are from; nil after a load

	stored map[string]*consumer // members as their rows are
	row    meta.GroupRow        // as it is stored
}

func newConsumers(group string, cfg *consumerSettings) *consumers {
	return &consumers{
		group: group, cfg: cfg, members: map[string]*consumer{}, static: map[string]string{}, stored: map[string]*consumer{},
	}
}

// clone is what a decision is made on; members are shared until one changes.
func (c *consumers) clone() *consumers {
	n := *c
	n.members, n.static, n.stored = maps.Clone(c.members), maps.Clone(c.static), maps.Clone(c.stored)
	return &n
}

// keepSessions takes over what heartbeats did while this copy was being stored.
func (c *consumers) keepSessions(old *consumers) {
	for id, m := range c.members {
		if o, ok := old.members[id]; ok && o.expires.at.After(m.expires.at) {
			m.expires = o.expires
		}
	}
}

// change gives a copy of a member that may be changed and counts from now on.
func (c *consumers) change(m *consumer) *consumer {
	n := *m
	c.members[n.id] = &n
	return &n
}

func (c *consumers) byID() []*consumer {
	return slices.SortedFunc(maps.Values(c.members), func(a, b *consumer) int { return cmp.Compare(a.id, b.id) })
}

// state is the group's, as Kafka's ConsumerGroupState.
func (c *consumers) state() string {
	switch {
	case len(c.members) == 0:
		return "Empty"
	case c.epoch > c.targetEpoch:
		return "Assigning"
	}
	for _, m := range c.members {
		if !m.settledAt(c.targetEpoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// assignor is the one that most members wish; the broker's order decides a tie, and its first is the default.
func (c *consumers) assignor() string {
	votes := map[string]int{}
	for _, m := range c.members {
		votes[m.assignor]++
	}
	best := c.cfg.assignors[0]
	for _, name := range c.cfg.assignors {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// subscribesTo says whether a member consumes the topic, by name or by its regular expression.
func (c *consumers) subscribesTo(topic string) bool {
	for _, m := range c.members {
		if _, ok := slices.BinarySearch(m.names, topic); ok || m.match != nil && m.match.MatchString(topic) {
			return true
		}
	}
	return false
}

// remove ends a membership; what it had is free.
func (c *consumers) remove(m *consumer) {
	delete(c.members, m.id)
	if m.instanceID != nil && c.static[*m.instanceID] == m.id {
		delete(c.static, *m.instanceID)
	}
}

func (c *consumers) describe() ConsumerGroupDescription {
	d := ConsumerGroupDescription{
		Group: c.group, State: c.state(), Epoch: c.epoch, AssignmentEpoch: c.targetEpoch, Assignor: c.assignor(),
		Members: make([]ConsumerDescription, 0, len(c.members)),
	}
	for _, m := range c.byID() {
		d.Members = append(d.Members, ConsumerDescription{
			MemberID: m.id, InstanceID: m.instanceID, RackID: m.rackID, Epoch: m.epoch,
			ClientID: m.clientID, ClientHost: m.clientHost, Topics: m.names, Regex: m.regex, Classic: m.classic != nil,
			Assigned: m.assigned.list(), Target: m.target.list(),
		})
	}
	return d
}

// checkCommit says whether offsets are taken from a member now, whatever its partitions
// (ConsumerGroup.validateOffsetCommit).
func (c *consumers) checkCommit(member string, epoch int32, version int16) error {
	m, ok := c.members[member]
	switch {
	case epoch < 0 && len(c.members) == 0:
		return nil
	case !ok:
		return ErrUnknownMember
	case version < 9 && m.classic == nil:
		return ErrVersionOfCommit
	case epoch != m.epoch && m.classic != nil && !seededbug.On(seededbug.AcceptWrongGeneration):
		return ErrIllegalGeneration
	case epoch != m.epoch && !seededbug.On(seededbug.AcceptWrongGeneration):
		return ErrStaleEpoch
	}
	return nil
}

// checkCommitOf is checkCommit for these partitions.
func (c *consumers) checkCommitOf(r *CommitRequest) error {
	err := c.checkCommit(r.MemberID, r.Generation, r.Version)
	if (errors.Is(err, ErrStaleEpoch) || errors.Is(err, ErrIllegalGeneration)) && c.members[r.MemberID].hadThen(r.Generation, r.Offsets) {
		return nil
	}
	return err
}

// hadThen lets a commit pass that was on its way while the member's epoch rose (as KIP-1251 does), if all of its
// partitions are still the member's. No one else had them meanwhile: to lose a partition and get it back takes two steps,
// each with an epoch of its own.
func (m *consumer) hadThen(epoch int32, offsets []CommitOffset) bool {
	if epoch <= 0 || epoch != m.previous || m.epoch < epoch {
		return false
	}
	has := m.has()
	for _, o := range offsets {
		if _, ok := slices.BinarySearch(has[o.TopicID], o.Partition); !ok {
			return false
		}
	}
	return true
}

// list is the set as it goes to clients: by topic id.
func (a assigned) list() []TopicPartitions {
	all := make([]TopicPartitions, 0, len(a))
	for t, p := range a {
		all = append(all, TopicPartitions{t, p})
	}
	slices.SortFunc(all, func(a, b TopicPartitions) int { return compareTopics(a.TopicID, b.TopicID) })
	return all
}

// assignedFrom is the set of what a client lists.
func assignedFrom(list []TopicPartitions) assigned {
	a := make(assigned, len(list))
	for _, t := range list {
		if len(t.Partitions) > 0 {
			a[t.TopicID] = append(a[t.TopicID], t.Partitions...)
		}
	}
	for t, p := range a {
		slices.Sort(p)
		a[t] = slices.Compact(p)
	}
	return a
}

// sortedNames are copies, sorted, each once.
func sortedNames(names []string) []string {
	sorted := make([]string, len(names))
	for i, n := range names {
		sorted[i] = strings.Clone(n)
	}
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
