package stress

import (
	"bufio"
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

	"github.com/pgbroker/pgbroker/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// broker is a broker process that can be killed and started again with the same settings.
type broker struct {
	t      testing.TB
	binary string
	args   []string
	log    *harness.Buffer

	mu      sync.Mutex // guards the fields below
	cmd     *exec.Cmd
	exited  chan struct{}
	httpURL string
}

// newBroker describes a broker that listens on port and tells clients to come to advertised.
func newBroker(t testing.TB, postgres string, port, advertised int, set ...string) *broker {
	b := &broker{t: t, binary: harness.Binary(t), log: &harness.Buffer{}}
	b.args = []string{"serve"}
	for _, s := range append([]string{
		"postgres.url=" + postgres, "log.dirs=" + filepath.Join(t.TempDir(), "log"), "http.listen=127.0.0.1:0",
		"listeners=PLAINTEXT://127.0.0.1:" + strconv.Itoa(port), "advertised.listeners=PLAINTEXT://127.0.0.1:" + strconv.Itoa(advertised),
	}, set...) {
		b.args = append(b.args, "--set", s)
	}
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("the broker's log (end):\n%s", harness.Tail(b.log.String(), 80))
		}
	})
	return b
}

// start runs the process and waits for its ready line.
func (b *broker) start() error {
	cmd := exec.Command(b.binary, b.args...)
	cmd.Stderr = b.log
	cmd.Env = harness.Environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
		b.httpURL = harness.Field(line, "http")
		return nil
	case err := <-failed:
		return err
	case <-exited:
		return fmt.Errorf("the broker ended before it was ready")
	case <-time.After(60 * time.Second):
		_ = cmd.Process.Kill()
		return fmt.Errorf("the broker was not ready in time")
	}
}

// kill ends the process as kill -9 does.
func (b *broker) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.exited
	b.cmd = nil
}

// dead says whether the process ended by itself.
func (b *broker) dead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.exited:
		return b.cmd != nil
	default:
		return false
	}
}

// metrics are the samples of /metrics by name and labels, as they are printed there.
func (b *broker) metrics() (map[string]float64, error) {
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

// deletedFiles are files that the process holds open although they have no name any more (Linux).
func (b *broker) deletedFiles() (held []string) {
	dir := fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasSuffix(target, " (deleted)") {
			held = append(held, target)
		}
	}
	return held
}

// logLines are the lines of the log so far that contain a text.
func (b *broker) logLines(text string) (lines []string) {
	for line := range strings.Lines(b.log.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
