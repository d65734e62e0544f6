package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/test/history"
)

// seeded says which story finds which seeded bug, and by which rule: one of the checker's, or "settle", the test's own wish
// that everything comes to an end. Bugs that only a power cut or a fault of the disk shows are not here.
var seeded = []struct {
	bug   seededbug.Bug
	story string
	rules []string // one of them
	short bool     // also in "make test"; test/seeded sees all of them there
}{
	{seededbug.LSOOffByOne, "open-transaction", []string{"early-read"}, true},
	{seededbug.DropAbortedRange, "aborted-transaction", []string{"aborted-read"}, true},
	{seededbug.AcceptStaleEndTxn, "stale-end", []string{"fencing"}, true},
	{seededbug.InitKeepsLastEpoch, "stale-end-of-the-same-outcome", []string{"fencing"}, false},
	{seededbug.AcceptWrongGeneration, "old-generation", []string{"stale-member"}, true},
	{seededbug.LoseDedupWindow, "repeated-batch-after-kill", []string{"no-duplicate"}, true},
	{seededbug.LosePendingOffsets, "offset-over-kill", []string{"atomicity", "settle"}, true},
	{seededbug.AbortUndecided, "open-over-kill", []string{"groundless-fence"}, false},
	{seededbug.IgnoreFirstOffset, "next-transaction-over-kill", []string{"early-read"}, true},
	{seededbug.MarkersBeforeDecision, "kill-before-decision", []string{"atomicity"}, true},
	{seededbug.ServeBeforeMarkers, "kill-after-decision", []string{"atomicity"}, false},
	{seededbug.AnswerBeforeMarkers, "quick-succession", []string{"early-read", "aborted-read"}, false},
	{seededbug.ReaperKeepsEpoch, "slow-producer", []string{"atomicity"}, false},
	{seededbug.ProduceDuringEnd, "produce-beside-end", []string{"atomicity", "no-lost-write"}, false},
	{seededbug.EndOfNothing, "other-outcome", []string{"aborted-read"}, false},
	{seededbug.LateOldClient, "late-end-of-old-client", []string{"early-read"}, false},
	{seededbug.AckBeforeAppend, "read-your-write", []string{"visibility"}, false},
	{seededbug.ReuseOffsets, "write-over-kill", []string{"agreement", "visibility"}, false},
	{seededbug.ServeBeforeRecovery, "write-over-kill", []string{"visibility"}, false},
}

// foundWithin bounds how long it may take to find a bug.
const foundWithin = 60 * time.Second

// TestSeededBugs, with a binary of the tag seededbugs (PGBROKER_TEST_SEEDED_BINARY, or built here), turns one bug on at a time and wants its story's history illegal, by the rule that it breaks. TestStories
// wants the same stories legal on the broker without bugs.
func TestSeededBugs(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("PGBROKER_TEST_SEEDED_BINARY")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "pgbroker")
		build := exec.CommandContext(t.Context(), "go", "build", "-tags", "seededbugs", "-o", binary, "github.com/pgbroker/pgbroker/cmd/pgbroker")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	for _, c := range seeded {
		if !c.short && os.Getenv("PGBROKER_SEEDED_LONG") == "" {
			continue
		}
		t.Run(string(c.bug), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			i := slices.IndexFunc(stories, func(s story) bool { return s.name == c.story })
			if i < 0 {
				t.Fatalf("there is no story %s", c.story)
			}
			var found []history.Violation
			for time.Since(began) < foundWithin { // some bugs last for a moment, which a busy machine may miss
				s := newStage(t, stories[i], binary, "PGBROKER_SEEDED_BUG="+string(c.bug))
				stories[i].play(s)
				found = s.finish()
				s.broker.Kill()
				if n := slices.IndexFunc(found, func(v history.Violation) bool { return slices.Contains(c.rules, v.Rule) }); n >= 0 {
					t.Logf("found in %s: %s", time.Since(began).Round(time.Millisecond), found[n])
					return
				}
			}
			t.Errorf("not found by %v in %s; found: %v", c.rules, foundWithin, found)
		})
	}
}
