package seeded

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/test/harness"
)

// catchLimit is how long a test may take to see its bug.
const catchLimit = time.Minute

// long asks for all tests of a bug's package.
var long = os.Getenv("PGBROKER_SEEDED_LONG") != ""

var root = filepath.Join("..", "..")

// built has the test binaries with the tag, which are made once.
var built struct {
	once sync.Once
	dir  string
	err  error
	out  []byte
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// binary is the test binary of a room, or the tagged program for "pgbroker".
func binary(t *testing.T, room string) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "pgbroker-seeded-"); built.err != nil {
			return
		}
		for _, args := range [][]string{
			append([]string{"test", "-c", "-tags", "seededbugs", "-o", built.dir + "/"}, rooms("./internal/")...),
			{"build", "-tags", "seededbugs", "-o", filepath.Join(built.dir, "pgbroker"), "./cmd/pgbroker"},
		} {
			cmd := exec.Command("go", args...)
			cmd.Dir = root
			if built.out, built.err = cmd.CombinedOutput(); built.err != nil {
				return
			}
		}
	})
	if built.err != nil {
		t.Fatalf("build: %v\n%s", built.err, built.out)
	}
	if room == "pgbroker" {
		return filepath.Join(built.dir, room)
	}
	return filepath.Join(built.dir, room+".test")
}

// rooms are the packages whose tests see bugs, below a path.
func rooms(below string) []string {
	var out []string
	for _, c := range catches {
		if !slices.Contains(out, below+c.room) {
			out = append(out, below+c.room)
		}
	}
	slices.Sort(out)
	return out
}

// run runs tests of a room with a bug, or none. It gives what they said, and whether they passed.
func run(t *testing.T, room, pattern string, bug seededbug.Bug) (said string, passed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), catchLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t, room), "-test.v", "-test.run="+pattern)
	cmd.Dir = filepath.Join(root, "internal", room)
	cmd.Env = harness.Environment("PGBROKER_SEEDED_BUG="+string(bug), "PGBROKER_TEST_REQUIRE="+os.Getenv("PGBROKER_TEST_REQUIRE"))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// pattern is what -test.run wants for these tests.
func pattern(catches ...catch) string {
	var levels [2][]string
	for _, c := range catches {
		for i, name := range strings.SplitN(c.test, "/", 2) {
			levels[i] = append(levels[i], regexp.QuoteMeta(name))
		}
	}
	p := "^(" + strings.Join(levels[0], "|") + ")$"
	if len(levels[1]) > 0 {
		p += "/^(" + strings.Join(levels[1], "|") + ")$"
	}
	return p
}

// control runs the tests of a room that see bugs, without one.
func control(t *testing.T, room string) string {
	t.Helper()
	var all []catch
	for _, c := range catches {
		if c.room == room {
			all = append(all, c)
		}
	}
	said, passed := run(t, room, pattern(all...), "")
	if !passed {
		t.Errorf("without a bug tests of %s fail:\n%s", room, harness.Tail(said, 30))
	}
	return said
}

// TestEachBugIsCaught: the named test fails under its bug, says why, and passes without it.
func TestEachBugIsCaught(t *testing.T) {
	controls := map[string]string{}
	for _, room := range rooms("") {
		controls[room] = control(t, room)
	}
	for _, bug := range seededbug.Catalog() {
		c, ok := catches[bug.Bug]
		if !ok {
			t.Errorf("%s: no test is named that sees it", bug.Bug)
			continue
		}
		t.Run(string(bug.Bug), func(t *testing.T) {
			top, _, _ := strings.Cut(c.test, "/")
			switch said := controls[c.room]; {
			case strings.Contains(said, "--- SKIP: "+top+" "):
				t.Skipf("%s is skipped", top)
			case !strings.Contains(said, "--- PASS: "+c.test+" "):
				t.Fatalf("without a bug %s does not pass", c.test)
			}
			began := time.Now()
			said, passed := run(t, c.room, pattern(c), bug.Bug)
			took := time.Since(began)
			why := regexp.MustCompile(c.says).FindString(said)
			switch {
			case passed:
				t.Fatalf("%s %s does not see it", bug.What, c.test)
			case why == "":
				t.Fatalf("%s %s fails, but does not say %q:\n%s", bug.What, c.test, c.says, harness.Tail(said, 40))
			}
			t.Logf("%s %s in %.1f s: %s", bug.What, c.test, took.Seconds(), why)
		})
	}
	if len(catches) != len(seededbug.Catalog()) {
		t.Errorf("%d rows for %d bugs", len(catches), len(seededbug.Catalog()))
	}
}

// TestWhoElseSeesIt prints all tests of its package that fail under a bug: more than one eye is better.
func TestWhoElseSeesIt(t *testing.T) {
	if !long {
		t.Skip("the long form is `make seeded`")
	}
	failed := regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+) `)
	for _, bug := range seededbug.Catalog() {
		said, _ := run(t, catches[bug.Bug].room, ".", bug.Bug)
		var names []string
		for _, m := range failed.FindAllStringSubmatch(said, -1) {
			if !slices.Contains(names, m[1]) {
				names = append(names, m[1])
			}
		}
		if len(names) == 0 {
			t.Errorf("%s: nobody sees it", bug.Bug)
		}
		t.Logf("%s: %s", bug.Bug, strings.Join(names, ", "))
	}
}
