package ecosystem

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg"
	"github.com/pgbroker/pgbroker/test/harness"
)

// TestPostgresMajors runs all tests of the metadata store, its conformance suite among them, and a part of the system tests on each
// major version of Postgres that PGBROKER_POSTGRES_MAJORS names ("14 16 17 18"); those this machine lacks are downloaded. The
// one test of the store that makes a standby is left out, since what is downloaded has no pg_basebackup.
func TestPostgresMajors(t *testing.T) {
	majors := strings.Fields(os.Getenv("PGBROKER_POSTGRES_MAJORS"))
	if len(majors) == 0 {
		t.Skip("runs with PGBROKER_POSTGRES_MAJORS set (make compat-postgres)")
	}
	for _, name := range majors {
		t.Run(name, func(t *testing.T) {
			major, err := strconv.Atoi(name)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
			defer cancel()
			dir, err := embedpg.Binaries(ctx, major)
			if err != nil {
				missing(t, "%v", err)
			}
			version, err := exec.CommandContext(ctx, dir+"/postgres", "--version").Output()
			if err != nil || !strings.Contains(string(version), fmt.Sprintf("(PostgreSQL) %d.", major)) {
				t.Fatalf("%s/postgres --version: %s, %v", dir, version, err)
			}
			t.Logf("%s", strings.TrimSpace(string(version)))
			on(ctx, t, dir, "../../internal/meta", ".", "TestPostgresConforms")
			tests := []string{"TestRestartFindsEverything", "TestStopAndRestartKeepsGroups", "TestStaticMemberOutlivesRestarts", "TestPostgresOutage",
				"TestTransactionsUnderKillNine", "TestKillNine"}
			on(ctx, t, dir, "../system", "^("+strings.Join(tests, "|")+")$", tests...)
		})
	}
}

// on runs a package's tests on the Postgres of that directory and reports how many passed and which failed. The tests that are
// named last must be among those that passed.
func on(ctx context.Context, t *testing.T, bindir, pkg, run string, must ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "4m", "-v", "-run", run, "-skip", "^TestLosslessIsDoubted$", pkg)
	cmd.Env = append(os.Environ(), "PGBROKER_POSTGRES_BINDIR="+bindir, "PGBROKER_TEST_BINARY="+harness.Binary(t))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	passed := map[string]bool{}
	var failed, skipped []string
	for line := range strings.Lines(string(out)) {
		line, sub := strings.TrimSpace(line), strings.HasPrefix(line, " ")
		switch words := strings.Fields(line); {
		case strings.HasPrefix(line, "--- PASS: "):
			passed[words[2]] = true
		case strings.HasPrefix(line, "--- FAIL: "):
			failed = append(failed, words[2])
		case strings.HasPrefix(line, "--- SKIP: ") && !sub:
			skipped = append(skipped, words[2])
		}
	}
	t.Logf("%s: %d passed, %d failed, skipped %v, %.0f s", pkg, len(passed), len(failed), skipped, time.Since(began).Seconds())
	if err != nil {
		var why []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "_test.go:") || strings.Contains(line, "panic: ") || strings.Contains(line, "error: ") {
				why = append(why, strings.TrimRight(line, "\n"))
			}
		}
		t.Errorf("%s: %v, failed %v\n%s", pkg, err, failed, harness.Tail(strings.Join(why, "\n"), 60))
	}
	for _, name := range must {
		if !passed[name] {
			t.Errorf("%s: %s did not pass", pkg, name)
		}
	}
}
