package embedpg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Standby makes a streaming standby of a running server in a data directory of its own, and starts it. It is read only
// until Promote. For tests.
func (s *Server) Standby(ctx context.Context, opts Options) (*Server, error) {
	root, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	standby := &Server{dir: layout{root}, opts: opts, who: s.who, bin: s.bin}
	if standby.opts.Log == nil {
		standby.opts.Log = s.opts.Log
	}
	source, password := s.sourceLocked(), s.password
	s.mu.Unlock()
	if err := makeRoot(root, standby.who); err != nil {
		return nil, err
	}
	if err := os.WriteFile(standby.dir.password(), []byte(password+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	if err := standby.who.give(standby.dir.password()); err != nil {
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	standby.mu.Lock()
	defer standby.mu.Unlock()
	if err := standby.copyLocked(ctx, source); err != nil {
		return nil, err
	}
	if err := standby.startLocked(ctx); err != nil {
		return nil, err
	}
	return standby, nil
}

// Follow makes a server, which may be an old primary, a standby of another one: it is stopped, everything in it is given up
// for a copy of the primary's, and it is started on its old port. For tests.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	primary.mu.Lock()
	source := primary.sourceLocked()
	primary.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endLocked(ctx, syscall.SIGQUIT); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dir.cluster()); err != nil {
		return fmt.Errorf("make a standby: %w", err)
	}
	if err := s.copyLocked(ctx, source); err != nil {
		return err
	}
	return s.startLocked(ctx)
}

// sourceLocked is where a standby of this server gets its data from.
func (s *Server) sourceLocked() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=standby", s.port, superuser, s.password)
}

// copyLocked fills the cluster's directory, which is not there, with a copy that follows its source.
func (s *Server) copyLocked(ctx context.Context, source string) error {
	if err := os.Mkdir(s.dir.cluster(), 0o700); err != nil {
		return fmt.Errorf("make a standby: %w", err)
	}
	if err := s.who.give(s.dir.cluster()); err != nil {
		return fmt.Errorf("make a standby: %w", err)
	}
	var out bytes.Buffer
	cmd := s.who.command([]string{s.dir.cluster()}, filepath.Join(s.bin, "pg_basebackup"),
		"-D", s.dir.cluster(), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pg_basebackup: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, lastLines(out.String(), 3))
	}
	return nil
}

// Promote makes a standby a primary of its own and returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	return s.execute(ctx, "SELECT pg_promote(true, 30)")
}

// Detach keeps a standby from receiving anything more from its primary; what the primary commits from then on, the standby
// lacks.
func (s *Server) Detach(ctx context.Context) error {
	for _, statement := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if err := s.execute(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// WaitForStandbys makes commits wait for a synchronous standby.
func (s *Server) WaitForStandbys(ctx context.Context, wait bool) error {
	names := map[bool]string{true: "'*'", false: "''"}[wait]
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = " + names, "SELECT pg_reload_conf()"} {
		if err := s.execute(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// HostPort is where the server listens.
func (s *Server) HostPort() string { return "127.0.0.1:" + strconv.Itoa(s.Port()) }
