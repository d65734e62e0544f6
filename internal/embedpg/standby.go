package embedpg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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
	source := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=standby", s.port, superuser, s.password)
	password := s.password
	s.mu.Unlock()
	if err := makeRoot(root, standby.who); err != nil {
		return nil, err
	}
	for path, make := range map[string]func(string) error{
		standby.dir.cluster():  func(path string) error { return os.Mkdir(path, 0o700) },
		standby.dir.password(): func(path string) error { return os.WriteFile(path, []byte(password+"\n"), 0o600) },
	} {
		if err := make(path); err != nil {
			return nil, fmt.Errorf("make a standby: %w", err)
		}
		if err := standby.who.give(path); err != nil {
			return nil, fmt.Errorf("make a standby: %w", err)
		}
	}
	var out bytes.Buffer
	cmd := standby.who.command([]string{standby.dir.cluster()}, filepath.Join(standby.bin, "pg_basebackup"),
		"-D", standby.dir.cluster(), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, lastLines(out.String(), 3))
	}
	standby.mu.Lock()
	defer standby.mu.Unlock()
	if err := standby.startLocked(ctx); err != nil {
		return nil, err
	}
	return standby, nil
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
