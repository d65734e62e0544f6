package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Two thousand consumers that commit at the same moment share a few transactions, at most two of which are under way,
// never two for one shard.
func TestCommitsShareTransactions(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.store.delay = 5 * time.Millisecond
		names := groupNames(2000)
		began := time.Now()
		done := make(chan error, len(names))
		for _, g := range names {
			s.groups.CommitOffsets(commitRequest(g, "", -1, 7), func(r CommitReply) { done <- r.Err })
		}
		for range names {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d transactions for %d commits in %s", s.store.commits.Load(), len(names), time.Since(began))
		if n := s.store.commits.Load(); n > 20 {
			t.Errorf("%d transactions for %d commits", n, len(names))
		}
		if s.store.most > commitsAtOnce || s.store.overlap {
			t.Errorf("%d transactions at once, overlapping shards: %v", s.store.most, s.store.overlap)
		}
		for _, g := range names {
			if got := s.storedOffset(g); got != 7 {
				t.Fatalf("%s: stored %d", g, got)
			}
		}
	})
}

// Two thousand commits a second, one after the other, do not need two thousand transactions, though each would be done
// before the next comes; a few commits do not wait at all.
func TestPacedCommitsShareTransactions(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.store.delay = 300 * time.Microsecond
		for i := range 50 {
			began := time.Now()
			if err := s.commit("alone", "", -1, int64(i)); err != nil || time.Since(began) != s.store.delay {
				t.Fatalf("%v after %s", err, time.Since(began))
			}
		}
		time.Sleep(time.Second)
		before := s.store.commits.Load()
		const n = 4000
		took := make(chan time.Duration, n)
		for i, g := range groupNames(n) {
			began := time.Now()
			s.groups.CommitOffsets(commitRequest(g, "", -1, int64(i)), func(r CommitReply) {
				if r.Err != nil {
					t.Error(r.Err)
				}
				took <- time.Since(began)
			})
			time.Sleep(500 * time.Microsecond)
		}
		var longest time.Duration
		for range n {
			longest = max(longest, <-took)
		}
		transactions := s.store.commits.Load() - before
		t.Logf("%d transactions, the slowest commit took %s", transactions, longest)
		if transactions > commitsBurst+2*commitsPerSecond+10 {
			t.Errorf("%d transactions for %d commits in two seconds", transactions, n)
		}
		if longest > 10*time.Millisecond {
			t.Errorf("a commit took %s", longest)
		}
	})
}

// What was answered is stored, and in the order in which it came, also when a transaction has to be repeated after
// newer commits have come: the last one wins.
func TestLastCommitWins(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.store.delay = 10 * time.Millisecond
		s.mem.FailNext(meta.ErrUnavailable, "CommitShards")
		done := make(chan error, 3)
		for i := range 3 {
			s.groups.CommitOffsets(commitRequest("g", "", -1, int64(i)), func(r CommitReply) { done <- r.Err })
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if a, b := s.committed("g"), s.storedOffset("g"); a != 2 || b != 2 {
			t.Errorf("memory %d, store %d, want 2", a, b)
		}
	})
}

// A commit whose outcome is unknown is resolved before it is answered, whichever way it went.
func TestUnknownOutcome(t *testing.T) {
	for _, tookEffect := range []bool{true, false} {
		inBubble(t, Options{}, func(t *testing.T, s *shell) {
			if err := s.commit("g", "", -1, 1); err != nil {
				t.Fatal(err)
			}
			s.mem.UnknownNext(tookEffect, "CommitShards")
			if err := s.commit("g", "", -1, 2); err != nil {
				t.Fatalf("took effect %v: %v", tookEffect, err)
			}
			if s.store.resolves.Load() == 0 {
				t.Error("the outcome was not resolved")
			}
			if want := map[bool]int32{true: 2, false: 3}[tookEffect]; s.store.commits.Load() != want {
				t.Errorf("took effect %v: %d transactions, want %d", tookEffect, s.store.commits.Load(), want)
			}
			if a, b := s.committed("g"), s.storedOffset("g"); a != 2 || b != 2 {
				t.Errorf("took effect %v: memory %d, store %d", tookEffect, a, b)
			}
			if err := s.commit("g", "", -1, 3); err != nil {
				t.Errorf("after the resolve: %v", err)
			}
		})
	}
}

// A stale guard is read again and the change made under the new one.
func TestStaleGuard(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.mem.FailNext(meta.ErrStale, "CommitShards")
		if err := s.commit("g", "", -1, 5); err != nil {
			t.Fatal(err)
		}
		if s.storedOffset("g") != 5 {
			t.Error("not stored")
		}
	})
}

// While Postgres refuses connections a commit waits its timeout, has a retriable error then, and is not made later.
func TestCommitTimesOutWhileUnavailable(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.mem.SetUnavailable(true)
		began := time.Now()
		if err := s.commit("g", "", -1, 5); !errors.Is(err, ErrNotAvailable) {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("answered after %s", took)
		}
		s.mem.SetUnavailable(false)
		time.Sleep(time.Second)
		if got := s.storedOffset("g"); got != -1 {
			t.Errorf("stored %d after the client was told otherwise", got)
		}
		if err := s.commit("g", "", -1, 6); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}

// A commit that comes back in time lands by itself, within a moment of Postgres' return.
func TestCommitLandsAfterShortOutage(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.mem.SetUnavailable(true)
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { s.mem.SetUnavailable(false) })
		if err := s.commit("g", "", -1, 5); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Second+2*longestBackoff {
			t.Errorf("landed after %s", took)
		}
	})
}

// A stopped Postgres hangs. Commits are answered at their deadline all the same, and reads and heartbeats at once;
// what was under way is resolved when Postgres goes on, and memory agrees with it.
func TestHangingStore(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		a, _ := s.stableGroup("g")
		if err := s.commit("g", a, 1, 1); err != nil {
			t.Fatal(err)
		}
		s.mem.SetHanging(true)
		commit := make(chan error, 1)
		began := time.Now()
		s.groups.CommitOffsets(commitRequest("g", a, 1, 2), func(r CommitReply) { commit <- r.Err })
		if err := s.heartbeat("g", a, 1); err != nil {
			t.Errorf("heartbeat: %v", err)
		}
		if got := s.committed("g"); got != 1 {
			t.Errorf("fetch: %d", got)
		}
		if time.Since(began) > 0 {
			t.Errorf("reads waited %s", time.Since(began))
		}
		if err := <-commit; !errors.Is(err, ErrNotAvailable) || time.Since(began) != 5*time.Second {
			t.Errorf("commit: %v after %s", err, time.Since(began))
		}
		time.Sleep(35 * time.Second)
		s.mem.SetHanging(false)
		back := time.Now()
		if err := s.commit("g", a, 1, 3); err != nil {
			t.Errorf("commit after the outage: %v", err)
		}
		if took := time.Since(back); took > time.Second {
			t.Errorf("service came back after %s", took)
		}
		if a, b := s.committed("g"), s.storedOffset("g"); a != 3 || b != 3 {
			t.Errorf("memory %d, store %d", a, b)
		}
	})
}

// A newer owner has the shards: everything is answered with ErrNotCoordinator, the owner is told once, and Load makes
// them ours again.
func TestFenced(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		a, b := s.stableGroup("g")
		joining := make(chan JoinReply, 1)
		s.groups.Join(joinRequest("g", a), func(r JoinReply) { joining <- r })
		settle()
		shards, rows := s.take()
		if err := s.commit("g", b, 1, 5); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("commit: %v", err)
		}
		if r := <-joining; !errors.Is(r.Err, ErrNotCoordinator) {
			t.Errorf("join: %+v", r)
		}
		if err := s.heartbeat("g", a, 1); !errors.Is(err, ErrNotCoordinator) {
			t.Errorf("heartbeat: %v", err)
		}
		settle()
		if n := s.fenced.Load(); n != 1 {
			t.Errorf("told %d times", n)
		}
		s.groups.Load(shards, rows)
		s.mustBeAlive("g", a, b)
		if err := s.commit("g", b, 1, 5); err != nil {
			t.Errorf("commit after Load: %v", err)
		}
	})
}

// One change that Postgres will not have fails alone; those that shared its transaction land.
func TestRefusedChangeFailsAlone(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.store.delay = time.Millisecond
		s.store.refuse = func(changes []meta.ShardChange) error {
			for _, c := range changes {
				for _, o := range c.Offsets {
					if o.Offset == 666 {
						return errPoison
					}
				}
			}
			return nil
		}
		names := groupNames(50)
		replies := make([]chan error, len(names))
		for i, g := range names {
			replies[i] = make(chan error, 1)
			offset := int64(i)
			if i == 20 {
				offset = 666
			}
			s.groups.CommitOffsets(commitRequest(g, "", -1, offset), func(r CommitReply) { replies[i] <- r.Err })
		}
		for i := range names {
			err := <-replies[i]
			if (err != nil) != (i == 20) {
				t.Errorf("%s: %v", names[i], err)
			}
		}
		if got := s.committed(names[20]); got != -1 {
			t.Errorf("memory has %d, which is not stored", got)
		}
	})
}

// A full mailbox is told to come back; nothing is lost or answered twice.
func TestMailboxFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{MailboxSize: 4})
		answers := make(chan error, 10)
		for range 10 { // nobody runs the shards
			g.Heartbeat(HeartbeatRequest{Group: "g", MemberID: "m"}, func(err error) { answers <- err })
		}
		for range 6 {
			if err := <-answers; !errors.Is(err, ErrNotAvailable) {
				t.Errorf("got %v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = g.Run(ctx)
		for range 4 {
			if err := <-answers; !errors.Is(err, ErrNotCoordinator) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// A heartbeat that comes while a decision about the group is being stored is not forgotten when it is, and no deadline
// leads to a second decision meanwhile.
func TestHeartbeatWhileStoring(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		a, b := s.stableGroup("g")
		time.Sleep(9300 * time.Millisecond)
		s.store.delay = 900 * time.Millisecond
		left := make(chan LeaveReply, 1)
		s.groups.Leave(LeaveRequest{Group: "g", Members: []LeaveMember{{MemberID: b}}}, func(r LeaveReply) { left <- r })
		time.Sleep(300 * time.Millisecond)
		s.mustBeAlive("g", a)
		if r := <-left; r.Err != nil || r.Members[0] != nil {
			t.Fatalf("leave: %+v", r)
		}
		time.Sleep(time.Second)
		if err := s.heartbeat("g", a, 1); !errors.Is(err, ErrRebalancing) {
			t.Errorf("heartbeat: %v", err)
		}
		if n := s.store.commits.Load(); n != 2 {
			t.Errorf("%d changes, want the generation and the leave", n)
		}
	})
}
