package coordinator

import (
	"testing"
	"time"
)

// TestARenewalSettlesOnlyWhatItHasSeen: an offset is committed, relaxed, after a renewal has read the shard's seq and before
// that is heard of. It is not settled by it, so a clean stop makes it durable, and no crash of Postgres takes it back.
func TestARenewalSettlesOnlyWhatItHasSeen(t *testing.T) {
	inBubble(t, Options{Relaxed: true}, func(t *testing.T, s *shell) {
		if err := s.commit("g", "", -1, 1); err != nil {
			t.Fatal(err)
		}
		sent := s.groups.Standing()
		renewal, err := s.mem.Renew(t.Context(), s.owner, time.Minute, -1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.commit("g", "", -1, 2); err != nil {
			t.Fatal(err)
		}
		s.groups.Renewed(sent, renewal.ShardSeqs)
		s.stop()
		if n := s.mem.Crash(10); n != 0 {
			t.Errorf("a crash of Postgres after a clean stop has taken %d commits back", n)
		}
		s.start(Options{Relaxed: true})
		if got := s.committed("g"); got != 2 {
			t.Errorf("offset %d, 2 was acknowledged", got)
		}
	})
}
