package coordinator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func migratingTopics(partitions int32) Options {
	o, _ := consumerTopics(partitions)
	o.Embedded = testProtocol
	o.TopicName = func(id meta.UUID) (string, bool) { return strings.TrimRight(string(id[:]), "\x00"), true }
	return o
}

// classicAlone makes a stable classic group of one member, which has all partitions.
func (s *shell) classicAlone(group, assignment string) string {
	s.t.Helper()
	r := await(func(done func(JoinReply)) { s.groups.Join(joinRequest(group, ""), done) })
	if r.Err != nil {
		s.t.Fatalf("join: %+v", r)
	}
	if sync := s.sync(group, r.MemberID, r.Generation, Assignment{r.MemberID, []byte(assignment)}); sync.Err != nil {
		s.t.Fatalf("sync: %+v", sync)
	}
	return r.MemberID
}

func (s *shell) rejoin(group, member string) JoinReply {
	return await(func(done func(JoinReply)) { s.groups.Join(joinRequest(group, member), done) })
}

// TestMigrationAcrossProcesses: each step of a group's change of protocol is in Postgres before anybody hears of it, and
// its offsets stay.
func TestMigrationAcrossProcesses(t *testing.T) {
	o := migratingTopics(2)
	inBubble(t, o, func(t *testing.T, s *shell) {
		again := func() {
			s.kill()
			s.start(o)
		}
		a := s.classicAlone("g", "t1.0+t1.1")
		if err := s.commit("g", a, 1, 7); err != nil {
			t.Fatal(err)
		}
		again()
		s.mustConsume(consumerJoin("g", "x"), 2, 0)
		again()
		if err := s.heartbeat("g", a, 1); !errors.Is(err, ErrRebalancing) {
			t.Errorf("heartbeat: %v", err)
		}
		if err := s.commit("g", a, 1, 8); err != nil {
			t.Errorf("commit of the generation before: %v", err)
		}
		if r := s.rejoin("g", a); r.Err != nil || r.Generation != 2 || r.Leader != "" || r.Protocol != "range" {
			t.Errorf("joined %+v", r)
		}
		again()
		if r := s.sync("g", a, 2); r.Err != nil || string(r.Assignment) != "t1.0" {
			t.Errorf("synced %+v", r)
		}
		s.mustConsume(owns(consumerBeat("g", "x", 2)), 2, 1)
		if d := s.describeConsumers("g"); d.State != "Stable" || len(d.Members) != 2 || !d.Members[0].Classic || d.Members[1].Classic {
			t.Errorf("described %+v", d)
		}
		if r := s.consume(consumerBeat("g", "x", epochLeave)); r.Err != nil {
			t.Errorf("left %+v", r)
		}
		again()
		if err := s.heartbeat("g", a, 2); !errors.Is(err, ErrRebalancing) {
			t.Errorf("heartbeat: %v", err)
		}
		r := s.rejoin("g", a)
		if r.Err != nil || r.Generation != 3 || r.Leader != a {
			t.Errorf("joined %+v", r)
		}
		if n := s.committed("g"); n != 8 {
			t.Errorf("offset %d", n)
		}
		listed := await(func(done func([]GroupListing)) { s.groups.List(func(l []GroupListing, _ error) { done(l) }) })
		if len(listed) != 1 || listed[0].Kind != kindClassic {
			t.Errorf("listed %+v", listed)
		}
	})
}

// TestMigrationWhilePostgresIsSlow: while the change of a group's protocol is being stored its members' heartbeats are
// answered by the group that it was; a Join that waits for others hears at the end that it must come again.
func TestMigrationWhilePostgresIsSlow(t *testing.T) {
	inBubble(t, migratingTopics(2), func(t *testing.T, s *shell) {
		a := s.classicAlone("g", "t1.0+t1.1")
		waits := make(chan JoinReply, 2)
		s.groups.Join(joinRequest("g", ""), func(r JoinReply) { waits <- r })
		settle()
		s.store.delay = 2 * time.Second
		joined := make(chan ConsumerHeartbeatReply, 2)
		s.groups.ConsumerHeartbeat(consumerJoin("g", "x"), func(r ConsumerHeartbeatReply) { joined <- r })
		settle()
		before := time.Now()
		if err := s.heartbeat("g", a, 1); !errors.Is(err, ErrRebalancing) || time.Since(before) > 0 {
			t.Errorf("heartbeat: %v after %v", err, time.Since(before))
		}
		if len(waits)+len(joined) > 0 {
			t.Error("somebody heard of what is not stored")
		}
		if r := <-waits; !errors.Is(r.Err, ErrRebalancing) || r.MemberID == "" {
			t.Errorf("the Join that waited: %+v", r)
		}
		if r := <-joined; r.Err != nil || r.MemberEpoch != 2 {
			t.Errorf("joined %+v", r)
		}
		settle()
		if len(waits)+len(joined) > 0 {
			t.Error("a second answer")
		}
	})
}

// TestMigrationDuringAnOutage: the member that asked is told to ask again, who waited still waits, and when Postgres is back
// everybody hears once and the group goes on.
func TestMigrationDuringAnOutage(t *testing.T) {
	inBubble(t, migratingTopics(2), func(t *testing.T, s *shell) {
		a := s.classicAlone("g", "t1.0+t1.1")
		waits := make(chan JoinReply, 2)
		s.groups.Join(joinRequest("g", ""), func(r JoinReply) { waits <- r })
		settle()
		s.mem.SetHanging(true)
		if r := s.consume(consumerJoin("g", "x")); !errors.Is(r.Err, ErrNotAvailable) {
			t.Errorf("joined %+v", r)
		}
		if len(waits) > 0 {
			t.Error("a Join was answered")
		}
		s.mem.SetHanging(false)
		s.mustConsume(consumerJoin("g", "x"), 2, 0)
		if r := <-waits; !errors.Is(r.Err, ErrRebalancing) {
			t.Errorf("the Join that waited: %+v", r)
		}
		if r := s.rejoin("g", a); r.Err != nil || r.Generation != 2 {
			t.Errorf("joined %+v", r)
		}
		settle()
		if len(waits) > 0 {
			t.Error("a second answer")
		}
	})
}
