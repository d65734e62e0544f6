package coordinator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// state of a group, as Kafka's ClassicGroupState. A dead group is one that is not there.
type state uint8

const (
	empty state = iota
	preparing
	completing
	stable
)

var stateNames = [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}

func (s state) String() string { return stateNames[s] }

// Kafka's names of what groups are.
const (
	kindClassic  = "classic"
	consumerType = "consumer" // protocol type whose metadata is a ConsumerProtocolSubscription
)

// token names a request that waits for its reply; 0 is none.
type token uint64

// timer is a deadline that can start again with its full time. The zero timer never ends.
type timer struct {
	at   time.Time
	full time.Duration
}

func startTimer(now time.Time, full time.Duration) timer { return timer{now.Add(full), full} }

func (t timer) running() bool          { return !t.at.IsZero() }
func (t timer) due(now time.Time) bool { return t.running() && !t.at.After(now) }

func (t *timer) restart(now time.Time) {
	if t.running() {
		t.at = now.Add(t.full)
	}
}

// settings are what all groups of a broker share; they do not change.
type settings struct {
	initialDelay  time.Duration // group.initial.rebalance.delay.ms
	newMemberWait time.Duration // how long a member may wait in its first Join
	maxSize       int           // group.max.size
	maxPending    int           // ids given out and not yet used
	metadataMax   int           // offset.metadata.max.bytes
	retention     time.Duration // offsets.retention.minutes
	embedded      ConsumerProtocol
	topicName     func(meta.UUID) (string, bool)
	migration     Migration // group.consumer.migration.policy
	consumer      *consumerSettings
	topics        func() *TopicView
}

// member of a group. Protocols, assignment and strings are never changed in place.
type member struct {
	id, clientID, clientHost string
	instanceID               *string
	session, rebalance       time.Duration
	protocols                []meta.MemberProtocol
	assignment               []byte
	seq                      int   // order of joining
	isNew                    bool  // has not had a Join answered yet
	expires                  timer // session; the first Join's wait while isNew
	join, sync               token // requests that wait
}

func (m *member) awaiting() bool { return m.join != 0 || m.sync != 0 }

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *member) supports(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p meta.MemberProtocol) bool { return p.Name == protocol })
}

// matches says whether a Join brings what the member already said.
func (m *member) matches(protocols []meta.MemberProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b meta.MemberProtocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// group is one group without its offsets: a classic one unless consumers is set, which then decides.
type group struct {
	id        string
	cfg       *settings
	consumers *consumers

	state        state
	initial      bool // the rebalance under way began in an empty group
	generation   int32
	protocolType string
	protocol     string
	leader       string
	emptySince   time.Time

	members map[string]*member
	static  map[string]string // instance id → member id
	pending map[string]timer  // ids given out by MEMBER_ID_REQUIRED
	lastSeq int

	// topics that the consumers of this generation subscribe to; unknown where metadata does not parse.
	subscribed      map[string]struct{}
	subscribedKnown bool

	// The wait for joins ends rebalanceAt + the largest rebalance timeout; the first one of a group is initialDelay,
	// again and again while new members come, at most until initialLeft is used up.
	rebalanceAt  time.Time
	initialTimer timer
	initialLeft  time.Duration
	newcomer     bool
	// Members that were told to sync and have not, and until when they may.
	pendingSync map[string]struct{}
	syncTimer   timer

	// What Postgres has: the row, and which members.
	stored        bool
	storedMembers map[string]struct{}
}

func newGroup(id string, cfg *settings) *group {
	return &group{
		id: id, cfg: cfg,
		members: map[string]*member{}, static: map[string]string{}, pending: map[string]timer{},
		pendingSync: map[string]struct{}{}, storedMembers: map[string]struct{}{},
	}
}

// clone is what a decision that must be stored is made on.
func (g *group) clone() *group {
	c := *g
	c.members = make(map[string]*member, len(g.members))
	for id, m := range g.members {
		copied := *m
		c.members[id] = &copied
	}
	c.static, c.pending = maps.Clone(g.static), maps.Clone(g.pending)
	c.pendingSync, c.storedMembers = maps.Clone(g.pendingSync), maps.Clone(g.storedMembers)
	if g.consumers != nil {
		c.consumers = g.consumers.clone()
	}
	return &c
}

// keepSessions takes over what heartbeats did to the group while this copy of it was being stored.
func (g *group) keepSessions(old *group) {
	if g.consumers != nil && old.consumers != nil {
		g.consumers.keepSessions(old.consumers)
	}
	for id, m := range g.members {
		if o, ok := old.members[id]; ok && m.expires.running() && o.expires.at.After(m.expires.at) {
			m.expires = o.expires
		}
	}
}

// byJoining lists the members in the order in which they came.
func (g *group) byJoining() []*member {
	all := slices.Collect(maps.Values(g.members))
	slices.SortFunc(all, func(a, b *member) int { return a.seq - b.seq })
	return all
}

func (g *group) add(m *member, protocolType string) {
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	g.lastSeq++
	m.seq = g.lastSeq
	g.members[m.id] = m
	if m.instanceID != nil {
		g.static[*m.instanceID] = m.id
	}
	if g.leader == "" {
		g.leader = m.id
	}
	delete(g.pending, m.id)
}

// remove forgets a member or a pending id; the member's requests must have been answered.
func (g *group) remove(id string) {
	if m, ok := g.members[id]; ok {
		delete(g.members, id)
		if m.instanceID != nil && g.static[*m.instanceID] == id {
			delete(g.static, *m.instanceID)
		}
	}
	delete(g.pending, id)
	delete(g.pendingSync, id)
	if g.leader == id {
		g.leader = ""
		if rest := g.byJoining(); len(rest) > 0 {
			g.leader = rest[0].id
		}
	}
}

// check says whether a request comes from a living member (ClassicGroup.validateMember).
func (g *group) check(id string, instanceID *string) error {
	if instanceID != nil {
		current, ok := g.static[*instanceID]
		switch {
		case !ok:
			return ErrUnknownMember
		case current != id:
			return ErrFencedInstance
		}
	}
	if _, ok := g.members[id]; !ok {
		return ErrUnknownMember
	}
	return nil
}

// allJoined says whether nothing keeps the next generation waiting.
func (g *group) allJoined() bool {
	return len(g.pending) == 0 && g.joined() == len(g.members)
}

func (g *group) joined() int {
	n := 0
	for _, m := range g.members {
		if m.join != 0 {
			n++
		}
	}
	return n
}

// rebalanceTimeout is the largest of the members'.
func (g *group) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// accepts says whether a member with these protocols fits in (ClassicGroup.supportsProtocols).
func (g *group) accepts(protocolType string, protocols []meta.MemberProtocol) bool {
	if g.state == empty {
		return protocolType != "" && len(protocols) > 0
	}
	if protocolType != g.protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p meta.MemberProtocol) bool { return g.allSupport(p.Name) })
}

func (g *group) allSupport(protocol string) bool {
	for _, m := range g.members {
		if !m.supports(protocol) {
			return false
		}
	}
	return true
}

// vote chooses the protocol that most members prefer among those that all support; the oldest members decide a tie.
func (g *group) vote() string {
	votes, order := map[string]int{}, []string{}
	common := map[string]bool{}
	for _, m := range g.byJoining() {
		for _, p := range m.protocols {
			ok, asked := common[p.Name]
			if !asked {
				ok = g.allSupport(p.Name)
				common[p.Name] = ok
			}
			if ok {
				if votes[p.Name] == 0 {
					order = append(order, p.Name)
				}
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, name := range order {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// noteSubscriptions works out which topics the members consume (ClassicGroup.computeSubscribedTopics).
func (g *group) noteSubscriptions() {
	g.subscribed, g.subscribedKnown = nil, false
	if g.protocolType != consumerType {
		return
	}
	topics := map[string]struct{}{}
	if len(g.members) > 0 && g.protocol == "" {
		return
	}
	for _, m := range g.members {
		said, ok := g.cfg.embedded.subscription(m.metadata(g.protocol))
		if !ok {
			return
		}
		for _, name := range said.Topics {
			topics[strings.Clone(name)] = struct{}{}
		}
	}
	g.subscribed, g.subscribedKnown = topics, true
}

// subscribesTo says whether a member may consume the topic; where that is not known, a consumer group does.
func (g *group) subscribesTo(topic string) bool {
	if g.consumers != nil {
		return g.consumers.subscribesTo(topic)
	}
	if !g.subscribedKnown {
		return g.protocolType == consumerType
	}
	_, ok := g.subscribed[topic]
	return ok
}
