package coordinator

import (
	"testing"
	"time"
)

// TestRebalancesAreCountedByReason: members of a classic group and of a consumer group join, change, leave and fall silent;
// each rebalance is counted once, under a reason of the list.
func TestRebalancesAreCountedByReason(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *shell) {
		s.stableGroup("classic") // two members join one rebalance
		time.Sleep(time.Minute)  // both sessions end
		beat := func(epoch int32, topics ...string) int32 {
			r := await(func(done func(ConsumerHeartbeatReply)) {
				s.groups.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "next", MemberID: "m", NamesItself: true, MemberEpoch: epoch, Topics: topics,
					RebalanceTimeout: time.Minute, Owned: []TopicPartitions{}}, done)
			})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			return r.MemberEpoch
		}
		epoch := beat(0, "t1")
		beat(epoch, "t1", "t2")
		beat(-1)
		got := counted(t, s.groups.committer.meter.rebalances)
		want := map[string]float64{"member_joined": 2, "member_expired": 1, "member_changed": 1, "member_left": 1}
		for _, reason := range rebalanceReasons {
			if got[string(reason)] != want[string(reason)] {
				t.Errorf("%s: %v, want %v", reason, got[string(reason)], want[string(reason)])
			}
			delete(got, string(reason))
		}
		if len(got) > 0 {
			t.Errorf("reasons that are not on the list: %v", got)
		}
	})
}
