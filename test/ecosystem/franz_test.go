package ecosystem

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
)

// expected are the tests of franz-go that fail, and why. A test that fails and is not here, and one that is here and passes,
// fail the suite.
var expected = map[string]string{
	"TestConsumeRegex":           "wants the topic __consumer_offsets, which there is not (docs/deviations.md)",
	"Test848RegexBrokerResolves": "wants the topic __consumer_offsets, which there is not (docs/deviations.md)",
}

var outcome = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// TestFranzGo runs the test suites of franz-go's client and of its admin client, at the version that the compatibility suite
// pins, against the broker.
func TestFranzGo(t *testing.T) {
	// Short: what talks to a broker, without chains of groups that copy half a million records, and without what is expected to
	// fail, which takes 45 seconds each.
	run, records := size(t, "Consume|Issue|GroupSimple|Ping|Hook|Partition|Pause|848|Pool|TxnEtl/cooperative", "."), size(t, "20000", "500000")
	without := size(t, strings.Join(slices.Sorted(maps.Keys(expected)), "|"), "^$")
	module, err := filepath.Abs("../compat/go")
	if err != nil {
		t.Fatal(err)
	}
	b := start(t)
	suites := []string{"github.com/twmb/franz-go/pkg/kgo"}
	if run == "." {
		suites = append(suites, "github.com/twmb/franz-go/pkg/kadm")
	}
	failed, passed, skipped := []string{}, 0, []string{}
	for _, suite := range suites {
		binary := filepath.Join(t.TempDir(), filepath.Base(suite))
		build := exec.Command("go", "test", "-c", "-o", binary, suite)
		build.Dir = module
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v\n%s", suite, err, out)
		}
		list := exec.Command("go", "list", "-f", "{{.Dir}}", suite)
		list.Dir = module
		dir, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		// Its tests read files beside them.
		p := launch(t, []string{"KGO_SEEDS=" + b.Bootstrap(), "KGO_TEST_RF=1", "KGO_TEST_RECORDS=" + records, "KGO_LOG_LEVEL=none"},
			"sh", "-c", `cd "$1" && exec "$2" -test.v -test.timeout 20m -test.run "$3" -test.skip "$4"`, "sh", strings.TrimSpace(string(dir)), binary, run, without)
		p.wait(t, 21*time.Minute)
		for _, m := range outcome.FindAllStringSubmatch(strings.Join(p.output(), "\n"), -1) {
			switch m[1] {
			case "PASS":
				passed++
			case "SKIP":
				skipped = append(skipped, m[2])
			case "FAIL":
				failed = append(failed, m[2])
				if expected[m[2]] == "" {
					t.Errorf("%s fails:\n%s", m[2], about(p.output(), m[2]))
				}
			}
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 && len(failed) == 0 {
			t.Errorf("%s: exit code %d: %s", suite, code, harness.Tail(strings.Join(p.output(), "\n"), 20))
		}
	}
	for name, why := range expected {
		if without == "^$" && !slices.Contains(failed, name) {
			t.Errorf("%s passes, and was expected to fail: it %s", name, why)
		}
	}
	t.Logf("%d passed, %d failed as expected %v, skipped %v", passed, len(failed), failed, skipped)
	if passed < size(t, 20, 120) {
		t.Errorf("only %d tests passed", passed)
	}
}

// about are the last lines that a test printed; "=== NAME" says whose the lines after it are.
func about(lines []string, test string) string {
	var of []string
	mine := false
	for _, line := range lines {
		if strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			fields := strings.Fields(line)
			mine = strings.HasPrefix(fields[min(2, len(fields)-1)], test)
		}
		if mine {
			of = append(of, line)
		}
	}
	return harness.Tail(strings.Join(of, "\n"), 15)
}
