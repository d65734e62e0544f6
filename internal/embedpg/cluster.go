package embedpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// settings are added to the new cluster's postgresql.conf, where its user may change them.
const settings = `
# pgbroker's private server
max_connections = 100
shared_buffers = 32MB
wal_buffers = 1MB
max_wal_size = 512MB
log_min_messages = warning
log_checkpoints = off
log_line_prefix = '%m [%p] '
`

// accessRules replace initdb's pg_hba.conf: a password over TCP; over the socket, whose directory only the server's user
// can enter, that user and root need none.
const accessRules = `local all all peer map=owner
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
`

// makeRoot creates the data directory. Parents that are missing are made passable for the server's user; parents that
// exist are left as they are.
func makeRoot(root string, who identity) error {
	mode := os.FileMode(0o700)
	if who.drop {
		mode = 0o711
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	err := os.Mkdir(root, mode)
	if os.IsExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return os.Chmod(root, mode) // whatever the umask took away
}

// initCluster runs initdb beside the final place and renames the result, so that a cluster is there whole or not at all.
func initCluster(ctx context.Context, l layout, bin string, who identity, fast bool) error {
	if err := os.RemoveAll(l.newCluster()); err != nil {
		return fmt.Errorf("remove a half-made cluster: %w", err)
	}
	if err := os.Mkdir(l.newCluster(), 0o700); err != nil {
		return err
	}
	if err := who.give(l.newCluster()); err != nil {
		return err
	}
	if err := os.WriteFile(l.password(), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	if err := who.give(l.password()); err != nil {
		return err
	}
	args := []string{
		"-D", l.newCluster(), "-U", superuser, "--pwfile=" + l.password(),
		"--encoding=UTF8", "--locale=C", "--auth=scram-sha-256",
	}
	if fast {
		args = append(args, "--no-sync")
	}
	var out bytes.Buffer
	cmd := who.command([]string{l.newCluster(), l.password()}, filepath.Join(bin, "initdb"), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(out.String(), 3))
	}
	if err := configure(l.newCluster(), who); err != nil {
		return fmt.Errorf("configure the new cluster: %w", err)
	}
	return os.Rename(l.newCluster(), l.cluster())
}

func configure(cluster string, who identity) error {
	conf, err := os.OpenFile(filepath.Join(cluster, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(settings)
	if closeErr := conf.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	// Existing files keep their owner when they are written over.
	if err := os.WriteFile(filepath.Join(cluster, "pg_hba.conf"), []byte(accessRules), 0o600); err != nil {
		return err
	}
	owners := "owner root " + superuser + "\n"
	if who.name != "" {
		owners += fmt.Sprintf("owner %q %s\n", who.name, superuser)
	}
	return os.WriteFile(filepath.Join(cluster, "pg_ident.conf"), []byte(owners), 0o600)
}

// socketPathLimit is the size of sockaddr_un.sun_path less the final zero, and less what Postgres appends.
const socketPathLimit = 107 - len("/.s.PGSQL.65535.lock")

// socketDir makes the directory of the Unix socket: in the data directory when its path is short enough, else a name
// below the temporary directory that this data directory always gets.
func socketDir(l layout, who identity) (string, error) {
	dir := l.sockets()
	if len(dir) > socketPathLimit {
		sum := sha256.Sum256([]byte(l.root))
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("pgbroker-%d-%x", who.uid, sum[:6]))
		if len(dir) > socketPathLimit {
			dir = filepath.Join("/tmp", filepath.Base(dir))
		}
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return dir, who.give(dir)
	}
	if !os.IsExist(err) {
		return "", fmt.Errorf("make the socket directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != who.uid || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("socket directory %s belongs to somebody else; remove it", dir)
	}
	return dir, nil
}

// environment is what Postgres sees of ours: no PG… variable may change where it works.
func environment() []string {
	env := []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// lastLines joins the last n lines that are not empty.
func lastLines(text string, n int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
