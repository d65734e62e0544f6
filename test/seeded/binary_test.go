package seeded

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/test/harness"
)

// symbols lists the functions of a program that is not stripped.
func symbols(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("go", "tool", "nm", path).Output()
	if err != nil {
		t.Fatalf("go tool nm: %v", err)
	}
	return string(out)
}

// TestNormalBuildsHaveNoBugs: neither the variable's name, nor a bug's, nor the code that a bug needs is in a normal
// build; the build with the tag, read in the same way, has them all.
func TestNormalBuildsHaveNoBugs(t *testing.T) {
	normal := filepath.Join(t.TempDir(), "pgbroker")
	build := exec.Command("go", "build", "-o", normal, "./cmd/pgbroker")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for path, want := range map[string]bool{normal: false, binary(t, "pgbroker"): true} {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		traces := []string{"PGBROKER_SEEDED_BUG"}
		for _, b := range seededbug.Catalog() {
			traces = append(traces, b.What)
		}
		for _, trace := range traces {
			if has := bytes.Contains(program, []byte(trace)); has != want {
				t.Errorf("%q is in the program: %v, want %v", trace, has, want)
			}
		}
		functions := symbols(t, path)
		for _, name := range []string{"internal/seededbug.", "segstore.(*Log).loadLater", "broker.appendLate"} {
			if has := strings.Contains(functions, name); has != want {
				t.Errorf("function %s is in the program: %v, want %v", name, has, want)
			}
		}
	}
}

// TestSeededBuildsSaySo: in version and, as an error, at each start; a bug that does not exist ends the process.
func TestSeededBuildsSaySo(t *testing.T) {
	ask := func(bug string, args ...string) string {
		cmd := exec.Command(binary(t, "pgbroker"), args...)
		cmd.Env = harness.Environment("PGBROKER_SEEDED_BUG=" + bug)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	for _, c := range []struct {
		bug, want string
		args      []string
	}{
		{"", "SEEDED BUGS and is for tests only; turned on: none", []string{"version"}},
		{"skip-fsync", "SEEDED BUGS and is for tests only; turned on: skip-fsync", []string{"version"}},
		{"skip-fsync", `"seededBug":"skip-fsync"`, []string{"version", "-o", "json"}},
		{"skip-fsync", "HAS SEEDED BUGS AND LOSES DATA", []string{"serve", "--set", "log.dirs=" + t.TempDir()}},
		{"no-such-bug", "PGBROKER_SEEDED_BUG=no-such-bug is no seeded bug", []string{"version"}},
	} {
		if said := ask(c.bug, c.args...); !strings.Contains(said, c.want) {
			t.Errorf("%s with %q says %q, want %q in it", strings.Join(c.args, " "), c.bug, said, c.want)
		}
	}
}
