package coordinator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestRandomConsumers lets seeded random clients live in one consumer group: they join, forget replies, crash, come back
// under their instance ids, dawdle over what they shall give up; topics come and grow, the broker restarts. After each
// event it checks what must always hold, and at the end that everybody settles with everything assigned.
func TestRandomConsumers(t *testing.T) {
	seeds, events := 300, 200
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		r := newRandomConsumers(t, uint64(seed))
		for range events {
			r.event()
			r.check()
		}
		r.finish()
	}
}

// simClient behaves as Kafka's consumer does.
type simClient struct {
	id       string
	instance *string
	topics   []string
	regex    *string
	assignor *string
	epoch    int32
	owned    assigned // what it consumes
	target   assigned // what it was last told
	tell     bool     // owned has changed since a reply came
	full     bool     // a reply was lost: says everything again
	silent   bool     // crashed
}

type randomConsumers struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand
	cfg     *consumerSettings
	now     time.Time
	c       *consumers
	rows    tables
	view    *TopicView
	clients []*simClient
	nextID  int
	epoch   int32 // highest that the group had
	trace   []string
}

func newRandomConsumers(t *testing.T, seed uint64) *randomConsumers {
	r := &randomConsumers{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 848)), now: time.Unix(1e9, 0), rows: newTables(),
		cfg: &consumerSettings{session: 45 * time.Second, interval: 5 * time.Second, maxSize: 6, assignors: []string{assignorUniform, assignorRange}},
	}
	r.c = newConsumers("g", r.cfg)
	r.view = &TopicView{ByName: map[string]meta.UUID{}, Partitions: map[meta.UUID]int32{}}
	r.changeTopics()
	return r
}

func (r *randomConsumers) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("seed %d: %s\n%s", r.seed, fmt.Sprintf(format, args...), strings.Join(r.trace[max(0, len(r.trace)-25):], "\n"))
}

func (r *randomConsumers) log(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

func (r *randomConsumers) event() {
	switch n := r.rnd.IntN(100); {
	case n < 4:
		r.changeTopics()
	case n < 7:
		r.restart()
	case n < 16 && len(r.clients) < 8:
		r.newClient()
	case n < 24:
		r.advance(time.Duration(r.rnd.IntN(20)) * time.Second)
	case len(r.clients) == 0:
	default:
		r.act(r.clients[r.rnd.IntN(len(r.clients))])
	}
}

func (r *randomConsumers) act(cl *simClient) {
	switch n := r.rnd.IntN(100); {
	case n < 3:
		r.log("%s crashes", cl.id)
		r.drop(cl)
	case n < 7 && cl.epoch > 0:
		r.leave(cl)
	case n < 10:
		cl.topics, cl.full = r.someTopics(), true
	case n < 50:
		cl.follow(r.rnd.IntN(2) == 0)
	default:
		r.beat(cl, r.rnd.IntN(8) == 0)
	}
}

func (r *randomConsumers) changeTopics() {
	next := &TopicView{ByName: map[string]meta.UUID{}, Partitions: map[meta.UUID]int32{}}
	for name, id := range r.view.ByName {
		if r.rnd.IntN(8) > 0 {
			next.ByName[name], next.Partitions[id] = id, r.view.Partitions[id]+int32(r.rnd.IntN(2))
		}
	}
	for range r.rnd.IntN(3) {
		r.nextID++
		name := fmt.Sprintf("t%d", r.rnd.IntN(5))
		if _, ok := next.ByName[name]; !ok {
			id := testTopic(r.nextID)
			next.ByName[name], next.Partitions[id] = id, 1+int32(r.rnd.IntN(6))
		}
	}
	r.view = next
	r.log("topics %v", next.ByName)
}

func (r *randomConsumers) someTopics() []string {
	names := []string{}
	for i := range 5 {
		if r.rnd.IntN(3) > 0 {
			names = append(names, fmt.Sprintf("t%d", i))
		}
	}
	return names
}

func (r *randomConsumers) newClient() {
	r.nextID++
	cl := &simClient{id: fmt.Sprintf("m%d", r.nextID), topics: r.someTopics(), owned: assigned{}, target: assigned{}}
	if r.rnd.IntN(3) == 0 {
		instance := fmt.Sprintf("i%d", r.rnd.IntN(3))
		cl.instance = &instance
	}
	if r.rnd.IntN(3) == 0 {
		regex := []string{"t[0-2]", "t.", ""}[r.rnd.IntN(3)]
		cl.regex = &regex
	}
	if r.rnd.IntN(2) == 0 {
		cl.assignor = &r.cfg.assignors[r.rnd.IntN(2)]
	}
	r.clients = append(r.clients, cl)
}

func (r *randomConsumers) drop(cl *simClient) {
	cl.silent = true
	r.clients = slices.DeleteFunc(r.clients, func(c *simClient) bool { return c == cl })
}

// send gives one request to the group, and stores what it decides.
func (r *randomConsumers) send(req *ConsumerHeartbeatRequest) ConsumerHeartbeatReply {
	if err := req.check(r.cfg.assignors); err != nil {
		r.fail("request %+v: %v", req, err)
	}
	next := r.c.clone()
	var out outcome
	reply := next.heartbeat(r.now, r.view, "new", req, &out)
	if reply.Err != nil {
		if !out.change.isEmpty() {
			r.fail("an error that stores")
		}
		return reply
	}
	r.store(next, &out)
	return reply
}

func (r *randomConsumers) store(next *consumers, out *outcome) {
	next.store(r.now, out)
	r.rows.store(&out.change)
	next.keepSessions(r.c)
	r.c = next
}

func (cl *simClient) request() *ConsumerHeartbeatRequest {
	req := &ConsumerHeartbeatRequest{Group: "g", MemberID: cl.id, MemberEpoch: cl.epoch, InstanceID: cl.instance, RebalanceTimeout: -1}
	if cl.epoch == 0 || cl.full {
		req.RebalanceTimeout, req.Topics, req.Regex, req.Assignor = 30*time.Second, cl.topics, cl.regex, cl.assignor
	}
	if cl.epoch == 0 || cl.full || cl.tell {
		req.Owned = append([]TopicPartitions{}, cl.owned.list()...)
	}
	return req
}

func (r *randomConsumers) beat(cl *simClient, lost bool) {
	reply := r.send(cl.request())
	r.log("%s epoch %d owns %v lost=%t: epoch %d %v %v", cl.id, cl.epoch, cl.owned, lost, reply.MemberEpoch, reply.Assignment, reply.Err)
	if lost {
		// It takes nothing more before it hears again: what it has told is what it had, and the group relies on that.
		cl.full, cl.target = true, cl.owned.and(cl.target)
		return
	}
	switch {
	case errors.Is(reply.Err, ErrUnknownMember), errors.Is(reply.Err, ErrFencedEpoch), errors.Is(reply.Err, ErrFencedInstance):
		cl.reset()
	case reply.Err != nil:
		if !errors.Is(reply.Err, ErrUnreleasedInstance) && !errors.Is(reply.Err, ErrGroupFull) {
			r.fail("%s: %v", cl.id, reply.Err)
		}
		r.drop(cl)
	default:
		cl.take(reply)
	}
}

// reset is what a client does that was fenced: it has nothing and joins again.
func (cl *simClient) reset() {
	cl.epoch, cl.owned, cl.target, cl.tell, cl.full = 0, assigned{}, assigned{}, false, false
}

func (cl *simClient) take(reply ConsumerHeartbeatReply) {
	cl.tell, cl.full = false, false
	cl.epoch = reply.MemberEpoch
	if reply.Assignment != nil {
		cl.target = assignedFrom(reply.Assignment)
	}
}

// follow gives up and takes what the client was told; a dawdler first only gives up.
func (cl *simClient) follow(dawdles bool) {
	next := cl.target
	if gives := cl.owned.and(cl.target); gives.size() < cl.owned.size() && dawdles {
		next = gives
	}
	if !next.equal(cl.owned) {
		cl.owned, cl.tell = next, true
	}
}

func (r *randomConsumers) leave(cl *simClient) {
	epoch := int32(epochLeave)
	if cl.instance != nil && r.rnd.IntN(3) > 0 {
		epoch = epochLeaveStatic
	}
	r.log("%s leaves with %d", cl.id, epoch)
	r.send(&ConsumerHeartbeatRequest{Group: "g", MemberID: cl.id, MemberEpoch: epoch, InstanceID: cl.instance, RebalanceTimeout: -1})
	r.drop(cl)
}

func (r *randomConsumers) restart() {
	r.log("restart")
	r.c = r.reload()
}

func (r *randomConsumers) reload() *consumers {
	var members []meta.MemberRow
	for _, m := range r.rows.members {
		members = append(members, m)
	}
	row, ok := r.rows.groups["g"]
	if !ok {
		return newConsumers("g", r.cfg)
	}
	return loadConsumers(r.now, r.cfg, row, members)
}

func (r *randomConsumers) advance(by time.Duration) {
	r.log("%v later", by)
	r.now = r.now.Add(by)
	if at := r.c.deadline(); at.IsZero() || at.After(r.now) {
		return
	}
	next := r.c.clone()
	var out outcome
	next.tick(r.now, &out)
	r.store(next, &out)
}

func (r *randomConsumers) check() {
	r.t.Helper()
	owners := map[TopicPartition]string{}
	for _, m := range r.c.byID() {
		for topic, list := range m.has() {
			for _, p := range list {
				if other := owners[TopicPartition{topic, p}]; other != "" {
					r.fail("%s and %s both have %d of %v", other, m.id, p, topic)
				}
				owners[TopicPartition{topic, p}] = m.id
			}
		}
		if m.epoch > r.c.targetEpoch || m.state == memberUnrevoked && m.revoking.size() == 0 || m.state != memberUnrevoked && m.revoking.size() > 0 && m.epoch > 0 {
			r.fail("member %+v", m)
		}
	}
	// What clients do consume is theirs in the coordinator's eyes too, unless their time is over.
	for _, cl := range r.clients {
		if m, ok := r.c.members[cl.id]; ok && m.epoch > 0 && cl.epoch > 0 && cl.epoch >= m.previous {
			if extra := cl.owned.minus(m.has()); extra.size() > 0 {
				r.fail("%s consumes %v, which it has given up", cl.id, extra)
			}
		}
	}
	if r.c.epoch < r.epoch || r.c.targetEpoch > r.c.epoch {
		r.fail("epoch %d after %d, target's %d", r.c.epoch, r.epoch, r.c.targetEpoch)
	}
	r.epoch = r.c.epoch
	r.checkReload()
}

// checkReload: what is stored makes the group that lives.
func (r *randomConsumers) checkReload() {
	loaded := r.reload()
	if loaded.row != r.c.row || len(loaded.members) != len(r.c.members) || !reflect.DeepEqual(loaded.static, r.c.static) {
		r.fail("loaded %+v, live %+v", loaded.row, r.c.row)
	}
	for id, m := range r.c.members {
		if l := loaded.members[id]; l == nil || !m.sameRow(l) {
			r.fail("loaded %+v, live %+v", l, m)
		}
	}
}

// finish: with everybody awake and obedient the group settles within a few rounds, and nothing is left over.
func (r *randomConsumers) finish() {
	r.advance(46 * time.Second) // who is silent goes
	r.advance(0)
	for range 12 {
		for _, cl := range slices.Clone(r.clients) {
			r.beat(cl, false)
			if !cl.owned.equal(cl.target) {
				cl.owned, cl.tell = cl.target, true
			}
			r.check()
		}
		r.now = r.now.Add(time.Second)
	}
	if len(r.c.members) != len(r.clients) {
		r.fail("%d members, %d clients", len(r.c.members), len(r.clients))
	}
	var spec []assignMember
	var got []assigned
	for _, m := range r.c.byID() {
		spec = append(spec, assignMember{id: m.id, topics: m.topics})
		got = append(got, m.assigned)
	}
	if state := r.c.state(); len(spec) > 0 && state != "Stable" {
		r.fail("%s", state)
	}
	checkAssignment(failer{r}, spec, r.view.Partitions, got)
	for _, cl := range r.clients {
		if m := r.c.members[cl.id]; m == nil || !cl.owned.equal(m.assigned) || cl.epoch != m.epoch {
			r.fail("%s consumes %v in %d: %+v", cl.id, cl.owned, cl.epoch, m)
		}
	}
}

type failer struct{ r *randomConsumers }

func (f failer) Fatalf(format string, args ...any) { f.r.fail(format, args...) }
