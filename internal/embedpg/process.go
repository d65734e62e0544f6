package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a postmaster that this process started.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
}

// launch starts the postmaster. Its output goes to the log file, not to a pipe, so that it survives its owner's kill -9.
func (s *Server) launch(port int, sockets string) (*process, error) {
	log, err := os.OpenFile(s.dir.log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	program := filepath.Join(s.bin, "postgres")
	args := []string{
		"-D", s.dir.cluster(),
		"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port), "-c", "unix_socket_directories=" + sockets,
		"-c", "logging_collector=off", "-c", "log_destination=stderr",
	}
	if s.opts.Fast {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	cmd := s.who.command([]string{s.dir.cluster(), filepath.Join(sockets, "socket")}, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.opts.EndWithOwner {
		endWithOwner(cmd.SysProcAttr)
	}
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return p, nil
}

// run starts the command and waits for its end. It keeps one thread for itself: the death signal of EndWithOwner fires
// when the starting thread ends, not only the process.
func (p *process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	err := cmd.Start()
	if err == nil {
		p.pid = cmd.Process.Pid
	}
	started <- err
	if err == nil {
		// How it ended is in its log; that it ended is all that matters here.
		_ = cmd.Wait()
	}
	close(p.done)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// awaitReady waits until the postmaster says in its pid file that it takes connections.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	for {
		if pid, status := readPidFile(s.dir.pidFile()); pid == p.pid && (status == "ready" || status == "standby") {
			return nil
		}
		if p.ended() {
			return &startError{log: s.logTail()}
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("the private Postgres is not ready: %w: %s", err, lastLines(s.logTail(), 2))
		}
	}
}

// startError is a postmaster that ended instead of becoming ready.
type startError struct{ log string }

// linePrefix is what log_line_prefix of this package and of Postgres itself put before a message.
var linePrefix = regexp.MustCompile(`(?m)^\S+ \S+ \S+ \[\d+\] `)

func (e *startError) Error() string {
	return "the private Postgres ended at once: " + lastLines(linePrefix.ReplaceAllString(e.log, ""), 3)
}

// portTaken tells that somebody else got the port first.
func (e *startError) portTaken() bool {
	return strings.Contains(e.log, "could not create any TCP/IP sockets") ||
		strings.Contains(e.log, "could not create listen socket for \"127.0.0.1\"")
}

// stillDying tells that backends of a killed postmaster have not ended yet.
func (e *startError) stillDying() bool {
	return strings.Contains(e.log, "pre-existing shared memory block") || strings.Contains(e.log, "postmaster.pid\" already exists")
}

// logTail returns what the server wrote since the last start.
func (s *Server) logTail() string {
	text, err := os.ReadFile(s.dir.log())
	if err != nil || int64(len(text)) < s.logStart {
		return ""
	}
	return string(text[s.logStart:])
}

// readPidFile returns the postmaster's pid and status; 0 without a file. The lines are pid, directory, start time, port,
// socket directory, address, shared memory, status (src/include/utils/pidfile.h).
func readPidFile(path string) (pid int, status string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(text), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return 0, ""
	}
	if len(lines) > 7 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status
}

// endOrphan ends a Postgres of this cluster whose owner is gone. The caller holds the owner's lock. It reports whether
// there was one.
func endOrphan(ctx context.Context, l layout) (bool, error) {
	pid, _ := readPidFile(l.pidFile())
	if pid == 0 {
		return false, nil
	}
	if !isPostgresOf(pid, l.cluster()) {
		if syscall.Kill(pid, 0) == nil {
			// The number was given to a stranger since. Postgres would take that one for a living postmaster.
			return false, os.Remove(l.pidFile())
		}
		return false, nil
	}
	// It may have been stopped by SIGSTOP, and would then not hear anything else.
	signalAll(pid, syscall.SIGCONT)
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, 10 * time.Second}, {syscall.SIGQUIT, 10 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if step.signal == syscall.SIGKILL {
			signalAll(pid, step.signal)
		} else if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return true, fmt.Errorf("end the orphaned Postgres with pid %d: %w", pid, err)
		}
		for deadline := time.Now().Add(step.wait); time.Now().Before(deadline); {
			if !isPostgresOf(pid, l.cluster()) {
				return true, nil
			}
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return true, fmt.Errorf("end the orphaned Postgres with pid %d: %w", pid, err)
			}
		}
	}
	return true, fmt.Errorf("the orphaned Postgres with pid %d does not end; kill it by hand", pid)
}

// signalAll signals a postmaster and its children. The postmaster is stopped first, so that it starts no child meanwhile,
// and gets its own signal last: the children of a dead one are no longer known as its.
func signalAll(pid int, sig syscall.Signal) {
	if sig != syscall.SIGCONT {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, child := range childrenOf(pid) {
		_ = syscall.Kill(child, sig)
	}
	_ = syscall.Kill(pid, sig)
}
