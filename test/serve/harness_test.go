package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// environment is a small one without any setting of a broker, plus what is added. harness.Environment has too much for
// these tests: other users and homes run here, and the broker and psql read PGHOST and the like.
func environment(add ...string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	if dir := os.Getenv("PGBROKER_POSTGRES_BINDIR"); dir != "" {
		env = append(env, "PGBROKER_POSTGRES_BINDIR="+dir)
	}
	return append(env, add...)
}

// process is a running program whose standard output is looked at line by line.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	ready  string // the line that begins with "ready "
	began  time.Time
	took   time.Duration // from the start to the ready line
	out    harness.Buffer
	errs   harness.Buffer
	exited chan struct{}
	err    error // how it ended, after exited
}

// spawn starts a program and waits for its ready line. It is killed with the test.
func spawn(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	cmd.Stderr = &p.errs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	ready := make(chan string, 1)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the process, so that thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p.began = time.Now()
		err := cmd.Start()
		if started <- err; err != nil {
			return
		}
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			_, _ = p.out.Write(append(lines.Bytes(), '\n'))
			if strings.HasPrefix(lines.Text(), "ready ") {
				p.took = time.Since(p.began)
				ready <- lines.Text()
			}
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of %s (end):\n%s", cmd.Args[1], harness.Tail(p.errs.String(), 30))
		}
	})
	select {
	case p.ready = <-ready:
	case <-p.exited:
		t.Fatalf("%q ended before it was ready: %v\n%s", cmd.Args, p.err, harness.Tail(p.errs.String(), 30))
	case <-time.After(60 * time.Second):
		t.Fatalf("%q was not ready in time\n%s", cmd.Args, harness.Tail(p.errs.String(), 30))
	}
	return p
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// signal sends a signal and returns how long the process took to end by it; it must end well within 10 seconds.
func (p *process) signal(send func() error) time.Duration {
	p.t.Helper()
	began := time.Now()
	if err := send(); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		p.t.Fatal("still running 20 s after the signal")
	}
	took := time.Since(began)
	if took > 10*time.Second {
		p.t.Errorf("the stop took %s, more than 10 s", took)
	}
	return took
}

// terminate is SIGTERM.
func (p *process) terminate() time.Duration {
	p.t.Helper()
	return p.signal(func() error { return p.cmd.Process.Signal(syscall.SIGTERM) })
}

// node is a broker that serves.
type node struct {
	*process
	bootstrap string
	httpURL   string
}

// serveArgs are the arguments of a serve with a directory and free ports of its own. Later settings win.
func serveArgs(url, dir string, set ...string) []string {
	args := []string{"serve", "--log-level", "debug"}
	for _, s := range append([]string{"postgres.url=" + url, "log.dirs=" + dir, "listeners=PLAINTEXT://127.0.0.1:0", "http.listen=127.0.0.1:0", "group.initial.rebalance.delay.ms=0"}, set...) {
		args = append(args, "--set", s)
	}
	return args
}

// serve starts a broker on a database, with a fresh log directory.
func serve(t testing.TB, url string, set ...string) *node {
	t.Helper()
	return serveIn(t, url, filepath.Join(t.TempDir(), "log"), nil, set...)
}

// serveIn is serve with a log directory and an addition to the environment.
func serveIn(t testing.TB, url, dir string, env []string, set ...string) *node {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), serveArgs(url, dir, set...)...)
	cmd.Env = environment(env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := spawn(t, cmd)
	return &node{p, harness.Field(p.ready, "bootstrap"), harness.Field(p.ready, "http")}
}

// client makes a client of this broker that is closed with the test.
func (n *node) client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	return newClient(n.t, n.bootstrap, opts...)
}

func newClient(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// createTopics makes topics or fails the test.
func (n *node) createTopics(partitions int32, names ...string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	made, err := kadm.NewClient(n.client()).CreateTopics(ctx, partitions, 1, nil, names...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		n.t.Fatalf("create topics: %v", err)
	}
}

// metrics reads /metrics: the value of each sample by its name with labels.
func (n *node) metrics() map[string]float64 {
	n.t.Helper()
	resp, err := http.Get(n.httpURL + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("metrics: %s, %v", resp.Status, err)
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			samples[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return samples
}

// produce writes one record and returns its offset.
func produce(t testing.TB, c *kgo.Client, topic, value string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).First()
	if err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
	return r.Offset
}

// consumeOne reads the first record of a topic.
func consumeOne(t testing.TB, bootstrap, topic string, opts ...kgo.Opt) *kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := newClient(t, bootstrap, append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	for {
		fetches := c.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume %s: %v", topic, err)
		}
		for r := range fetches.RecordsAll() {
			return r
		}
	}
}

// result is how a program ended.
type result struct {
	code        int
	out, errs   string
	took        time.Duration
	commandLine []string
}

// run executes the binary to its end, for at most 40 seconds.
func run(t testing.TB, env []string, args ...string) result {
	t.Helper()
	return runCommand(t, env, "", harness.Binary(t), args...)
}

func runCommand(t testing.TB, env []string, stdin, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment(env...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s %q did not end in time\n%s%s", name, args, out.String(), errs.String())
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String(), time.Since(began), args}
}

// must fails the test unless the program ended with code 0; it returns what it printed.
func (r result) must(t testing.TB) string {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("%q: exit code %d\n%s%s", r.commandLine, r.code, r.out, r.errs)
	}
	return r.out
}

// errorLines are the lines on standard error that begin with "error:".
func (r result) errorLines() []string {
	var lines []string
	for line := range strings.Lines(r.errs) {
		if strings.HasPrefix(line, "error:") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// query runs a statement that returns one row of texts.
func query(t testing.TB, url, sql string, args ...any) []string {
	t.Helper()
	rows := queryRows(t, url, sql, args...)
	if len(rows) != 1 {
		t.Fatalf("%s: %d rows: %q", sql, len(rows), rows)
	}
	return rows[0]
}

// queryRows runs a statement whose columns are all texts; null is "<null>".
func queryRows(t testing.TB, url, sql string, args ...any) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
		values, err := row.Values()
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = "<null>"
			if v != nil {
				texts[i] = fmt.Sprint(v)
			}
		}
		return texts, err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// execute runs statements one by one.
func execute(t testing.TB, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// database is a fresh database on the shared server.
func database(t testing.TB) string {
	t.Helper()
	return pgtest.URL(t)
}

// sortedLines puts the lines of a text in order.
func sortedLines(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}
