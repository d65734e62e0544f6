package harness

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BrokerOptions say how a broker is started. Zero values are the usual ones.
type BrokerOptions struct {
	Postgres   string   // its URL
	Dir        string   // log directory; "" a fresh one
	Port       int      // that it listens on; 0 a free one
	Advertised int      // that clients are told; 0 Port
	Set        []string // further settings, key=value
	Binary     string   // "" the binary under test
	Env        []string // added to the environment, KEY=value
}

// Broker is a broker process that can be killed and started again with the same settings. It ends with its test.
type Broker struct {
	Log *Buffer // what all its processes wrote to standard error
	// Wrap is put before the command line of the next start, for example strace with -D, which leaves the broker this
	// process's child.
	Wrap []string
	// StopLimit bounds Stop: 20 s unless it is set.
	StopLimit time.Duration

	t      testing.TB
	binary string
	opts   BrokerOptions

	mu      sync.Mutex // guards the fields below
	cmd     *exec.Cmd
	exited  chan struct{}
	httpURL string
}

// NewBroker describes a broker; Start runs it.
func NewBroker(t testing.TB, o BrokerOptions) *Broker {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "log")
	}
	if o.Port == 0 {
		o.Port = FreePort(t)
	}
	if o.Advertised == 0 {
		o.Advertised = o.Port
	}
	if o.Binary == "" {
		o.Binary = Binary(t)
	}
	b := &Broker{t: t, binary: o.Binary, opts: o, Log: &Buffer{}}
	t.Cleanup(func() {
		b.Kill()
		if t.Failed() {
			t.Logf("the broker's log (end):\n%s", Tail(b.Log.String(), 80))
		}
	})
	return b
}

// Dir is the log directory.
func (b *Broker) Dir() string { return b.opts.Dir }

// Bootstrap is where clients connect.
func (b *Broker) Bootstrap() string { return "127.0.0.1:" + strconv.Itoa(b.opts.Port) }

func (b *Broker) command() *exec.Cmd {
	args := append(b.Wrap[:len(b.Wrap):len(b.Wrap)], b.binary, "serve")
	for _, s := range append([]string{
		"postgres.url=" + b.opts.Postgres, "log.dirs=" + b.opts.Dir, "http.listen=127.0.0.1:0",
		"listeners=PLAINTEXT://" + b.Bootstrap(), "advertised.listeners=PLAINTEXT://127.0.0.1:" + strconv.Itoa(b.opts.Advertised),
	}, b.opts.Set...) {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = b.Log
	cmd.Env = Environment(b.opts.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Start runs the process and waits for its ready line. An error means that no process is left.
func (b *Broker) Start() error {
	cmd := b.command()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	exited, ready, failed := make(chan struct{}), make(chan string, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread that started the process ends
		if err := cmd.Start(); err != nil {
			failed <- err
			return
		}
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "ready ") {
				ready <- lines.Text()
			}
		}
		_ = cmd.Wait()
		close(exited)
	}()
	select {
	case line := <-ready:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cmd, b.exited = cmd, exited
		b.httpURL = Field(line, "http")
		return nil
	case err := <-failed:
		return err
	case <-exited:
		return fmt.Errorf("the broker ended before it was ready: %v", cmd.ProcessState)
	case <-time.After(60 * time.Second):
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("the broker was not ready in time")
	}
}

// MustStart fails the test if the broker does not start.
func (b *Broker) MustStart() {
	b.t.Helper()
	if err := b.Start(); err != nil {
		b.t.Fatalf("%v\n%s", err, Tail(b.Log.String(), 30))
	}
}

// Kill ends the process as kill -9 does.
func (b *Broker) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.exited
	b.cmd = nil
}

// Freeze stops the process where it is (SIGSTOP) and returns when no thread of it runs any more, save those that wait in
// the kernel for a disk: nothing is answered from then on. Only Kill ends that (Linux).
func (b *Broker) Freeze() error {
	pid := b.Pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for range 2000 {
		if frozen(pid) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not stop", pid)
}

func frozen(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // that thread has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // proc(5): pid (name) state …
		if rest == "" || !strings.Contains("TtD", rest[:1]) {
			return false
		}
	}
	return true
}

// Stop ends the process by SIGTERM and returns how it ended.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := cmp.Or(b.StopLimit, 20*time.Second)
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-b.exited:
		state := b.cmd.ProcessState
		b.cmd = nil
		if !state.Success() {
			return fmt.Errorf("stop the broker: %v", state)
		}
		return nil
	case <-time.After(limit):
		return fmt.Errorf("the broker does not end within %s of SIGTERM", limit)
	}
}

// Exited is closed when the process that runs now has ended, by itself or not.
func (b *Broker) Exited() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exited
}

// Dead says whether the process ended by itself.
func (b *Broker) Dead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.exited:
		return b.cmd != nil
	default:
		return false
	}
}

// Pid is the process's id.
func (b *Broker) Pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cmd.Process.Pid
}

// Metrics are the samples of /metrics by name and labels, as they are printed there.
func (b *Broker) Metrics() (map[string]float64, error) {
	resp, err := http.Get(b.httpURL + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, ok := cutLast(strings.TrimSpace(line))
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(line, "#") {
			samples[name] = v
		}
	}
	return samples, nil
}

func cutLast(line string) (before, after string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

// Files are what the process has open: the targets of its descriptors (Linux).
func (b *Broker) Files() (open []string) {
	dir := fmt.Sprintf("/proc/%d/fd", b.Pid())
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			open = append(open, target)
		}
	}
	return open
}

// DeletedFiles are files that the process holds open although they have no name any more (Linux).
func (b *Broker) DeletedFiles() (held []string) {
	for _, target := range b.Files() {
		if strings.HasSuffix(target, " (deleted)") {
			held = append(held, target)
		}
	}
	return held
}

// LogLines are the lines of the log so far that contain a text.
func (b *Broker) LogLines(text string) (lines []string) {
	for line := range strings.Lines(b.Log.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// VerifyFiles has "pgbroker log verify", which shares no code with what wrote the files, look at the log directory and
// returns what it printed.
func (b *Broker) VerifyFiles(args ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.binary, append([]string{"log", "verify", b.Dir()}, args...)...).CombinedOutput()
	if len(out) == 0 {
		b.t.Fatalf("log verify printed nothing: %v", err)
	}
	return strings.TrimSpace(string(out))
}
