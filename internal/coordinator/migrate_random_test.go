package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestRandomMigration lets seeded random clients of both protocols live in one group, which changes its own with them:
// classic ones (eager or cooperative, some static) join, sync, lose replies and crash, those of the consumer protocol do
// what TestRandomConsumers lets them do, topics grow and the broker restarts. After each event nobody consumes what another
// member consumes, in the end everybody has settled, everything is assigned, and the group speaks the consumer protocol if
// and only if one of its members does.
func TestRandomMigration(t *testing.T) {
	seeds, events := 150, 250
	if testing.Short() {
		seeds = 60
	}
	changes := [2]int{}
	for seed := range seeds {
		r := newRandomMigration(t, uint64(seed))
		for range events {
			was := r.g.consumers != nil
			r.event()
			r.check()
			if now := r.g.consumers != nil; now != was && r.g.state != empty {
				changes[map[bool]int{true: 0, false: 1}[now]]++
			}
		}
		r.finish()
	}
	if changes[0] < seeds/2 || changes[1] < seeds/4 {
		t.Errorf("only %d upgrades and %d downgrades", changes[0], changes[1])
	}
	t.Logf("%d upgrades, %d downgrades", changes[0], changes[1])
}

// classicClient behaves as Kafka's consumer of the classic protocol does. Between a Join and its reply it waits.
type classicClient struct {
	id       string
	instance *string
	topics   []string
	gen      int32
	owned    assigned // what it consumes
	waits    token    // for the reply to this Join or Sync
	rejoin   bool     // must join
	sync     bool     // has joined and must sync
	members  []JoinMember
}

type randomMigration struct {
	t          *testing.T
	seed       uint64
	rnd        *rand.Rand
	cfg        *settings
	now        time.Time
	g          *group
	rows       tables
	view       *TopicView
	classic    []*classicClient
	next       []*simClient
	eager      bool
	nextID     int
	nextToken  token
	replies    map[token]any
	generation int32
	trace      []string
}

func newRandomMigration(t *testing.T, seed uint64) *randomMigration {
	r := &randomMigration{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 848)), now: time.Unix(1e9, 0), rows: newTables(),
		cfg: testSettings(), replies: map[token]any{}, view: &TopicView{ByName: map[string]meta.UUID{}, Partitions: map[meta.UUID]int32{}}}
	r.eager = r.rnd.IntN(2) == 0
	r.cfg.initialDelay = time.Second
	r.cfg.consumer = testConsumerSettings()
	r.cfg.consumer.maxSize = 20
	r.cfg.topics = func() *TopicView { return r.view }
	r.cfg.topicName = func(id meta.UUID) (string, bool) {
		for name, known := range r.view.ByName {
			if known == id {
				return name, true
			}
		}
		return "", false
	}
	r.g = newGroup("g", r.cfg)
	r.growTopics()
	return r
}

func (r *randomMigration) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("seed %d: %s\n%s", r.seed, fmt.Sprintf(format, args...), strings.Join(r.trace[max(0, len(r.trace)-40):], "\n"))
}

func (r *randomMigration) log(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

func (r *randomMigration) event() {
	switch n := r.rnd.IntN(100); {
	case n < 2:
		r.growTopics()
	case n < 4:
		r.restart()
	case n < 10 && len(r.classic) < 4:
		r.newClassic()
	case n < 15 && len(r.next) < 4:
		r.newNext()
	case n < 22:
		r.advance(time.Duration(r.rnd.IntN(4)) * time.Second)
	case n < 60 && len(r.classic) > 0:
		r.actClassic(r.classic[r.rnd.IntN(len(r.classic))])
	case len(r.next) > 0:
		r.actNext(r.next[r.rnd.IntN(len(r.next))])
	}
}

func (r *randomMigration) growTopics() {
	view := &TopicView{ByName: map[string]meta.UUID{}, Partitions: map[meta.UUID]int32{}}
	for i := range 3 {
		name := fmt.Sprintf("t%d", i)
		id := testTopic(i + 1)
		if n := r.view.Partitions[id] + int32(r.rnd.IntN(3)); n > 0 {
			view.ByName[name], view.Partitions[id] = id, min(n, 6)
		}
	}
	r.view = view
	r.log("topics %v", view.Partitions)
}

func (r *randomMigration) someTopics() []string {
	names := []string{"t0"}
	for _, name := range []string{"t1", "t2"} {
		if r.rnd.IntN(3) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (r *randomMigration) someInstance() *string {
	if r.rnd.IntN(3) > 0 {
		return nil
	}
	instance := fmt.Sprintf("i%d", r.rnd.IntN(3))
	return &instance
}

// settle stores what was decided and keeps the replies for those who wait.
func (r *randomMigration) settle(next *group, out *outcome) {
	r.rows.store(&out.change)
	next.keepSessions(r.g)
	if len(out.change.groups) > 0 {
		next.stored = true
	}
	r.g = next
	for _, reply := range out.replies {
		r.replies[reply.to] = reply.body
	}
}

func (r *randomMigration) restart() {
	r.log("restart")
	loaded, _ := r.rows.load(r.now, r.cfg, "g")
	if loaded == nil {
		loaded = newGroup("g", r.cfg)
	}
	r.g, r.generation = loaded, 0 // a generation that nobody has an assignment of is given out again
	for _, cl := range r.classic {
		if _, answered := r.replies[cl.waits]; cl.waits != 0 && !answered {
			cl.waits = 0 // NOT_COORDINATOR
		}
	}
}

func (r *randomMigration) advance(by time.Duration) {
	r.log("%v later", by)
	end := r.now.Add(by)
	for {
		at := r.g.deadline()
		if at.IsZero() || at.After(end) {
			break
		}
		r.now = later(r.now, at)
		next, out := r.g.clone(), &outcome{}
		next.tick(r.now, out)
		r.settle(next, out)
	}
	r.now = end
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (r *randomMigration) newClassic() {
	r.classic = append(r.classic, &classicClient{instance: r.someInstance(), topics: r.someTopics(), owned: assigned{}, rejoin: true})
}

func (r *randomMigration) dropClassic(cl *classicClient) {
	r.classic = slices.DeleteFunc(r.classic, func(c *classicClient) bool { return c == cl })
}

func (r *randomMigration) actClassic(cl *classicClient) {
	switch n := r.rnd.IntN(100); {
	case n < 2:
		r.log("classic %s crashes", cl.id)
		r.dropClassic(cl)
	case n < 6 && cl.id != "" && cl.instance == nil:
		r.log("classic %s leaves", cl.id)
		next, out := r.g.clone(), &outcome{}
		next.leaveGroup(r.now, 0, &LeaveRequest{Group: "g", Members: []LeaveMember{{MemberID: cl.id}}}, out)
		r.settle(next, out)
		r.dropClassic(cl)
	case n < 8:
		cl.topics, cl.rejoin = r.someTopics(), true
	default:
		r.stepClassic(cl, r.rnd.IntN(12) == 0)
	}
}

// stepClassic does what the client has to do next; a reply may be lost, and its request comes again.
func (r *randomMigration) stepClassic(cl *classicClient, lost bool) {
	if cl.waits != 0 {
		body, ok := r.replies[cl.waits]
		if !ok {
			return
		}
		delete(r.replies, cl.waits)
		cl.waits = 0
		if lost {
			r.log("classic %s loses a reply", cl.id)
			cl.rejoin, cl.sync = true, false
			return
		}
		r.takeReply(cl, body)
		return
	}
	switch {
	case cl.rejoin:
		r.joinClassic(cl)
	case cl.sync:
		r.syncClassic(cl)
	default:
		err := r.g.heartbeat(r.now, &HeartbeatRequest{Group: "g", MemberID: cl.id, InstanceID: cl.instance, Generation: cl.gen})
		r.log("classic %s gen %d heartbeat: %v", cl.id, cl.gen, err)
		r.hear(cl, err)
	}
}

// hear takes the error of a heartbeat, Join or Sync.
func (r *randomMigration) hear(cl *classicClient, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrRebalancing):
		cl.rejoin, cl.sync = true, false
	case errors.Is(err, ErrFencedInstance):
		r.dropClassic(cl)
	case errors.Is(err, ErrIllegalGeneration):
		cl.owned, cl.gen, cl.rejoin, cl.sync = assigned{}, -1, true, false
	case errors.Is(err, ErrUnknownMember):
		cl.owned, cl.gen, cl.rejoin, cl.sync, cl.id = assigned{}, -1, true, false, ""
	default:
		r.fail("%s: %v", cl.id, err)
	}
}

func (r *randomMigration) joinClassic(cl *classicClient) {
	if r.eager {
		cl.owned = assigned{}
	}
	r.nextToken++
	r.nextID++
	cl.waits, cl.rejoin = r.nextToken, false
	named := []NamedPartitions{}
	for _, t := range cl.owned.list() {
		if name, ok := r.cfg.topicName(t.TopicID); ok {
			named = append(named, NamedPartitions{name, t.Partitions})
		}
	}
	req := &JoinRequest{Group: "g", MemberID: cl.id, InstanceID: cl.instance, SessionTimeout: 10 * time.Second, RebalanceTimeout: 15 * time.Second,
		ProtocolType: consumerType, Version: 9,
		Protocols: []meta.MemberProtocol{{Name: "p", Metadata: []byte(strings.Join(cl.topics, "+") + "|" + writePartitions(named))}}}
	if r.g.consumers != nil && r.g.state == empty {
		r.g = r.g.becomeClassic()
	}
	next, out := r.g.clone(), &outcome{}
	next.joinGroup(r.now, cl.waits, fmt.Sprintf("c%d", r.nextID), req, out)
	r.log("classic %q %v joins owning %v", cl.id, orNone(cl.instance), cl.owned)
	r.settle(next, out)
}

func orNone(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (r *randomMigration) takeReply(cl *classicClient, body any) {
	switch reply := body.(type) {
	case JoinReply:
		r.log("classic %s joined: %s gen %d %v", cl.id, reply.MemberID, reply.Generation, reply.Err)
		switch {
		case errors.Is(reply.Err, ErrMemberIDRequired):
			cl.id, cl.rejoin = reply.MemberID, true
		case reply.Err != nil:
			r.hear(cl, reply.Err)
		default:
			cl.id, cl.gen, cl.members = reply.MemberID, reply.Generation, reply.Members
			cl.sync = true
		}
	case SyncReply:
		r.log("classic %s synced: %s %v", cl.id, reply.Assignment, reply.Err)
		if reply.Err != nil {
			r.hear(cl, reply.Err)
			return
		}
		list, _ := readPartitions(string(reply.Assignment))
		got := assignedFrom(r.view.withIDs(list))
		if !r.eager && cl.owned.minus(got).size() > 0 {
			cl.rejoin = true // to say that it has given them up
		}
		cl.owned = got
	}
}

func (r *randomMigration) syncClassic(cl *classicClient) {
	r.nextToken++
	cl.waits, cl.sync = r.nextToken, false
	req := &SyncRequest{Group: "g", MemberID: cl.id, InstanceID: cl.instance, Generation: cl.gen}
	if len(cl.members) > 0 {
		req.Assignments = r.share(cl.members)
	}
	next, out := r.g.clone(), &outcome{}
	next.syncGroup(r.now, cl.waits, req, out)
	r.settle(next, out)
}

// share is a leader's assignment: who owns a partition keeps it, the rest goes around.
func (r *randomMigration) share(members []JoinMember) []Assignment {
	shares := make([]assigned, len(members))
	topics := make([]map[meta.UUID]bool, len(members))
	taken := assigned{}
	for i, m := range members {
		said, _ := testProtocol.Subscription(m.Metadata)
		topics[i] = map[meta.UUID]bool{}
		for _, name := range said.Topics {
			if id, ok := r.view.ByName[name]; ok {
				topics[i][id] = true
			}
		}
		shares[i] = assigned{}
		claims := assignedFrom(r.view.withIDs(said.Owned)).minus(taken)
		taken = taken.or(claims) // also what it has to give up before another may have it
		for id, list := range claims {
			if topics[i][id] {
				shares[i][id] = list
			}
		}
	}
	i := 0
	for _, id := range slices.SortedFunc(maps.Keys(r.view.Partitions), compareTopics) {
		for p := range r.view.Partitions[id] {
			if _, ok := slices.BinarySearch(taken[id], p); ok {
				continue
			}
			for range members {
				i = (i + 1) % len(members)
				if topics[i][id] {
					shares[i] = shares[i].or(assigned{id: {p}})
					break
				}
			}
		}
	}
	out := make([]Assignment, len(members))
	for i, m := range members {
		out[i] = Assignment{m.MemberID, r.cfg.assign(nil, shares[i])}
	}
	return out
}

func (r *randomMigration) newNext() {
	r.nextID++
	r.next = append(r.next, &simClient{id: fmt.Sprintf("m%d", r.nextID), instance: r.someInstance(), topics: r.someTopics(), owned: assigned{}, target: assigned{}})
}

func (r *randomMigration) dropNext(cl *simClient) {
	r.next = slices.DeleteFunc(r.next, func(c *simClient) bool { return c == cl })
}

func (r *randomMigration) actNext(cl *simClient) {
	switch n := r.rnd.IntN(100); {
	case n < 3:
		r.log("%s crashes", cl.id)
		r.dropNext(cl)
	case n < 9 && cl.epoch > 0:
		r.log("%s leaves", cl.id)
		r.send(&ConsumerHeartbeatRequest{Group: "g", MemberID: cl.id, MemberEpoch: epochLeave, InstanceID: cl.instance, RebalanceTimeout: -1})
		r.dropNext(cl)
	case n < 50:
		cl.follow(r.rnd.IntN(2) == 0)
	default:
		r.beat(cl, r.rnd.IntN(10) == 0)
	}
}

func (r *randomMigration) send(req *ConsumerHeartbeatRequest) ConsumerHeartbeatReply {
	next, out := r.g.clone(), &outcome{}
	reply := next.consumerHeartbeat(r.now, r.view, "new", req, out)
	if reply.Err == nil {
		r.settle(next, out)
	}
	return reply
}

func (r *randomMigration) beat(cl *simClient, lost bool) {
	reply := r.send(cl.request())
	r.log("%s %s epoch %d owns %v lost=%t: epoch %d %v %v", cl.id, orNone(cl.instance), cl.epoch, cl.owned, lost, reply.MemberEpoch, reply.Assignment, reply.Err)
	switch {
	case lost:
		cl.full, cl.target = true, cl.owned.and(cl.target)
	case reply.Err == nil:
		cl.take(reply)
	case errors.Is(reply.Err, ErrUnknownMember), errors.Is(reply.Err, ErrFencedEpoch), errors.Is(reply.Err, ErrGroupNotFound):
		cl.reset()
	case errors.Is(reply.Err, ErrUnreleasedInstance), errors.Is(reply.Err, ErrFencedInstance):
		r.dropNext(cl)
	default:
		r.fail("%s: %v", cl.id, reply.Err)
	}
}

// check: what members that the group knows consume is consumed once, and no partition is with two members.
func (r *randomMigration) check() {
	r.t.Helper()
	taken := map[TopicPartition]string{}
	take := func(who string, a assigned) {
		for topic, list := range a {
			for _, p := range list {
				k := TopicPartition{topic, p}
				if other := taken[k]; other != "" && other != who {
					r.fail("%s and %s both have %d of %v", other, who, p, topic)
				}
				taken[k] = who
			}
		}
	}
	if c := r.g.consumers; c != nil {
		for _, m := range c.byID() {
			take(m.id, m.has())
		}
	}
	for _, cl := range r.classic {
		if _, err := r.standing(cl); err == nil && cl.id != "" {
			take(cl.id, cl.owned)
		}
	}
	for _, cl := range r.next {
		if c := r.g.consumers; c != nil {
			if m, ok := c.members[cl.id]; ok && m.epoch > 0 && cl.epoch > 0 && cl.epoch >= m.previous {
				take(cl.id, cl.owned)
			}
		}
	}
	if r.g.generation < r.generation && r.g.consumers != nil {
		r.fail("epoch %d after %d", r.g.generation, r.generation)
	}
	r.generation = r.g.generation
	loaded, _ := r.rows.load(r.now, r.cfg, "g")
	if loaded == nil {
		return
	}
	if (loaded.consumers == nil) != (r.g.consumers == nil) && r.g.state != empty && r.g.stored && (r.g.consumers != nil || r.g.state == stable) {
		r.fail("loaded a group of another protocol")
	}
	if c := r.g.consumers; c != nil && loaded.consumers != nil {
		for id, m := range c.members {
			if l := loaded.consumers.members[id]; l == nil || !m.sameRow(l) {
				r.fail("loaded %+v, live %+v", l, m)
			}
		}
	}
}

// standing says whether a classic client is a member whose partitions count.
func (r *randomMigration) standing(cl *classicClient) (int32, error) {
	if c := r.g.consumers; c != nil {
		m, err := c.classic(cl.id, cl.instance)
		if err == nil && cl.gen != m.epoch && cl.gen != m.previous {
			err = ErrIllegalGeneration
		}
		return 0, err
	}
	return 0, r.g.check(cl.id, cl.instance)
}

// finish: everybody awake and obedient.
func (r *randomMigration) finish() {
	for round := range 40 {
		for _, cl := range slices.Clone(r.classic) {
			if m := r.g.members[cl.id]; round == 20 && m != nil && r.g.leader == cl.id && cl.waits == 0 {
				cl.rejoin = true // what the number of partitions makes a leader do
			}
			r.stepClassic(cl, false)
			r.stepClassic(cl, false)
		}
		for _, cl := range slices.Clone(r.next) {
			r.beat(cl, false)
			cl.follow(false)
		}
		r.check()
		r.advance(2 * time.Second)
	}
	var spec []assignMember
	var got []assigned
	add := func(id string, names []string, has assigned) {
		var topics []meta.UUID
		for _, name := range names {
			if t, ok := r.view.ByName[name]; ok {
				topics = append(topics, t)
			}
		}
		slices.SortFunc(topics, compareTopics)
		spec, got = append(spec, assignMember{id: id, topics: topics}), append(got, has)
	}
	for _, cl := range r.classic {
		add(cl.id, cl.topics, cl.owned)
	}
	for _, cl := range r.next {
		add(cl.id, cl.topics, cl.owned)
	}
	members := len(r.g.members)
	if c := r.g.consumers; c != nil {
		members = len(c.members)
		if len(spec) > 0 && c.state() != "Stable" {
			r.fail("%s", c.state())
		}
	} else if len(spec) > 0 && r.g.state != stable {
		r.fail("%s", r.g.state)
	}
	if members != len(spec) {
		r.fail("%d members, %d clients", members, len(spec))
	}
	if len(spec) > 0 && (r.g.consumers != nil) != (len(r.next) > 0) {
		r.fail("consumer group %t with %d members of that protocol", r.g.consumers != nil, len(r.next))
	}
	for id, n := range r.view.Partitions {
		for p := range n {
			owners, wanted := 0, false
			for i := range spec {
				_, has := slices.BinarySearch(got[i][id], p)
				if has {
					owners++
				}
				wanted = wanted || slices.Contains(spec[i].topics, id)
			}
			if wanted && owners != 1 || !wanted && owners != 0 {
				r.fail("%d of %v has %d owners", p, id, owners)
			}
		}
	}
}
