package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestRandomEvents sends seeded random events at one group and checks after each what must always hold. A failure
// prints the seed and the last events.
func TestRandomEvents(t *testing.T) {
	seeds, events := 200, 300
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		r := newRandomGroup(t, uint64(seed))
		for range events {
			r.event()
			r.check()
		}
		r.finish()
	}
}

// randomGroup is a group under random events, with what its clients believe.
type randomGroup struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand
	cfg     *settings
	now     time.Time
	g       *group
	offsets offsets
	rows    tables
	held    *heldDecision
	last    token
	nextID  int
	waiting map[token]string // requests without an answer, by what they are
	ids     []string         // member ids that were ever given out
	trace   []string
}

func newRandomGroup(t *testing.T, seed uint64) *randomGroup {
	cfg := testSettings()
	rnd := rand.New(rand.NewPCG(seed, 1))
	cfg.initialDelay = time.Duration(rnd.IntN(2)) * 3 * time.Second
	cfg.maxSize = 2 + rnd.IntN(5)
	cfg.maxPending = 1 + rnd.IntN(3)
	return &randomGroup{
		t: t, seed: seed, rnd: rnd, cfg: cfg, now: time.Unix(1e9, 0), offsets: offsets{}, rows: newTables(),
		waiting: map[token]string{},
	}
}

func (r *randomGroup) fail(format string, args ...any) {
	r.t.Helper()
	last := r.trace[max(0, len(r.trace)-25):]
	r.t.Fatalf("seed %d: %s\n%s", r.seed, fmt.Sprintf(format, args...), strings.Join(last, "\n"))
}

func (r *randomGroup) log(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

func (r *randomGroup) event() {
	switch n := r.rnd.IntN(100); {
	case n < 12:
		r.advance(time.Duration(r.rnd.IntN(8000)) * time.Millisecond)
	case n < 14 && r.g != nil:
		r.log("restart timers")
		r.g.restartTimers(r.now)
	case n < 16:
		r.restart()
	case n < 26 && r.held != nil:
		r.release(r.rnd.IntN(3) > 0)
	case n < 40 && r.g != nil:
		r.heartbeat()
	case r.held != nil:
		// the shell queues what is not a heartbeat
	case n < 62:
		r.join()
	case n < 82:
		r.sync()
	case n < 88:
		r.leave()
	case n < 96:
		r.commit()
	case r.g != nil:
		r.log("sweep")
		r.settle(r.g, outcome{change: expired(r.now, r.g, r.offsets)})
	}
}

// someID is mostly a living member's.
func (r *randomGroup) someID() string {
	if r.g != nil && len(r.g.members) > 0 && r.rnd.IntN(8) > 0 {
		all := r.g.byJoining()
		return all[r.rnd.IntN(len(all))].id
	}
	if len(r.ids) > 0 {
		return r.ids[len(r.ids)-1-r.rnd.IntN(min(6, len(r.ids)))]
	}
	return "nobody"
}

// instanceOf is what a client with this id would send.
func (r *randomGroup) instanceOf(id string) *string {
	if i, _, ok := strings.Cut(id, "#"); ok && strings.HasPrefix(i, "i") {
		return &i
	}
	return nil
}

func (r *randomGroup) token(what string) token {
	r.last++
	r.waiting[r.last] = what
	return r.last
}

func (r *randomGroup) join() {
	req := &JoinRequest{
		Group: "g", ClientID: "c", SessionTimeout: time.Duration(4+r.rnd.IntN(8)) * time.Second,
		RebalanceTimeout: time.Duration(r.rnd.IntN(20)) * time.Second, ProtocolType: "consumer",
		Version: []int16{0, 3, 4, 8, 9}[r.rnd.IntN(5)],
	}
	names := []string{"range", "sticky", "cooperative"}
	r.rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, n := range names[:1+r.rnd.IntN(3)] {
		req.Protocols = append(req.Protocols, meta.MemberProtocol{Name: n, Metadata: []byte([]string{"t1", "t2", "?"}[r.rnd.IntN(3)])})
	}
	switch r.rnd.IntN(4) {
	case 0: // new
	case 1: // static, as after a restart of the client
		i := fmt.Sprintf("i%d", r.rnd.IntN(3))
		req.InstanceID = &i
	default:
		if r.g != nil {
			req.MemberID = r.someID()
			req.InstanceID = r.instanceOf(req.MemberID)
			if r.g.isPending(req.MemberID) {
				req.InstanceID = nil
			}
			if m, ok := r.g.members[req.MemberID]; ok && r.rnd.IntN(2) == 0 {
				req.Protocols = m.protocols
			}
		}
	}
	if r.g == nil {
		r.g = newGroup("g", r.cfg)
	}
	prefix := "c"
	if req.InstanceID != nil {
		prefix = *req.InstanceID
	}
	r.nextID++
	id := fmt.Sprintf("%s#%d", prefix, r.nextID)
	r.ids = append(r.ids, id)
	to := r.token("join")
	r.log("join %d member=%q new=%s v%d", to, req.MemberID, id, req.Version)
	next := r.g.clone()
	var out outcome
	next.joinGroup(r.now, to, id, req, &out)
	if !out.change.isEmpty() && req.InstanceID == nil && r.g.hasRoomFor(req.MemberID) {
		r.fail("a plain join stores something, though the shell makes no copy for it")
	}
	r.settle(next, out)
}

func (r *randomGroup) sync() {
	if r.g == nil {
		return
	}
	req := &SyncRequest{Group: "g", MemberID: r.someID(), Generation: r.g.generation - int32(r.rnd.IntN(10)/9)}
	req.InstanceID = r.instanceOf(req.MemberID)
	for _, m := range r.g.byJoining() {
		req.Assignments = append(req.Assignments, Assignment{m.id, []byte(r.share(r.g.generation, m))})
	}
	to := r.token("sync " + req.MemberID)
	r.log("sync %d %s gen=%d", to, req.MemberID, req.Generation)
	next := r.g.clone()
	var out outcome
	next.syncGroup(r.now, to, req, &out)
	r.settle(next, out)
}

// share is the assignment that belongs to a member, or to a static member's place.
func (r *randomGroup) share(generation int32, m *member) string {
	owner := m.id
	if m.instanceID != nil {
		owner = *m.instanceID
	}
	return fmt.Sprintf("%d for %s", generation, owner)
}

func (r *randomGroup) leave() {
	if r.g == nil {
		return
	}
	req := &LeaveRequest{Group: "g"}
	for range 1 + r.rnd.IntN(2) {
		m := LeaveMember{MemberID: r.someID()}
		if r.rnd.IntN(4) == 0 {
			m.InstanceID = r.instanceOf(m.MemberID)
			m.MemberID = ""
		}
		req.Members = append(req.Members, m)
	}
	to := r.token("leave")
	r.log("leave %d %v", to, req.Members)
	next := r.g.clone()
	var out outcome
	next.leaveGroup(r.now, to, req, &out)
	r.settle(next, out)
}

func (r *randomGroup) heartbeat() {
	id := r.someID()
	err := r.g.heartbeat(r.now, &HeartbeatRequest{Group: "g", MemberID: id, InstanceID: r.instanceOf(id), Generation: r.g.generation})
	r.log("heartbeat %s: %s", id, word(err))
}

func (r *randomGroup) commit() {
	req := &CommitRequest{Group: "g", Generation: -1, Retention: -1, Offsets: []CommitOffset{{TopicID: topicID("t1"), Offset: r.rnd.Int64N(1000)}}}
	if r.g != nil && r.rnd.IntN(3) > 0 {
		req.MemberID, req.Generation = r.someID(), r.g.generation
	}
	if err := checkCommit(r.g, req); err != nil {
		r.log("commit %s: %s", req.MemberID, word(err))
		return
	}
	r.log("commit %s: ok", req.MemberID)
	c, _ := commitOffsets(r.now, r.g, r.cfg, req)
	next := r.g
	if next == nil {
		next = newGroup("g", r.cfg)
		next.emptySince = r.now
	}
	r.settle(next, outcome{change: c})
}

func (r *randomGroup) advance(by time.Duration) {
	end := r.now.Add(by)
	r.log("advance %s", by)
	for steps := 0; r.g != nil && r.held == nil; steps++ {
		if steps > 10_000 {
			r.fail("the group wakes up again and again: %s gen=%d next=%s now=%s", r.g.state, r.g.generation, r.g.deadline(), r.now)
		}
		at := r.g.deadline()
		if at.IsZero() || at.After(end) {
			break
		}
		if at.After(r.now) {
			r.now = at
		}
		next := r.g.clone()
		var out outcome
		next.tick(r.now, &out)
		r.settle(next, out)
		r.check()
	}
	if end.After(r.now) {
		r.now = end
	}
}

// settle stores at once, or keeps the decision for a while and then stores or drops it.
func (r *randomGroup) settle(next *group, out outcome) {
	if out.change.isEmpty() {
		r.take(next, out)
		return
	}
	r.held = &heldDecision{next, out}
	if r.rnd.IntN(3) > 0 {
		r.release(true)
	}
}

func (r *randomGroup) release(stored bool) {
	h := r.held
	r.held = nil
	if !stored {
		r.log("the change was not stored")
		for to, what := range r.waiting { // the shell answers the caller
			if !r.parked(to) {
				r.log("answer %d (%s): not available", to, what)
				delete(r.waiting, to)
			}
		}
		return
	}
	r.rows.store(&h.out.change)
	if r.g != nil {
		h.next.keepSessions(r.g)
	}
	r.take(h.next, h.out)
}

func (r *randomGroup) take(next *group, out outcome) {
	if r.g != nil && next != r.g {
		if d := next.generation - r.g.generation; d < 0 || d > 1 {
			r.fail("generation goes from %d to %d", r.g.generation, next.generation)
		}
	}
	r.g = next
	if len(out.change.deletedGroups) > 0 {
		r.g, r.offsets = nil, offsets{}
	}
	if r.g != nil && len(out.change.groups) > 0 {
		r.g.stored = true
	}
	r.offsets.apply(&out.change)
	for _, reply := range out.replies {
		what, ok := r.waiting[reply.to]
		if !ok {
			r.fail("request %d is answered twice", reply.to)
		}
		delete(r.waiting, reply.to)
		r.checkReply(reply.to, what, reply.body)
	}
}

func (r *randomGroup) checkReply(to token, what string, body any) {
	switch b := body.(type) {
	case JoinReply:
		r.log("answer %d: join %s %s gen=%d", to, word(b.Err), b.MemberID, b.Generation)
		if b.Err == nil && b.Generation != r.g.generation {
			r.fail("join answers generation %d, the group has %d", b.Generation, r.g.generation)
		}
		if b.Err != nil && b.Generation != -1 {
			r.fail("generation of an error is %d", b.Generation)
		}
		if b.Err == nil && len(b.Members) > 0 && (b.Leader != b.MemberID || len(b.Members) != len(r.g.members)) {
			r.fail("member list for %s: %v, group %v", b.MemberID, b.Members, r.g.members)
		}
	case SyncReply:
		r.log("answer %d: sync %s %q", to, word(b.Err), b.Assignment)
		id := strings.TrimPrefix(what, "sync ")
		if b.Err != nil || r.g == nil {
			return
		}
		m, ok := r.g.members[id]
		if !ok {
			r.fail("sync answers %s, which is no member", id)
		}
		if want := r.share(r.g.generation, m); string(b.Assignment) != want {
			r.fail("%s got %q, its own is %q", id, b.Assignment, want)
		}
	default:
		r.log("answer %d: %v", to, body)
	}
}

func (r *randomGroup) restart() {
	r.log("restart")
	r.g, r.offsets = r.rows.load(r.now, r.cfg, "g")
	r.held = nil
	r.waiting = map[token]string{}
}

// parked says whether the group holds the request.
func (r *randomGroup) parked(to token) bool {
	if r.g == nil {
		return false
	}
	for _, m := range r.g.members {
		if m.join == to || m.sync == to {
			return true
		}
	}
	return false
}

func (r *randomGroup) check() {
	if r.held == nil {
		for to, what := range r.waiting {
			if !r.parked(to) {
				r.fail("request %d (%s) is lost", to, what)
			}
		}
	}
	g := r.g
	if g == nil {
		return
	}
	if len(g.members) > 0 != (g.state != empty) && !(g.state == preparing && (g.initial || len(g.pending) > 0)) {
		r.fail("%d members in state %s", len(g.members), g.state)
	}
	if _, ok := g.members[g.leader]; len(g.members) > 0 && !ok {
		r.fail("leader %q is no member", g.leader)
	}
	if g.state != empty && g.deadline().IsZero() {
		r.fail("nothing will ever wake the group")
	}
	for id, m := range g.members {
		if g.isPending(id) {
			r.fail("%s is pending and a member", id)
		}
		if m.instanceID != nil && g.static[*m.instanceID] != id {
			r.fail("static %s maps to %s, not %s", *m.instanceID, g.static[*m.instanceID], id)
		}
		if m.join != 0 && g.state != preparing || m.sync != 0 && g.state != completing {
			r.fail("%s waits in state %s", id, g.state)
		}
	}
	if len(g.pending) > r.cfg.maxPending {
		r.fail("%d pending ids", len(g.pending))
	}
	if r.held == nil {
		r.checkStored()
	}
}

// checkStored: what is stored rebuilds the group that was stable.
func (r *randomGroup) checkStored() {
	loaded, loadedOffsets := r.rows.load(r.now, r.cfg, "g")
	if len(loadedOffsets) != len(r.offsets) {
		r.fail("offsets stored %v, in memory %v", loadedOffsets, r.offsets)
	}
	for k, v := range r.offsets {
		if loadedOffsets[k] != v {
			r.fail("offset %v stored %v, in memory %v", k, loadedOffsets[k], v)
		}
	}
	g := r.g
	if (loaded != nil) != g.stored {
		r.fail("stored=%v, rows=%v", g.stored, loaded != nil)
	}
	if loaded == nil {
		return
	}
	if loaded.generation > g.generation {
		r.fail("stored generation %d is above %d", loaded.generation, g.generation)
	}
	if loaded.state == stable && g.state == stable && loaded.generation != g.generation {
		r.fail("stable in generation %d, stored %d", g.generation, loaded.generation)
	}
	if g.state != stable {
		return
	}
	if a, b := picture(g), picture(loaded); a != b {
		r.fail("live   %s\nstored %s", a, b)
	}
}

// picture is all of a stable group that must survive a restart.
func picture(g *group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %s/%s %s %v", g.state, g.generation, g.protocolType, g.protocol, g.leader, g.subscribed)
	ids := make([]string, 0, len(g.members))
	for id := range g.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		m := g.members[id]
		fmt.Fprintf(&b, " %s%s %s %s %s %v %q", m.id, instance(m.instanceID), m.clientID, m.session, m.rebalance, m.protocols, m.assignment)
	}
	return b.String()
}

// finish lets everybody fall silent: the group must become empty and answer all.
func (r *randomGroup) finish() {
	if r.held != nil {
		r.release(true)
	}
	for range 100 {
		r.advance(10 * time.Minute)
		if r.held != nil {
			r.release(true)
		}
		if r.g == nil || r.g.state == empty && len(r.g.pending) == 0 {
			break
		}
	}
	r.check()
	if r.g != nil && (r.g.state != empty || len(r.g.pending) > 0) {
		r.fail("the group never became empty: %s", r.g.state)
	}
	if len(r.waiting) > 0 {
		r.fail("never answered: %v", r.waiting)
	}
}
