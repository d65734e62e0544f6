// Package docs runs the commands of the README, so that they stay true.
package docs

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
)

const readme = "../../README.md"

// codeBlocks are the indented blocks of a section of the README.
func codeBlocks(t *testing.T, section string) []string {
	t.Helper()
	raw, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	inside := false
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "## ") {
			inside = line == "## "+section
		}
		if code, ok := strings.CutPrefix(line, "    "); ok && inside {
			lines = append(lines, code)
		}
	}
	return lines
}

func TestMain(m *testing.M) { harness.Main(m) }

// TestTryIt runs the README's first session: dev in one terminal, the other commands verbatim in a second one, but for
// the ports, which may be taken. What each must print stands here.
func TestTryIt(t *testing.T) {
	harness.Need(t, "kcat")
	harness.Need(t, "psql")
	want := map[string]string{
		"make dev": "",
		"echo hello | kcat -P -b 127.0.0.1:9092 -t greetings":                                            "",
		"kcat -C -b 127.0.0.1:9092 -t greetings -o beginning -e":                                         "hello\n",
		`psql "$(bin/pgbroker dev --print-postgres-url)" -c 'table pgbroker.topics'`:                     "greetings",
		"bin/pgbroker topic list":                                                                        "greetings",
		"kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic greetings":                  "run by test/compat",
		"kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic greetings --from-beginning": "run by test/compat",
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(harness.Binary(t), filepath.Join(dir, "bin", "pgbroker")); err != nil {
		t.Fatal(err)
	}
	kafka, http := strconv.Itoa(harness.FreePort(t)), strconv.Itoa(harness.FreePort(t))
	startDev(t, dir, kafka, http)
	commands := codeBlocks(t, "Try it in two minutes")
	if len(commands) < len(want) {
		t.Errorf("the README has %d commands, expected at least %d", len(commands), len(want))
	}
	for _, line := range commands {
		expected, known := want[line]
		switch {
		case !known:
			t.Errorf("the README has a command that this test does not know: %s", line)
		case line == "make dev", expected == "run by test/compat":
		default:
			if out := shell(t, dir, strings.ReplaceAll(line, "127.0.0.1:9092", "127.0.0.1:"+kafka), "127.0.0.1:"+kafka); !strings.Contains(out, expected) {
				t.Errorf("%s printed %q, want %q in it", line, out, expected)
			}
		}
	}
	if out := shell(t, dir, "curl -fsS http://127.0.0.1:"+http+"/metrics", ""); !strings.Contains(out, "kafka_server_brokertopicmetrics_messagesin_total") {
		t.Errorf("the metrics page lacks the count of messages: %.200q", out)
	}
}

// startDev is `make dev` after its build, ended with the test as Ctrl-C does.
func startDev(t *testing.T, dir, kafka, http string) {
	t.Helper()
	cmd := exec.Command("bin/pgbroker", "dev", "--kafka-port", kafka, "--http-port", http)
	cmd.Dir = dir
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool, 1)
	ended := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready ") {
				ready <- true
			}
		}
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case err := <-ended:
			if err != nil && cmd.ProcessState.ExitCode() != 130 && cmd.ProcessState.ExitCode() != 0 {
				t.Errorf("dev ended with %v", err)
			}
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			t.Error("dev did not stop in time")
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("dev ended before it was ready: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatal("dev was not ready in time")
	}
}

func shell(t *testing.T, dir, line, brokers string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PGBROKER_BROKERS="+brokers, "PAGER=cat")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return string(out)
}
