package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

// developer starts `pgbroker dev` again and again on one data directory.
type developer struct {
	t       testing.TB
	command func(args ...string) *exec.Cmd // has the user, directory and environment
	dataDir string
	ports   [2]int // Kafka, HTTP
}

func newDeveloper(t *testing.T, dataDir string, command func(args ...string) *exec.Cmd) *developer {
	t.Helper()
	d := &developer{t, command, dataDir, [2]int{harness.FreePort(t), harness.FreePort(t)}}
	t.Cleanup(func() { // after the process was killed, which leaves its Postgres behind
		if pid := d.postmaster(); alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
			await(t, "the end of Postgres", func() bool { return !alive(pid) })
		}
	})
	return d
}

// postmaster is the process id of the private Postgres, 0 when none is noted.
func (d *developer) postmaster() int {
	text, err := os.ReadFile(filepath.Join(d.dataDir, "postgres", "pgdata", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return pid
}

// alive tells whether the process runs; one that has ended and that nobody has waited for does not.
func alive(pid int) bool {
	if pid <= 1 || syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// await polls a condition of other processes for at most 15 seconds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// start runs dev until its ready line.
func (d *developer) start(flags ...string) *node {
	d.t.Helper()
	args := append([]string{"dev", "--kafka-port", strconv.Itoa(d.ports[0]), "--http-port", strconv.Itoa(d.ports[1])}, flags...)
	p := spawn(d.t, d.command(args...))
	return &node{p, harness.Field(p.ready, "bootstrap"), harness.Field(p.ready, "http")}
}

// suggested are the three commands after the ready line.
func suggested(t testing.TB, n *node) []string {
	t.Helper()
	var lines []string
	await(t, "the suggestions", func() bool {
		lines = strings.Split(strings.TrimRight(n.out.String(), "\n"), "\n")
		return len(lines) == 4
	})
	first, ok := strings.CutPrefix(lines[1], "try:  ")
	if !ok {
		t.Fatalf("no suggestions: %q", lines)
	}
	return []string{first, strings.TrimSpace(lines[2]), strings.TrimSpace(lines[3])}
}

// shell runs a line that dev has printed where and as whom dev runs.
func (d *developer) shell(line string) string {
	d.t.Helper()
	cmd := d.command()
	name := cmd.Args[:len(cmd.Args)-1] // before the program itself
	run := exec.Command("sh", "-c", line)
	if len(name) > 0 {
		run = exec.Command(name[0], append(append([]string(nil), name[1:]...), "sh", "-c", line)...)
	}
	run.Dir, run.Env = cmd.Dir, cmd.Env
	out, err := run.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		d.t.Fatalf("%s: %v\n%s%s", line, err, out, exit.Stderr)
	} else if err != nil {
		d.t.Fatal(err)
	}
	return string(out)
}

// tryCommands runs the suggestions as they stand.
func (d *developer) tryCommands(n *node) {
	d.t.Helper()
	lines := suggested(d.t, n)
	if out := d.shell(lines[0]); out != "" {
		d.t.Errorf("%s printed %q", lines[0], out)
	}
	if out := d.shell(lines[1]); out != "hello\n" {
		d.t.Errorf("%s printed %q", lines[1], out)
	}
	if _, err := exec.LookPath("psql"); err == nil != strings.HasPrefix(lines[2], "psql ") {
		d.t.Errorf("third suggestion: %s", lines[2])
	}
	if out := d.shell(lines[2]); !strings.Contains(out, "greetings") {
		d.t.Errorf("%s printed:\n%s", lines[2], out)
	}
}

// interrupt is Ctrl-C at a terminal: SIGINT to the whole process group. Postgres ends with dev.
func (d *developer) interrupt(n *node) {
	d.t.Helper()
	postgres := d.postmaster()
	if !alive(postgres) {
		d.t.Fatalf("no Postgres %d", postgres)
	}
	took := n.signal(func() error { return syscall.Kill(-n.cmd.Process.Pid, syscall.SIGINT) })
	if alive(postgres) || d.postmaster() != 0 {
		d.t.Errorf("Postgres is there after Ctrl-C")
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 && code != 130 {
		d.t.Errorf("exit code %d after Ctrl-C", code)
	}
	if errs := (result{errs: n.errs.String()}).errorLines(); len(errs) > 0 {
		d.t.Errorf("errors: %q", errs)
	}
	d.t.Logf("Ctrl-C ended both in %s", took.Round(time.Millisecond))
}

// TestDev: the life of a data directory.
func TestDev(t *testing.T) {
	t.Parallel()
	home := openDir(t, os.Getuid())
	binary := reachable(t)
	d := newDeveloper(t, filepath.Join(home, "my data"), func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir = home
		cmd.Env = environment("KAFKA_NUM_PARTITIONS=2", "PGBROKER_LOG_RETENTION_HOURS=5", "KAFKA_PORT=tcp://10.0.0.1:9092")
		return cmd
	})
	flags := []string{"--data-dir", "my data", "--durability", "relaxed"}
	n := d.start(append(flags, "--topic", "orders:3", "--topic", "users:1:compact")...)
	if !regexp.MustCompile(fmt.Sprintf(`^ready bootstrap=127\.0\.0\.1:%d http=http://127\.0\.0\.1:%d postgres=postgres://…@127\.0\.0\.1:\d+/pgbroker durability=relaxed data=.*/my data/log took=\d+\.\ds$`,
		d.ports[0], d.ports[1])).MatchString(n.ready) {
		t.Errorf("ready line: %s", n.ready)
	}
	d.tryCommands(n)
	if out := d.shell(fmt.Sprintf("'%s' topic list -b %s", binary, n.bootstrap)); !regexp.MustCompile(`(?s)greetings +2 .*orders +3 .*users +1 `).MatchString(out) {
		t.Errorf("topics:\n%s", out)
	}
	if out := d.shell(fmt.Sprintf("'%s' topic describe users --configs -b %s", binary, n.bootstrap)); !strings.Contains(out, "18000000") || !regexp.MustCompile(`cleanup\.policy +compact`).MatchString(out) {
		t.Errorf("configuration of users:\n%s", out)
	}
	d.interrupt(n)

	n = d.start(flags...) // finds all
	if r := consumeOne(t, n.bootstrap, "greetings"); string(r.Value) != "hello" {
		t.Errorf("after a restart: %q", r.Value)
	}
	produce(t, n.client(), "orders", "before the kill")
	orphan := d.postmaster()
	n.kill()
	if !alive(orphan) {
		t.Log("Postgres ended with dev, there is no orphan")
	}

	n = d.start(flags...) // ends the orphan
	if alive(orphan) {
		t.Errorf("the orphan %d is alive beside Postgres %d", orphan, d.postmaster())
	}
	if r := consumeOne(t, n.bootstrap, "orders"); string(r.Value) != "before the kill" {
		t.Errorf("after kill -9: %q", r.Value)
	}
	second := run(t, nil, "dev", "--data-dir", d.dataDir, "--kafka-port", strconv.Itoa(harness.FreePort(t)), "--http-port", "0")
	if lines := second.errorLines(); second.code != 1 || len(lines) != 1 || !strings.Contains(lines[0], "in use") {
		t.Errorf("a second dev on the directory: exit code %d\n%s%s", second.code, second.out, second.errs)
	}
	d.interrupt(n)

	n = d.start(append(flags, "--fresh")...)
	if out := d.shell(fmt.Sprintf("'%s' topic list -o name -b %s", binary, n.bootstrap)); out != "" {
		t.Errorf("topics after --fresh: %q", out)
	}
	d.interrupt(n)
	precious := filepath.Join(home, "precious")
	if err := os.MkdirAll(filepath.Join(precious, "photos"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, 2, nil, []string{"dev", "--data-dir", precious, "--fresh"}, "photos", "--data-dir")
	refused(t, 2, nil, []string{"dev", "--data-dir", precious, "--topic", "a:b"}, "a:b")
	refused(t, 1, nil, []string{"dev", "--data-dir", precious, "--print-postgres-url"}, "no private", "pgbroker dev")
}

// TestDevBesideAnother: two instances at once, one of them as another user without a home and with the default directory.
func TestDevBesideAnother(t *testing.T) {
	t.Parallel()
	binary := reachable(t)
	home, otherHome := openDir(t, os.Getuid()), openDir(t, nobody)
	mine := newDeveloper(t, filepath.Join(home, "one"), func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = home, environment()
		return cmd
	})
	other := newDeveloper(t, filepath.Join(otherHome, ".pgbroker"), func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		if os.Getuid() == 0 {
			harness.Need(t, "setpriv")
			cmd = exec.Command("setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", binary}, args...)...)
		}
		cmd.Dir = otherHome
		for _, variable := range environment() {
			if !strings.HasPrefix(variable, "HOME=") && !strings.HasPrefix(variable, "TMPDIR=") {
				cmd.Env = append(cmd.Env, variable)
			}
		}
		return cmd
	})
	a, b := mine.start("--data-dir", "one"), other.start("--set", "log.retention.hours=1")
	mine.tryCommands(a)
	other.tryCommands(b)
	produce(t, a.client(kgo.AllowAutoTopicCreation()), "only-here", "x")
	if out := other.shell(fmt.Sprintf("'%s' topic list -o name -b %s", binary, b.bootstrap)); out != "topic/greetings\n" {
		t.Errorf("topics of the other instance: %q", out)
	}
	taken := run(t, nil, "dev", "--data-dir", filepath.Join(home, "three"), "--kafka-port", strconv.Itoa(mine.ports[0]), "--http-port", "0")
	if lines := taken.errorLines(); taken.code != 1 || len(lines) != 1 || !strings.Contains(lines[0], net.JoinHostPort("127.0.0.1", strconv.Itoa(mine.ports[0]))) {
		t.Errorf("dev on a taken port: exit code %d\n%s%s", taken.code, taken.out, taken.errs)
	}
	other.interrupt(b)
	mine.interrupt(a)
}
