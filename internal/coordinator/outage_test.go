package coordinator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// outages are how Postgres can be away: connections refused, or a process that is stopped.
var outages = map[string]func(s *shell, away bool){
	"unavailable": func(s *shell, away bool) { s.mem.SetUnavailable(away) },
	"hanging":     func(s *shell, away bool) { s.mem.SetHanging(away) },
	// Nobody writes anything, so only the lease can know.
	"told by the lease": func(s *shell, away bool) { s.mem.SetUnavailable(away); s.groups.SetStoreUp(!away) },
}

// Postgres is away for forty seconds, four times the session timeout. Commits of live members land when it is back,
// nobody is expelled, not even a member that could not send a heartbeat, and each has its full session afterwards.
func TestOutageExpelsNobody(t *testing.T) {
	for name, set := range outages {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, s *shell) {
				a, b := s.stableGroup("g")
				time.Sleep(9 * time.Second) // a's session has a second left; b is silent from here on
				s.mustBeAlive("g", a, b)
				time.Sleep(8 * time.Second)
				set(s, true)
				back := time.Now().Add(40 * time.Second)
				time.AfterFunc(40*time.Second, func() { set(s, false) })

				landed := make(chan time.Time, 1)
				if name != "told by the lease" {
					go func() { landed <- s.commitUntilItLands(a) }()
				}
				time.Sleep(time.Until(back) + 9*time.Second) // b has not sent a heartbeat for 57 s
				want := []string{a, b}
				slices.Sort(want)
				if got := s.members("g"); !slices.Equal(got, want) {
					t.Fatalf("members %v, want %v", got, want)
				}
				if name != "told by the lease" {
					if at := <-landed; at.Sub(back) > time.Second {
						t.Errorf("the commit landed %s after Postgres was back", at.Sub(back))
					}
					if got := s.storedOffset("g"); got != 42 {
						t.Errorf("stored %d", got)
					}
				}
				s.mustBeAlive("g", a)
				time.Sleep(2 * time.Second) // but silence counts again
				if got := s.members("g"); !slices.Equal(got, []string{a}) {
					t.Errorf("members %v: a silent one stays", got)
				}
				if err := s.heartbeat("g", b, 1); !errors.Is(err, ErrUnknownMember) {
					t.Errorf("heartbeat of an expired member: %v", err)
				}
			})
		})
	}
}

// commitUntilItLands commits as a client does, again and again, and returns when it was told that it is stored.
func (s *shell) commitUntilItLands(member string) time.Time {
	for {
		if err := s.commit("g", member, 1, 42); err == nil {
			return time.Now()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Postgres comes back on another server, while our transaction hangs on a connection to the old one: the lease's word
// ends that wait.
func TestStuckConnectionIsCutOff(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.store.stuck = true
		began := time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { s.groups.SetStoreUp(false) })
		time.AfterFunc(3*time.Second, func() { s.groups.SetStoreUp(true) })
		if err := s.commit("g", "", -1, 5); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3500*time.Millisecond {
			t.Errorf("landed after %s", took)
		}
	})
}

// A rebalance that meets an outage ends when Postgres is back: the leader's Sync has a retriable error after the
// timeout, and repeating it works; the followers that wait are not expelled meanwhile.
func TestRebalanceDuringOutage(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		replies := make(chan JoinReply, 2)
		for range 2 {
			s.groups.Join(joinRequest("g", ""), func(r JoinReply) { replies <- r })
		}
		leader, follower := <-replies, <-replies
		if follower.Leader == follower.MemberID {
			leader, follower = follower, leader
		}
		waiting := make(chan SyncReply, 1)
		s.groups.Sync(SyncRequest{Group: "g", MemberID: follower.MemberID, Generation: 1}, func(r SyncReply) { waiting <- r })
		s.mem.SetUnavailable(true)
		began := time.Now()
		tries := 0
		for {
			tries++
			r := s.sync("g", leader.MemberID, 1, Assignment{follower.MemberID, []byte("F")})
			if r.Err == nil {
				break
			}
			if !errors.Is(r.Err, ErrNotAvailable) {
				t.Fatalf("sync: %v", r.Err)
			}
			if time.Since(began) > 30*time.Second {
				s.mem.SetUnavailable(false)
			}
		}
		if tries < 6 {
			t.Errorf("%d tries in %s", tries, time.Since(began))
		}
		if r := <-waiting; r.Err != nil || string(r.Assignment) != "F" {
			t.Errorf("follower: %+v", r)
		}
		s.mustBeAlive("g", leader.MemberID, follower.MemberID)
	})
}

// A restart of the broker makes nobody rebalance: ids, generation, assignments and offsets are there.
func TestRestartKeepsGroups(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		a, b := s.stableGroup("g")
		if err := s.commit("g", a, 1, 5); err != nil {
			t.Fatal(err)
		}
		s.kill()
		s.start(Options{})
		s.mustBeAlive("g", a, b)
		if got := s.committed("g"); got != 5 {
			t.Errorf("offset %d", got)
		}
		if r := s.sync("g", b, 1); r.Err != nil || string(r.Assignment) != "B" {
			t.Errorf("assignment: %+v", r)
		}
		time.Sleep(9 * time.Second)
		s.mustBeAlive("g", a, b)
	})
}

// Close answers who waits for members, lets what is decided reach Postgres, and refuses what comes after.
func TestClose(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		a, b := s.stableGroup("g")
		joining := make(chan JoinReply, 1)
		s.groups.Join(joinRequest("g", a), func(r JoinReply) { joining <- r })
		settle()
		s.store.delay = 100 * time.Millisecond
		commit := make(chan CommitReply, 1)
		s.groups.CommitOffsets(commitRequest("g", b, 1, 5), func(r CommitReply) { commit <- r })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.groups.Close(ctx)
		if r := <-joining; !errors.Is(r.Err, ErrNotCoordinator) {
			t.Errorf("join: %+v", r)
		}
		if r := <-commit; r.Err != nil {
			t.Errorf("commit: %+v", r)
		}
		if got := s.storedOffset("g"); got != 5 {
			t.Errorf("stored %d", got)
		}
		if err := s.heartbeat("g", a, 1); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("heartbeat after Close: %v", err)
		}
		s.groups.Close(ctx)
	})
}

// Release answers who waits for members at once, refuses who would wait after it, and goes on with the rest.
func TestRelease(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		a, b := s.stableGroup("g")
		steady, _ := s.stableGroup("h")
		joining := make(chan JoinReply, 1)
		s.groups.Join(joinRequest("g", a), func(r JoinReply) { joining <- r })
		settle()
		s.store.delay = 100 * time.Millisecond
		commit := make(chan CommitReply, 1)
		s.groups.CommitOffsets(commitRequest("g", b, 1, 5), func(r CommitReply) { commit <- r })
		s.groups.Release(t.Context())
		select {
		case r := <-joining:
			if !errors.Is(r.Err, ErrNotCoordinator) {
				t.Errorf("join: %+v", r)
			}
		default:
			t.Error("the join still waits")
		}
		if err := s.heartbeat("h", steady, 1); err != nil {
			t.Errorf("heartbeat after Release: %v", err)
		}
		s.groups.Join(joinRequest("h", steady), func(r JoinReply) { joining <- r })
		if r := <-joining; !errors.Is(r.Err, ErrNotCoordinator) {
			t.Errorf("join after Release: %+v", r)
		}
		if r := <-commit; r.Err != nil {
			t.Errorf("commit: %+v", r)
		}
		s.groups.CommitOffsets(commitRequest("h", steady, 1, 6), func(r CommitReply) { commit <- r })
		if r := <-commit; r.Err != nil {
			t.Errorf("commit after Release: %+v", r)
		}
	})
}

// Close does not wait longer than it may.
func TestCloseWhilePostgresIsAway(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.mem.SetHanging(true)
		commit := make(chan CommitReply, 1)
		s.groups.CommitOffsets(commitRequest("g", "", -1, 5), func(r CommitReply) { commit <- r })
		settle()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s.groups.Close(ctx)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %s", took)
		}
		if r := <-commit; !errors.Is(r.Err, ErrNotCoordinator) {
			t.Errorf("commit: %+v", r)
		}
		s.mem.SetHanging(false)
	})
}

// A process that was stopped has heard no heartbeat: nobody is judged by that time.
func TestPausedProcess(t *testing.T) {
	g := New(Options{})
	now := time.Now()
	s := g.shards[0]
	e := s.entry("g")
	e.g = newGroup("g", s.cfg)
	s.ours = true
	s.nextSweep = now.Add(time.Hour)
	e.g.add(&member{id: "m", session: 10 * time.Second, expires: startTimer(now, 10*time.Second)}, "consumer")
	e.g.add(&member{id: "patient", session: time.Hour, rebalance: time.Hour, expires: startTimer(now, time.Hour)}, "consumer")
	e.g.state = stable
	s.touch(e, now)
	alive := func() bool {
		if e.g == nil {
			return false
		}
		_, ok := e.g.members["m"]
		return ok
	}
	for range 18 { // nine seconds of an ordinary life
		now = now.Add(tickEvery)
		g.health.tick(now)
		s.fire(now)
	}
	now = now.Add(time.Minute) // stopped; on waking, the shard comes first
	s.fire(now)
	if !alive() {
		t.Fatal("expelled for a time in which nobody listened, before the clock had noticed")
	}
	g.health.tick(now)
	s.fire(now)
	if !alive() {
		t.Fatal("expelled for a time in which nobody listened")
	}
	for range 19 {
		now = now.Add(tickEvery)
		g.health.tick(now)
		s.fire(now)
	}
	if !alive() {
		t.Error("not the full session after waking")
	}
	now = now.Add(tickEvery)
	g.health.tick(now)
	s.fire(now)
	if alive() {
		t.Error("silence no longer counts")
	}
}

// TestTimerThatCannotBeStored: what a timer decides when nothing can be stored any more is tried again later, not at once and
// without end.
func TestTimerThatCannotBeStored(t *testing.T) {
	g := New(Options{})
	now := time.Now()
	s := g.shards[0]
	e := s.entry("g")
	e.g = newGroup("g", s.cfg)
	s.ours, s.nextSweep = true, now.Add(time.Hour)
	e.g.add(&member{id: "m", session: time.Second, expires: startTimer(now, -time.Second)}, "consumer")
	e.g.state = stable
	s.touch(e, now)
	for range 3 {
		g.health.tick(now)
		if wait := s.fire(now); wait < time.Second || len(e.g.members) != 1 {
			t.Fatalf("looks again after %s, with %d members", wait, len(e.g.members))
		}
		for range int(time.Second / tickEvery) {
			now = now.Add(tickEvery)
			g.health.tick(now)
		}
	}
}
