package stress

import (
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
)

// checkFiles has "pgbroker log verify", which shares no code with what wrote the files, look at the log directory: after
// kill -9 nothing may be worse than what a start repairs, and after a start and a clean stop nothing may be found.
func (s *storm) checkFiles() {
	s.broker.kill()
	if found := s.verifyFiles(); strings.Contains(found, "ERROR ") {
		s.t.Errorf("log verify after kill -9:\n%s", found)
	}
	if err := s.broker.start(); err != nil {
		s.t.Fatalf("start after kill -9: %v\n%s", err, harness.Tail(s.broker.log.String(), 30))
	}
	s.broker.stop()
	found := s.verifyFiles()
	if !strings.HasSuffix(strings.TrimSpace(found), ", 0 findings") {
		s.t.Errorf("log verify after a clean stop:\n%s", found)
	}
	s.t.Log(strings.TrimSpace(found))
}

// verifyFiles runs log verify and returns what it printed.
func (s *storm) verifyFiles() string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), s.broker.binary, "log", "verify", s.broker.dir()).CombinedOutput()
	if len(out) == 0 {
		s.t.Fatalf("log verify printed nothing: %v", err)
	}
	return string(out)
}

// dir is the log directory.
func (b *broker) dir() string {
	for _, a := range b.args {
		if dir, ok := strings.CutPrefix(a, "log.dirs="); ok {
			return dir
		}
	}
	b.t.Fatal("the broker has no log.dirs")
	return ""
}

// stop ends the process by SIGTERM.
func (b *broker) stop() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	select {
	case <-b.exited:
		b.cmd = nil
	case <-time.After(20 * time.Second):
		b.t.Fatal("the broker does not end within 20 s of SIGTERM")
	}
}
