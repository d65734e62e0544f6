package coordinator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// TestStorm lets clients join, sync, commit and leave while the store fails in every way it can, and the process is
// killed now and then. Each request must be answered exactly once; a commit that was acknowledged must not be lost or
// overtaken by an older one; in the end memory is what Postgres has.
func TestStorm(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, s *shell) { storm(t, s, uint64(seed), false) })
		})
		t.Run(fmt.Sprint("relaxed-", seed), func(t *testing.T) {
			inBubble(t, Options{Relaxed: true}, func(t *testing.T, s *shell) { storm(t, s, uint64(seed), true) })
		})
	}
}

// stormClient is one member of one group, with a partition of its own.
type stormClient struct {
	group     string
	partition int32
	acked     int64 // highest offset that was acknowledged
	sent      int64
}

// storm with relaxed also lets Postgres forget commits that were not settled, and lets standbys take over that lack
// some of the last ones.
func storm(t *testing.T, s *shell, seed uint64, relaxed bool) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	var mu sync.RWMutex // held for writing while the process is killed and started
	end := time.Now().Add(2 * time.Minute)
	clients := make([]*stormClient, 24)
	crashes := 0
	var running sync.WaitGroup
	for i := range clients {
		c := &stormClient{group: fmt.Sprintf("g%d", i%5), partition: int32(i)}
		clients[i] = c
		own := rand.New(rand.NewPCG(seed, uint64(100+i)))
		running.Go(func() { c.run(t, s, &mu, own, end) })
	}
	for time.Now().Before(end) {
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		kinds := 7
		if relaxed {
			kinds = 12
		}
		switch rnd.IntN(kinds) {
		case 0:
			s.mem.UnknownNext(true, "CommitShards", "CommitShardsRelaxed")
		case 1:
			s.mem.UnknownNext(false, "CommitShards", "CommitShardsRelaxed")
		case 2:
			s.mem.FailNext(meta.ErrUnavailable, "CommitShards", "CommitShardsRelaxed")
		case 3:
			s.mem.FailNext(meta.ErrStale, "CommitShards", "CommitShardsRelaxed")
		case 4:
			s.mem.SetUnavailable(true)
			time.Sleep(time.Duration(rnd.IntN(9000)) * time.Millisecond)
			s.mem.SetUnavailable(false)
		case 5:
			s.mem.SetHanging(true)
			time.Sleep(time.Duration(rnd.IntN(9000)) * time.Millisecond)
			s.mem.SetHanging(false)
		case 6:
			mu.Lock()
			s.kill()
			s.start(Options{Relaxed: relaxed})
			mu.Unlock()
		case 7, 8, 9:
			crashes += s.mem.Crash(1 + rnd.IntN(40))
		case 10:
			s.mem.UnknownNext(rnd.IntN(2) == 0, "CommitShardsRelaxed")
			crashes += s.mem.Crash(1 + rnd.IntN(40))
		case 11:
			s.mem.Fork(rnd.IntN(30))
			time.Sleep(20 * time.Second) // no process begins on a database that was not compared
		}
	}
	running.Wait()
	if relaxed {
		time.Sleep(20 * time.Second)
		rows, shards := s.groups.Unsettled()
		for range 20 { // members that end with their clients are changes, too, until a renewal has seen them
			if rows+shards == 0 {
				break
			}
			time.Sleep(time.Second)
			rows, shards = s.groups.Unsettled()
		}
		if rows+shards > 0 {
			t.Errorf("%d rows of an idle store are never settled, %d shards never whole", rows, shards)
		}
		if crashes == 0 {
			t.Error("Postgres forgot nothing")
		}
	}
	for _, c := range clients {
		c.verify(t, s)
	}
	for i := range 5 {
		s.verifyGroup(fmt.Sprintf("g%d", i))
	}
}

// run is a consumer's life: join, sync, commit for a while, leave or vanish.
func (c *stormClient) run(t *testing.T, s *shell, mu *sync.RWMutex, rnd *rand.Rand, end time.Time) {
	member, generation := "", int32(-1)
	for time.Now().Before(end) {
		mu.RLock()
		groups := s.groups
		mu.RUnlock()
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		switch n := rnd.IntN(20); {
		case generation < 0:
			r := once(t, "join", func(done func(JoinReply)) { groups.Join(joinRequest(c.group, member), done) })
			member = r.MemberID
			switch {
			case errors.Is(r.Err, ErrUnknownMember):
				member = ""
			case r.Err == nil:
				generation = c.sync(t, groups, r)
			}
		case n == 0:
			reply := once(t, "leave", func(done func(LeaveReply)) {
				groups.Leave(LeaveRequest{Group: c.group, Members: []LeaveMember{{MemberID: member}}}, done)
			})
			if reply.Err == nil {
				member, generation = "", -1
			}
		case n == 1: // vanish
			time.Sleep(15 * time.Second)
		case n < 8:
			err := once(t, "heartbeat", func(done func(error)) {
				groups.Heartbeat(HeartbeatRequest{Group: c.group, MemberID: member, Generation: generation}, done)
			})
			member, generation = rejoinAfter(err, member, generation)
		default:
			err := c.commit(t, groups, member, generation)
			member, generation = rejoinAfter(err, member, generation)
		}
	}
}

func (c *stormClient) sync(t *testing.T, groups *Groups, r JoinReply) int32 {
	req := SyncRequest{Group: c.group, MemberID: r.MemberID, Generation: r.Generation}
	for _, m := range r.Members {
		req.Assignments = append(req.Assignments, Assignment{m.MemberID, []byte(fmt.Sprintf("%d %s", r.Generation, m.MemberID))})
	}
	reply := once(t, "sync", func(done func(SyncReply)) { groups.Sync(req, done) })
	if reply.Err != nil {
		return -1
	}
	if !strings.HasSuffix(string(reply.Assignment), " "+r.MemberID) {
		t.Errorf("%s got %q", r.MemberID, reply.Assignment)
	}
	return r.Generation
}

func (c *stormClient) commit(t *testing.T, groups *Groups, member string, generation int32) error {
	c.sent++
	req := commitRequest(c.group, member, generation, c.sent)
	req.Offsets[0].Partition = c.partition
	sent := c.sent
	reply := once(t, "commit", func(done func(CommitReply)) { groups.CommitOffsets(req, done) })
	if reply.Err == nil {
		c.acked = sent
	}
	return reply.Err
}

func rejoinAfter(err error, member string, generation int32) (string, int32) {
	switch {
	case errors.Is(err, ErrUnknownMember), errors.Is(err, ErrGroupNotFound):
		return "", -1
	case errors.Is(err, ErrRebalancing), errors.Is(err, ErrIllegalGeneration):
		return member, -1
	}
	return member, generation
}

// once waits for the answer and fails on a second one.
func once[T any](t *testing.T, what string, call func(done func(T))) T {
	var answers atomic.Int32
	ch := make(chan T, 1)
	call(func(v T) {
		if n := answers.Add(1); n > 1 {
			t.Errorf("%s is answered %d times", what, n)
			return
		}
		ch <- v
	})
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Minute):
		t.Errorf("%s is never answered", what)
		var zero T
		return zero
	}
}

// verify: the stored offset is at least the one that was acknowledged last, and none that was never sent.
func (c *stormClient) verify(t *testing.T, s *shell) {
	want := TopicPartition{topicID("t1"), c.partition}
	stored := int64(-1)
	for _, o := range s.stored(c.group).Offsets {
		if o.Group == c.group && o.TopicID == want.TopicID && o.Partition == want.Partition {
			stored = o.Offset
		}
	}
	reply := await(func(done func(FetchOffsetsReply)) {
		s.groups.FetchOffsets(FetchOffsetsRequest{Group: c.group, Partitions: []TopicPartition{want}}, done)
	})
	if got := reply.Offsets[0].Offset; got != stored {
		t.Errorf("%s/%d: memory %d, store %d", c.group, c.partition, got, stored)
	}
	if stored < c.acked || stored > c.sent {
		t.Errorf("%s/%d: stored %d, acknowledged %d, sent %d", c.group, c.partition, stored, c.acked, c.sent)
	}
	if c.acked == 0 {
		t.Errorf("%s/%d: no commit ever landed", c.group, c.partition)
	}
}

// verifyGroup: a stable group is what its rows make of it.
func (s *shell) verifyGroup(group string) {
	sh := s.groups.shards[meta.ShardOf(group)]
	rows := s.stored(group)
	done := make(chan struct{})
	sh.box.put(func(now time.Time) {
		defer close(done)
		e := sh.entries[group]
		if e == nil || e.g == nil || e.g.state != stable || e.busy {
			return
		}
		var members []meta.MemberRow
		for _, m := range rows.Members {
			if m.Group == group {
				members = append(members, m)
			}
		}
		for _, row := range rows.Groups {
			if row.Group == group {
				if a, b := picture(e.g), picture(loadGroup(now, sh.cfg, row, members)); a != b {
					s.t.Errorf("live   %s\nstored %s", a, b)
				}
			}
		}
	})
	<-done
}
