package coordinator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// relaxedBubble is a shell whose commits do not wait for the disk.
func relaxedBubble(t *testing.T, f func(t *testing.T, s *shell)) {
	t.Helper()
	inBubble(t, Options{Relaxed: true}, f)
}

// TestCrashPutsBack: what was answered and not settled is in the store again after Postgres has forgotten it, without
// anybody's doing: deletes, members and offsets.
func TestCrashPutsBack(t *testing.T) {
	relaxedBubble(t, func(t *testing.T, s *shell) {
		a, b := s.stableGroup("g")
		s.untilSettled()
		if rows, _ := s.groups.Unsettled(); rows != 0 {
			t.Fatalf("%d rows are not settled", rows)
		}
		for n := range int64(3) {
			if err := s.commit("g", a, 1, 10+n); err != nil {
				t.Fatal(err)
			}
		}
		await(func(done func(LeaveReply)) {
			s.groups.Leave(LeaveRequest{Group: "g", Members: []LeaveMember{{MemberID: b}}}, done)
		})
		if n := s.mem.Crash(100); n < 4 {
			t.Fatalf("forgot %d commits", n)
		}
		if got := s.storedOffset("g"); got != -1 {
			t.Fatalf("offset %d after the crash", got)
		}
		time.Sleep(2 * time.Second)
		if got := s.storedOffset("g"); got != 12 {
			t.Errorf("offset %d is stored, 12 was answered", got)
		}
		for _, m := range s.stored("g").Members {
			if m.MemberID == b {
				t.Error("a member that had left is back")
			}
		}
		if rows, shards := s.groups.Unsettled(); rows+shards != 0 {
			t.Errorf("%d rows, %d shards are not settled", rows, shards)
		}
		s.mem.Crash(100)
		if got := s.storedOffset("g"); got != 12 {
			t.Errorf("a settled offset is gone: %d", got)
		}
	})
}

// TestCrashBesideARenewal: commits, a renewal and a crash of Postgres at one instant, in whatever order they come: an offset
// that was answered is stored again, whether the renewal has settled all of the commits, some or none.
func TestCrashBesideARenewal(t *testing.T) {
	forgotten := map[int]int{}
	for range 20 {
		relaxedBubble(t, func(t *testing.T, s *shell) {
			time.Sleep(renewEvery)
			for n := range int64(3) {
				if err := s.commit("simple", "", -1, 10+n); err != nil {
					t.Fatal(err)
				}
			}
			forgotten[s.mem.Crash(100)]++
			time.Sleep(4 * renewEvery)
			if got := s.storedOffset("simple"); got != 12 {
				t.Errorf("offset %d is stored, 12 was answered", got)
			}
			if rows, shards := s.groups.Unsettled(); rows+shards != 0 {
				t.Errorf("%d rows, %d shards are not settled", rows, shards)
			}
		})
	}
	t.Logf("commits that Postgres forgot, and how often: %v", forgotten)
}

// TestCommitMeetsCrash: the next commit finds out that earlier ones are gone, before any renewal does.
func TestCommitMeetsCrash(t *testing.T) {
	relaxedBubble(t, func(t *testing.T, s *shell) {
		for n := range int64(3) {
			if err := s.commit("simple", "", -1, n); err != nil {
				t.Fatal(err)
			}
		}
		s.mem.Crash(2)
		if err := s.commit("simple", "", -1, 7); err != nil {
			t.Fatal(err)
		}
		if got := s.storedOffset("simple"); got != 7 {
			t.Errorf("stored %d", got)
		}
	})
}

// TestFencingWaitsForTheDisk: what fences is durable in relaxed mode, too.
func TestFencingWaitsForTheDisk(t *testing.T) {
	relaxedBubble(t, func(t *testing.T, s *shell) {
		member := await(func(done func(ConsumerHeartbeatReply)) {
			s.groups.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "next", MemberID: "m", NamesItself: true, Topics: []string{"t1"}, RebalanceTimeout: time.Minute, Owned: []TopicPartitions{}}, done)
		})
		if member.Err != nil {
			t.Fatal(member.Err)
		}
		if n := s.mem.Crash(100); n != 0 {
			t.Errorf("%d commits of a member's epoch could be taken back", n)
		}
		if err := s.commit("simple", "", -1, 1); err != nil {
			t.Fatal(err)
		}
		if n := s.mem.Crash(100); n != 1 {
			t.Errorf("%d commits of an offset could be taken back", n)
		}
	})
}

// TestCleanStopSettles: nothing can be taken back from a process that has stopped cleanly.
func TestCleanStopSettles(t *testing.T) {
	relaxedBubble(t, func(t *testing.T, s *shell) {
		for i := range 20 {
			if err := s.commit(fmt.Sprint("g", i), "", -1, 5); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.groups.Close(ctx)
		if n := s.mem.Crash(100); n != 0 {
			t.Errorf("%d commits were not settled", n)
		}
		for i := range 20 {
			if got := s.storedOffset(fmt.Sprint("g", i)); got != 5 {
				t.Errorf("g%d has %d", i, got)
			}
		}
	})
}

// TestForeignWriter: a row that somebody else has written, with a version far above ours, is taken over before the next
// commit, which comes after it.
func TestForeignWriter(t *testing.T) {
	relaxedBubble(t, func(t *testing.T, s *shell) {
		if err := s.commit("simple", "", -1, 1); err != nil {
			t.Fatal(err)
		}
		row := s.stored("simple").Offsets[0]
		row.Offset, row.Version = 50, row.Version+1<<32
		p := s.groups.committer.pipes[meta.ShardOf("simple")]
		foreign := meta.Resolve{Shard: p.shard, Term: p.term, Seq: p.seq + 100, Missing: meta.ShardChange{Offsets: []meta.OffsetRow{row}}}
		if _, err := s.mem.ResolveShards(t.Context(), 1, []meta.Resolve{foreign}); err != nil { // writes it as a SQL user would
			t.Fatal(err)
		}
		if err := s.commit("simple", "", -1, 2); err != nil {
			t.Fatal(err)
		}
		got := s.stored("simple").Offsets[0]
		if got.Offset != 2 || got.Version <= row.Version {
			t.Errorf("stored %d in version %d, somebody else's is %d", got.Offset, got.Version, row.Version)
		}
	})
}

// TestUnsettledFoldsRows: each row is kept once, its last change, until that is settled.
func TestUnsettledFoldsRows(t *testing.T) {
	var u unsettled
	for seq := range int64(1000) {
		u.add(&meta.ShardChange{Offsets: []meta.OffsetRow{{Group: "g", Offset: seq, Version: seq + 1}}}, seq+1)
	}
	if u.rows() != 1 || u.change().Offsets[0].Offset != 999 {
		t.Fatalf("%+v", u.change())
	}
	u.add(&meta.ShardChange{DeletedGroups: []meta.GroupKey{{Group: "g", Version: 1001}}}, 1001)
	if c := u.change(); len(c.Offsets) != 0 || len(c.DeletedGroups) != 1 {
		t.Fatalf("%+v", c)
	}
	u.settle(1000)
	if u.rows() != 1 {
		t.Fatal("a change above the settled seq is forgotten")
	}
	u.settle(1001)
	if u.rows() != 0 {
		t.Fatal("a settled change is kept")
	}
}
