package system

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Parallel tests here mostly wait, so they need not wait for each other on a machine with few cores.
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = flag.Set("test.parallel", "8")
	}
	harness.Main(m)
}

// nodeOptions say how a broker is started. Zero values are the usual ones.
type nodeOptions struct {
	url  string   // of Postgres; "" a fresh database on the shared server
	dir  string   // log directory; "" a fresh one
	port int      // "" a free one
	set  []string // further settings
	args []string // further flags
	// standby waits for its turn: see launchNode.
	standby bool
	http    int      // port of the HTTP address, 0 a free one
	also    []string // addresses that clients know beside this node's; they then look around ten times a second
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
	ready     chan string // the ready line
	stderr    *harness.Buffer
}

// startNode starts a broker and waits for its ready line. The broker ends with the test.
func startNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	n := launchNode(t, o)
	n.awaitReady()
	return n
}

// launchNode does not wait for the ready line.
func launchNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	if o.url == "" {
		o.url = pgtest.URL(t)
	}
	if o.dir == "" {
		o.dir = filepath.Join(t.TempDir(), "log")
	}
	if o.port == 0 {
		o.port = harness.FreePort(t)
	}
	n := &node{t: t, opts: o, stderr: &harness.Buffer{}}
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("broker's log (end):\n%s", harness.Tail(n.stderr.String(), 60))
		}
	})
	n.launch()
	return n
}

// start runs the process anew.
func (n *node) start() {
	n.t.Helper()
	n.launch()
	n.awaitReady()
}

func (n *node) launch() {
	n.t.Helper()
	args := []string{"serve", "--set", "postgres.url=" + n.opts.url, "--set", "log.dirs=" + n.opts.dir,
		"--set", "listeners=PLAINTEXT://127.0.0.1:" + strconv.Itoa(n.opts.port), "--set", "http.listen=127.0.0.1:" + strconv.Itoa(n.opts.http)}
	if n.opts.standby {
		args = append(args, "--standby")
	}
	for _, s := range n.opts.set {
		args = append(args, "--set", s)
	}
	n.cmd = exec.Command(harness.Binary(n.t), append(args, n.opts.args...)...)
	n.cmd.Stderr = n.stderr
	n.cmd.Env = harness.Environment()
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.exited = make(chan struct{})
	started := make(chan error, 1)
	ready := make(chan string, 1)
	n.ready = ready
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
}

func (n *node) awaitReady() {
	n.t.Helper()
	select {
	case n.readyLine = <-n.ready:
	case <-n.exited:
		n.t.Fatalf("broker ended before it was ready: %v\n%s", n.exitErr, harness.Tail(n.stderr.String(), 30))
	case <-time.After(60 * time.Second):
		n.t.Fatalf("broker was not ready in time\n%s", harness.Tail(n.stderr.String(), 30))
	}
	n.bootstrap = harness.Field(n.readyLine, "bootstrap")
	n.httpURL = harness.Field(n.readyLine, "http")
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
	// A kill may fall between accept and the first answer, which kgo takes for a wrong configuration unless told otherwise.
	known := []kgo.Opt{kgo.SeedBrokers(append(n.opts.also, n.bootstrap)...), kgo.AlwaysRetryEOF()}
	if len(n.opts.also) > 0 { // by default kgo would wait for seconds
		known = append(known, kgo.MetadataMinAge(100*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }))
	}
	c, err := kgo.NewClient(append(known, opts...)...)
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
