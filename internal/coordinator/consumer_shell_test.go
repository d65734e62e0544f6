package coordinator

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// consumerTopics has the topic t1 with the given number of partitions; more can be stored in it later.
func consumerTopics(partitions int32) (Options, *atomic.Pointer[TopicView]) {
	var view atomic.Pointer[TopicView]
	view.Store(&TopicView{ByName: map[string]meta.UUID{"t1": topicID("t1")}, Partitions: map[meta.UUID]int32{topicID("t1"): partitions}})
	return Options{Topics: view.Load, RetentionCheck: time.Hour}, &view
}

func (s *shell) consume(r ConsumerHeartbeatRequest) ConsumerHeartbeatReply {
	s.t.Helper()
	return await(func(done func(ConsumerHeartbeatReply)) { s.groups.ConsumerHeartbeat(r, done) })
}

func consumerJoin(group, member string) ConsumerHeartbeatRequest {
	return ConsumerHeartbeatRequest{
		Group: group, MemberID: member, Topics: []string{"t1"}, Owned: []TopicPartitions{}, RebalanceTimeout: time.Minute, ClientHost: "/127.0.0.1",
	}
}

func consumerBeat(group, member string, epoch int32) ConsumerHeartbeatRequest {
	return ConsumerHeartbeatRequest{Group: group, MemberID: member, MemberEpoch: epoch, RebalanceTimeout: -1, ClientHost: "/127.0.0.1"}
}

func (s *shell) describeConsumers(group string) ConsumerGroupDescription {
	return await(func(done func([]ConsumerGroupDescription)) { s.groups.DescribeConsumers([]string{group}, done) })[0]
}

func (s *shell) mustConsume(r ConsumerHeartbeatRequest, epoch int32, assigned int) {
	s.t.Helper()
	reply := s.consume(r)
	n := 0
	for _, t := range reply.Assignment {
		n += len(t.Partitions)
	}
	if reply.Err != nil || reply.MemberEpoch != epoch || n != assigned || reply.MemberID != r.MemberID {
		s.t.Fatalf("heartbeat of %s: %+v, want epoch %d and %d partitions", r.MemberID, reply, epoch, assigned)
	}
}

func owns(r ConsumerHeartbeatRequest, partitions ...int32) ConsumerHeartbeatRequest {
	r.Owned = []TopicPartitions{{topicID("t1"), partitions}}
	return r
}

// TestConsumersAcrossProcesses: what members were told is in Postgres before they are, so a restart changes nothing.
func TestConsumersAcrossProcesses(t *testing.T) {
	o, _ := consumerTopics(4)
	inBubble(t, o, func(t *testing.T, s *shell) {
		s.mustConsume(consumerJoin("g", "a"), 1, 4)
		s.mustConsume(consumerJoin("g", "b"), 2, 0)
		s.mustConsume(owns(consumerBeat("g", "a", 1), 0, 1, 2, 3), 1, 2)
		s.kill()
		s.start(o)
		s.mustConsume(consumerBeat("g", "b", 2), 2, 0)
		s.mustConsume(owns(consumerBeat("g", "a", 1), 0, 1), 2, 0)
		s.kill()
		s.start(o)
		s.mustConsume(consumerBeat("g", "a", 2), 2, 0)
		s.mustConsume(consumerBeat("g", "b", 2), 2, 2)
		if d := s.describeConsumers("g"); d.Err != nil || d.State != "Stable" || d.Epoch != 2 || len(d.Members) != 2 {
			t.Errorf("described %+v", d)
		}
		commits := s.store.commits.Load()
		for range 20 { // heartbeats of a settled group cost Postgres nothing
			s.mustConsume(consumerBeat("g", "a", 2), 2, 0)
			s.mustConsume(owns(consumerBeat("g", "b", 2), 2, 3), 2, 0)
		}
		if n := s.store.commits.Load() - commits; n != 0 {
			t.Errorf("%d commits", n)
		}
	})
}

// TestConsumersOffsets: commits and fetches of members carry their epoch.
func TestConsumersOffsets(t *testing.T) {
	o, _ := consumerTopics(1)
	inBubble(t, o, func(t *testing.T, s *shell) {
		s.mustConsume(consumerJoin("g", "a"), 1, 1)
		commit := commitRequest("g", "a", 1, 7)
		commit.Version = 9
		send := func(c CommitRequest) error {
			r := await(func(done func(CommitReply)) { s.groups.CommitOffsets(c, done) })
			return r.Err
		}
		if err := send(commit); err != nil {
			t.Fatal(err)
		}
		old, stale, stranger := commit, commit, commit
		old.Version, stale.Generation, stranger.MemberID = 8, 0, "x"
		for _, c := range []struct {
			r    CommitRequest
			want error
		}{{old, ErrVersionOfCommit}, {stale, ErrStaleEpoch}, {stranger, ErrUnknownMember}} {
			if err := send(c.r); !errors.Is(err, c.want) {
				t.Errorf("commit: %v, want %v", err, c.want)
			}
		}
		a, x := "a", "x"
		for _, c := range []struct {
			member *string
			epoch  int32
			want   error
		}{{nil, -1, nil}, {&a, 1, nil}, {&a, 2, ErrStaleEpoch}, {&x, 1, ErrUnknownMember}} {
			r := await(func(done func(FetchOffsetsReply)) {
				s.groups.FetchOffsets(FetchOffsetsRequest{Group: "g", MemberID: c.member, MemberEpoch: c.epoch}, done)
			})
			if !errors.Is(r.Err, c.want) {
				t.Errorf("fetch in epoch %d: %v, want %v", c.epoch, r.Err, c.want)
			}
		}
		if err := await(func(done func([]error)) { s.groups.DeleteGroups([]string{"g"}, done) })[0]; !errors.Is(err, ErrNonEmptyGroup) {
			t.Errorf("delete: %v", err)
		}
		del := await(func(done func(DeleteOffsetsReply)) {
			s.groups.DeleteOffsets(DeleteOffsetsRequest{Group: "g", Partitions: []NamedPartition{{TopicPartition{topicID("t1"), 0}, "t1"}}}, done)
		})
		if !errors.Is(del.Partitions[0], ErrSubscribed) {
			t.Errorf("delete offsets: %+v", del)
		}
		s.mustConsume(consumerBeat("g", "a", epochLeave), epochLeave, 0)
		if s.committed("g") != 7 {
			t.Error("the offset is gone")
		}
		if err := await(func(done func([]error)) { s.groups.DeleteGroups([]string{"g"}, done) })[0]; err != nil {
			t.Errorf("delete: %v", err)
		}
		if rows := s.stored("g"); len(rows.Groups)+len(rows.Members)+len(rows.Offsets) != 0 {
			t.Errorf("left %+v", rows)
		}
	})
}

// TestConsumersAndClassicGroups: an empty group changes its protocol with who joins, and keeps offsets and epoch; one with
// members does not.
func TestConsumersAndClassicGroups(t *testing.T) {
	o, _ := consumerTopics(1)
	inBubble(t, o, func(t *testing.T, s *shell) {
		if r := s.consume(consumerBeat("g", "a", 5)); !errors.Is(r.Err, ErrGroupNotFound) {
			t.Errorf("heartbeat of no group: %v", r.Err)
		}
		_, _ = s.stableGroup("g")
		if r := s.consume(consumerJoin("g", "x")); !errors.Is(r.Err, ErrGroupNotFound) {
			t.Errorf("join of a classic group: %v", r.Err)
		}
		if d := s.describeConsumers("g"); !errors.Is(d.Err, ErrGroupNotFound) {
			t.Errorf("described %+v", d)
		}
		for _, m := range s.members("g") {
			await(func(done func(LeaveReply)) {
				s.groups.Leave(LeaveRequest{Group: "g", Members: []LeaveMember{{MemberID: m}}}, done)
			})
		}
		if err := s.commit("g", "", -1, 9); err != nil {
			t.Fatal(err)
		}
		first := s.consume(consumerJoin("g", "x"))
		if first.Err != nil || first.MemberEpoch < 2 {
			t.Fatalf("join: %+v", first)
		}
		if r := await(func(done func(JoinReply)) { s.groups.Join(joinRequest("g", ""), done) }); !errors.Is(r.Err, ErrInconsistentProtocol) {
			t.Errorf("classic join: %v", r.Err)
		}
		if d := await(func(done func([]GroupDescription)) { s.groups.Describe([]string{"g"}, done) })[0]; !errors.Is(d.Err, ErrGroupNotFound) || d.State != "Dead" {
			t.Errorf("classic describe: %+v", d)
		}
		list := await(func(done func([]GroupListing)) {
			s.groups.List(func(l []GroupListing, err error) { done(l) })
		})
		if len(list) != 1 || list[0].Kind != "consumer" || list[0].State != "Stable" || list[0].ProtocolType != "consumer" {
			t.Errorf("listed %+v", list)
		}
		s.kill()
		s.start(o)
		s.mustConsume(consumerBeat("g", "x", epochLeave), epochLeave, 0)
		_, _ = s.stableGroupAfter("g", first.MemberEpoch)
		if s.committed("g") != 9 {
			t.Error("the offset is gone")
		}
		s.kill()
		s.start(o)
		if got := len(s.members("g")); got != 1 {
			t.Errorf("%d members after the way back", got)
		}
	})
}

// stableGroupAfter brings one classic member into a group whose generation must be above the given one.
func (s *shell) stableGroupAfter(group string, generation int32) (string, int32) {
	s.t.Helper()
	r := await(func(done func(JoinReply)) { s.groups.Join(joinRequest(group, ""), done) })
	if r.Err != nil || r.Generation <= generation {
		s.t.Fatalf("join: %+v", r)
	}
	if sync := s.sync(group, r.MemberID, r.Generation, Assignment{r.MemberID, []byte("A")}); sync.Err != nil {
		s.t.Fatalf("sync: %v", sync.Err)
	}
	return r.MemberID, r.Generation
}

// TestConsumersWhilePostgresIsSlow: a heartbeat that tells nothing is answered while a decision about its group is being
// stored, one that tells something waits, and nothing is told before it is stored.
func TestConsumersWhilePostgresIsSlow(t *testing.T) {
	o, view := consumerTopics(2)
	inBubble(t, o, func(t *testing.T, s *shell) {
		s.mustConsume(consumerJoin("g", "a"), 1, 2)
		s.store.delay = 2 * time.Second
		joined, told := make(chan ConsumerHeartbeatReply, 1), make(chan ConsumerHeartbeatReply, 1)
		s.groups.ConsumerHeartbeat(consumerJoin("g", "b"), func(r ConsumerHeartbeatReply) { joined <- r })
		settle()
		s.groups.ConsumerHeartbeat(owns(consumerBeat("g", "a", 1), 0, 1), func(r ConsumerHeartbeatReply) { told <- r })
		before := time.Now()
		s.mustConsume(consumerBeat("g", "a", 1), 1, 0)
		if took := time.Since(before); took > 0 {
			t.Errorf("the heartbeat took %v", took)
		}
		if len(joined)+len(told) != 0 {
			t.Error("told before it is stored")
		}
		if r := <-joined; r.Err != nil || r.MemberEpoch != 2 {
			t.Errorf("join: %+v", r)
		}
		if r := <-told; r.Err != nil || len(r.Assignment) != 1 || len(r.Assignment[0].Partitions) != 1 {
			t.Errorf("heartbeat: %+v", r)
		}
		s.store.delay = 0
		view.Store(&TopicView{ByName: view.Load().ByName, Partitions: map[meta.UUID]int32{topicID("t1"): 4}})
		if r := s.consume(consumerBeat("g", "b", 2)); r.Err != nil || r.MemberEpoch != 3 {
			t.Errorf("after the topic has grown: %+v", r)
		}
		time.Sleep(time.Minute) // nobody speaks
		settle()
		if d := s.describeConsumers("g"); d.State != "Empty" || len(s.stored("g").Members) != 0 {
			t.Errorf("described %+v", d)
		}
	})
}

// BenchmarkConsumerHeartbeat: heartbeats that tell nothing, in a settled group of 1,000 members with 10,000 partitions.
func BenchmarkConsumerHeartbeat(b *testing.B) {
	o, _ := consumerTopics(10_000)
	view := o.Topics()
	cfg := testSettings()
	cfg.consumer = &consumerSettings{session: time.Minute, interval: time.Second, maxSize: 1 << 30, assignors: []string{assignorUniform}}
	g := newGroup("g", cfg)
	g.becomeConsumers()
	now := time.Unix(1e9, 0)
	var names []string
	for i := range 1000 {
		r := consumerJoin("g", fmt.Sprintf("m%04d", i))
		g.consumers.heartbeat(now, view, "", &r, &outcome{})
		names = append(names, r.MemberID)
	}
	for range 3 { // everybody gives up and takes
		for _, name := range names {
			m := g.consumers.members[name]
			r := consumerBeat("g", name, m.epoch)
			r.Owned = m.assigned.list()
			g.consumers.heartbeat(now, view, "", &r, &outcome{})
		}
	}
	if state := g.consumers.state(); state != "Stable" {
		b.Fatal(state)
	}
	for b.Loop() {
		for _, name := range names {
			r := consumerBeat("g", name, g.consumers.epoch)
			if !g.nothingToDecide(view, &r) {
				b.Fatal("a settled member needs a decision")
			}
			if reply := g.aliveConsumer(now, &r); reply.Err != nil {
				b.Fatal(reply.Err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(names)), "ns/heartbeat")
}

// A group's own session timeout and heartbeat interval hold from the next heartbeat on; other groups keep the broker's.
func TestConsumersOwnTimes(t *testing.T) {
	o, _ := consumerTopics(1)
	var own atomic.Pointer[ConsumerTimes]
	own.Store(&ConsumerTimes{})
	o.ConsumerTimes = func(group string) ConsumerTimes {
		if group == "g" {
			return *own.Load()
		}
		return ConsumerTimes{}
	}
	inBubble(t, o, func(t *testing.T, s *shell) {
		if r := s.consume(consumerJoin("g", "a")); r.Interval != 5*time.Second {
			t.Errorf("joined %+v", r)
		}
		s.mustConsume(consumerJoin("other", "a"), 1, 1)
		own.Store(&ConsumerTimes{Session: 10 * time.Second, Interval: time.Second})
		if r := s.consume(owns(consumerBeat("g", "a", 1), 0)); r.Interval != time.Second {
			t.Errorf("heartbeat %+v", r)
		}
		if r := s.consume(consumerBeat("other", "a", 1)); r.Interval != 5*time.Second {
			t.Errorf("heartbeat of another group %+v", r)
		}
		time.Sleep(9 * time.Second)
		if d := s.describeConsumers("g"); len(d.Members) != 1 {
			t.Errorf("after 9 s: %+v", d)
		}
		time.Sleep(2 * time.Second)
		if d := s.describeConsumers("g"); len(d.Members) != 0 || d.State != "Empty" {
			t.Errorf("after 11 s: %+v", d)
		}
		if d := s.describeConsumers("other"); len(d.Members) != 1 {
			t.Errorf("another group: %+v", d)
		}
	})
}
