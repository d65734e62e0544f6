package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Options say how a private Postgres runs.
type Options struct {
	DataDir string // holds everything; created when missing
	// Port on 127.0.0.1. 0: the one of the last start when it is free, else any free one.
	Port int
	Log  *slog.Logger // nil: silent
	// Fast gives up durability (fsync=off): for tests only.
	Fast bool
	// EndWithOwner has the kernel stop Postgres when this process dies, kill -9 included (Linux only; elsewhere the next
	// Start on the directory ends it).
	EndWithOwner bool
}

const (
	// startLimit bounds a Start whose context has no earlier deadline; crash recovery is part of it.
	startLimit = 2 * time.Minute
	// dyingLimit bounds the wait for the backends of a killed postmaster.
	dyingLimit = 10 * time.Second
	// logLimitBytes is the size at which a start moves the log aside.
	logLimitBytes = 8 << 20
)

// Server is a private Postgres. Its methods may be called from any goroutine.
type Server struct {
	dir  layout
	opts Options
	who  identity
	bin  string

	mu       sync.Mutex // held while the server is started or stopped
	lock     *os.File   // nil after Stop
	proc     *process   // nil when it does not run
	port     int
	password string
	sockets  string
	logStart int64 // size of the log before the last launch
}

// Start makes the cluster when there is none, ends an orphan of an owner that was killed, starts Postgres and returns
// when it takes connections. It fails when another owner lives.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	root, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: layout{root}, opts: opts}
	if s.who, err = chooseIdentity(s.dir.cluster()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startLocked(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// startLocked leaves nothing running and no lock held when it fails.
func (s *Server) startLocked(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if s.lock == nil {
		if err := makeRoot(s.dir.root, s.who); err != nil {
			return err
		}
		if s.lock, err = lockOwner(s.dir); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			s.unlock()
		}
	}()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	return s.launchUntilReady(ctx)
}

// prepare has the binaries, the cluster, its password and socket directory in place, and no other Postgres on it.
func (s *Server) prepare(ctx context.Context) error {
	orphan, err := endOrphan(ctx, s.dir)
	if err != nil {
		return err
	}
	if orphan {
		s.opts.Log.Warn("ended the private Postgres that a killed process left behind", "data", s.dir.root)
	}
	if s.bin == "" {
		if s.bin, err = findBinaries(ctx, s.dir.major(), s.who); err != nil {
			return err
		}
	}
	if !s.dir.exists() {
		if err := initCluster(ctx, s.dir, s.bin, s.who, s.opts.Fast); err != nil {
			return fmt.Errorf("make the private Postgres in %s: %w", s.dir.root, err)
		}
	}
	if s.password, err = s.dir.savedPassword(); err != nil {
		return err
	}
	s.sockets, err = socketDir(s.dir, s.who)
	return err
}

// launchUntilReady starts the postmaster, again on another port when the chosen one was taken meanwhile.
func (s *Server) launchUntilReady(ctx context.Context) error {
	dyingUntil := time.Now().Add(dyingLimit)
	for range 1000 {
		port, err := s.choosePort()
		if err != nil {
			return err
		}
		if err := s.rotateLog(); err != nil {
			return err
		}
		proc, err := s.launch(port, s.sockets)
		if err != nil {
			return err
		}
		err = s.awaitReady(ctx, proc)
		if err == nil {
			s.proc, s.port = proc, port
			return s.savePort()
		}
		var failed *startError
		switch {
		case !errors.As(err, &failed):
			signalAll(proc.pid, syscall.SIGKILL)
			<-proc.done
			return err
		case failed.portTaken() && s.opts.Port == 0 && s.port == 0:
			// Another process was faster; choose again.
		case failed.stillDying() && time.Now().Before(dyingUntil):
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return errors.New("the private Postgres finds no free port")
}

// choosePort returns the wanted port, the one that clients of this Server already know, the last one, or any.
func (s *Server) choosePort() (int, error) {
	if s.opts.Port != 0 {
		if !portIsFree(s.opts.Port) {
			return 0, fmt.Errorf("port %d of the private Postgres is in use; stop who uses it or choose another port", s.opts.Port)
		}
		return s.opts.Port, nil
	}
	if s.port != 0 {
		return s.port, nil
	}
	if port := s.dir.savedPort(); port != 0 && portIsFree(port) {
		return port, nil
	}
	return freePort()
}

func (s *Server) savePort() error {
	if s.dir.savedPort() == s.port {
		return nil
	}
	return os.WriteFile(s.dir.port(), []byte(strconv.Itoa(s.port)+"\n"), 0o644)
}

// rotateLog notes where the log of this start begins, and moves a log that has grown large aside.
func (s *Server) rotateLog() error {
	info, err := os.Stat(s.dir.log())
	switch {
	case os.IsNotExist(err):
		s.logStart = 0
		return nil
	case err != nil:
		return err
	case info.Size() > logLimitBytes:
		s.logStart = 0
		return os.Rename(s.dir.log(), s.dir.log()+".1")
	}
	s.logStart = info.Size()
	return nil
}

// Stop ends Postgres by a fast shutdown: sessions are cut, committed data is safe, the next start needs no recovery. When
// the context ends first it goes on to an immediate one. It releases the directory and may be called again.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.endLocked(ctx, syscall.SIGINT)
	s.unlock()
	return err
}

// Immediate ends Postgres without a checkpoint, as a crash of the server would: its next start recovers. The directory
// stays owned; Restart brings it back.
func (s *Server) Immediate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.endLocked(ctx, syscall.SIGQUIT)
}

// Kill ends the postmaster and all its children by SIGKILL. The directory stays owned; Restart brings it back.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	signalAll(s.proc.pid, syscall.SIGKILL)
	<-s.proc.done
	s.proc = nil
	return nil
}

// Restart stops Postgres when it runs and starts it on the same port.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endLocked(ctx, syscall.SIGINT); err != nil {
		return err
	}
	return s.startLocked(ctx)
}

// endLocked sends the signal and waits; when the context ends first it sends SIGQUIT, then SIGKILL, and says so.
func (s *Server) endLocked(ctx context.Context, sig syscall.Signal) error {
	p := s.proc
	if p == nil {
		return nil
	}
	s.proc = nil
	signalAll(p.pid, syscall.SIGCONT)
	if !p.ended() {
		_ = syscall.Kill(p.pid, sig)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	_ = syscall.Kill(p.pid, syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		signalAll(p.pid, syscall.SIGKILL)
		<-p.done
	}
	return fmt.Errorf("the private Postgres did not stop in time and was ended at once: %w", ctx.Err())
}

func (s *Server) unlock() {
	if s.lock == nil {
		return
	}
	if s.sockets != "" && s.sockets != s.dir.sockets() {
		_ = os.Remove(s.sockets) // one of the temporary directory; empty once Postgres has ended
	}
	unlockFile(s.lock)
	s.lock = nil
}

// Pids returns the postmaster and its children, the postmaster first; nothing when Postgres does not run.
func (s *Server) Pids() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return nil
	}
	return append([]int{s.proc.pid}, childrenOf(s.proc.pid)...)
}

// Pause stops all processes of Postgres by SIGSTOP: connections stay open and nothing answers.
func (s *Server) Pause() error { return s.signalEach(syscall.SIGSTOP) }

// Resume lets them go on.
func (s *Server) Resume() error { return s.signalEach(syscall.SIGCONT) }

func (s *Server) signalEach(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return errors.New("the private Postgres does not run")
	}
	signalAll(s.proc.pid, sig)
	return nil
}

// URL returns the connection URL of a database, with the password.
func (s *Server) URL(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return connURL(s.port, s.password, database)
}

// Port returns the port on 127.0.0.1.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// BinDir returns the directory of the Postgres programs in use.
func (s *Server) BinDir() string { return s.bin }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.dir.log() }
