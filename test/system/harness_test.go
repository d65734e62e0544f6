package system

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

var (
	buildOnce sync.Once
	builtPath string
	buildErr  error
)

// brokerBinary is PGBROKER_TEST_BINARY, or a binary that is built once for this test run.
func brokerBinary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("PGBROKER_TEST_BINARY"); path != "" {
		return path
	}
	buildOnce.Do(func() {
		builtPath = filepath.Join(os.TempDir(), fmt.Sprintf("pgbroker-test-%d", os.Getpid()))
		out, err := exec.Command("go", "build", "-o", builtPath, "github.com/pgbroker/pgbroker/cmd/pgbroker").CombinedOutput()
		if err != nil {
			buildErr = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return builtPath
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Parallel tests here mostly wait, so they need not wait for each other on a machine with few cores.
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = flag.Set("test.parallel", "8")
	}
	code := m.Run()
	if builtPath != "" {
		_ = os.Remove(builtPath)
	}
	os.Exit(code)
}

// nodeOptions say how a broker is started. Zero values are the usual ones.
type nodeOptions struct {
	url  string   // of Postgres; "" a fresh database on the shared server
	dir  string   // log directory; "" a fresh one
	port int      // "" a free one
	set  []string // further settings
}

// node is a running broker process. It can be killed and started again with the same settings.
type node struct {
	t         testing.TB
	opts      nodeOptions
	bootstrap string
	httpURL   string
	readyLine string
	cmd       *exec.Cmd
	exited    chan struct{}
	exitErr   error
	stderr    *lockedBuffer
}

// startNode starts a broker and waits for its ready line. The broker ends with the test.
func startNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	if o.url == "" {
		o.url = pgtest.URL(t)
	}
	if o.dir == "" {
		o.dir = filepath.Join(t.TempDir(), "log")
	}
	if o.port == 0 {
		o.port = freePort(t)
	}
	n := &node{t: t, opts: o, stderr: &lockedBuffer{}}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("broker's log (end):\n%s", tail(n.stderr.String(), 60))
		}
	})
	n.start()
	return n
}

// start runs the process anew.
func (n *node) start() {
	n.t.Helper()
	args := []string{"serve", "--set", "postgres.url=" + n.opts.url, "--set", "log.dirs=" + n.opts.dir,
		"--set", "listeners=PLAINTEXT://127.0.0.1:" + strconv.Itoa(n.opts.port), "--set", "http.listen=127.0.0.1:0"}
	for _, s := range n.opts.set {
		args = append(args, "--set", s)
	}
	n.cmd = exec.Command(brokerBinary(n.t), args...)
	n.cmd.Stderr = n.stderr
	n.cmd.Env = plainEnv()
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.exited = make(chan struct{})
	started := make(chan error, 1)
	ready := make(chan string, 1)
	go func(cmd *exec.Cmd, exited chan struct{}) {
		// The kernel sends the death signal when the thread that started the process ends, so that thread is kept.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready ") {
				ready <- lines.Text()
			}
		}
		n.exitErr = cmd.Wait()
		close(exited)
	}(n.cmd, n.exited)
	if err := <-started; err != nil {
		n.t.Fatal(err)
	}
	select {
	case n.readyLine = <-ready:
	case <-n.exited:
		n.t.Fatalf("broker ended before it was ready: %v\n%s", n.exitErr, tail(n.stderr.String(), 30))
	case <-time.After(60 * time.Second):
		n.t.Fatalf("broker was not ready in time\n%s", tail(n.stderr.String(), 30))
	}
	n.bootstrap = field(n.readyLine, "bootstrap")
	n.httpURL = field(n.readyLine, "http")
}

// plainEnv is this process's environment without settings of a broker: PGBROKER_TEST_BINARY itself would be one.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PGBROKER_") || strings.HasPrefix(v, "KAFKA_")
	})
}

// kill ends the process as kill -9 does.
func (n *node) kill() {
	if n.cmd == nil || n.cmd.Process == nil { // never started
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// stop sends SIGTERM and returns how the process ended and how long it took.
func (n *node) stop() (time.Duration, error) {
	began := time.Now()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-n.exited:
		return time.Since(began), n.exitErr
	case <-time.After(20 * time.Second):
		return time.Since(began), fmt.Errorf("still running after SIGTERM")
	}
}

// client makes a franz-go client of this broker that is closed with the test.
func (n *node) client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.bootstrap)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(c.Close)
	return c
}

// createTopic makes a topic or fails the test.
func (n *node) createTopic(name string, partitions int32, configs map[string]string) {
	n.t.Helper()
	asked := map[string]*string{}
	for k, v := range configs {
		asked[k] = &v
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(n.client()).CreateTopic(ctx, partitions, 1, asked, name); err != nil {
		n.t.Fatalf("create topic %s: %v", name, err)
	}
}

// command runs a program with a deadline and returns what it printed.
func command(t testing.TB, limit time.Duration, stdin string, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// need skips a test whose program is missing, or fails it under PGBROKER_TEST_REQUIRE=all.
func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
		t.Fatalf("%s is not installed", program)
	}
	t.Skipf("%s is not installed", program)
}

// freePort is a port that nobody listened on a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// field is the value of key=value in a line of words.
func field(line, key string) string {
	for _, word := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			return v
		}
	}
	return ""
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// lockedBuffer is a buffer that a process writes while a test reads.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
