package meta_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// pgbouncer starts the real one in transaction mode with a single server session, so that each transaction follows on
// the last one's session, and returns a URL through it.
func pgbouncer(t *testing.T, target string) string {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
		if _, err := os.Stat(program); err != nil {
			if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
				t.Fatal("this test needs pgbouncer")
			}
			t.Skip("this test needs pgbouncer")
		}
	}
	u, err := url.Parse(target)
	fatal(t, err)
	password, _ := u.User.Password()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	fatal(t, l.Close())
	dir, err := os.MkdirTemp("", "pgbouncer-") // t.TempDir is closed to the user that it runs as
	fatal(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 1
logfile = %s/log
`, u.Hostname(), u.Port(), u.User.Username(), password, port, dir)
	config := filepath.Join(dir, "pgbouncer.ini")
	fatal(t, os.WriteFile(config, []byte(ini), 0o644))
	cmd := osexec.Command(program, config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // it refuses to run as root
		who, err := user.Lookup("nobody")
		fatal(t, err)
		uid, err := strconv.Atoi(who.Uid)
		fatal(t, err)
		fatal(t, os.Chown(dir, uid, -1))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	fatal(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("pgbouncer's log:\n%s", log)
		}
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("pgbouncer does not listen: %v", err)
		}
	}
	u.Host = address
	return u.String()
}

// TestPgbouncer: through the real one, which is found out, a strict transaction waits for the disk right after a relaxed one
// on the same server session, and the other way round.
func TestPgbouncer(t *testing.T) {
	t.Parallel()
	target := pgtest.URL(t)
	through := pgbouncer(t, target)
	p := open(t, func(o *meta.Options) { o.URL = through })
	_, shards := owned(t, p)

	exec(t, target, `CREATE TABLE seen (n serial, setting text, pid integer);
		CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen (setting, pid) VALUES (current_setting('synchronous_commit'), pg_backend_pid()); RETURN NULL; END $$;
		CREATE TRIGGER look AFTER INSERT ON pgbroker_internal.group_offsets EXECUTE FUNCTION look()`)
	ctx := context.Background()
	for seq := range int64(6) {
		commit := p.CommitShards
		if seq%2 == 0 {
			commit = p.CommitShardsRelaxed
		}
		fatal(t, commit(ctx, 1, []meta.ShardChange{offsetChange(shards[0], seq)}))
	}
	got := query(t, target, `SELECT string_agg(setting, ' ' ORDER BY n) FROM seen`)
	if got[0] != "off on off on off on" {
		t.Errorf("synchronous_commit of relaxed and strict transactions in turn: %s", got[0])
	}
	if sessions := query(t, target, `SELECT count(DISTINCT pid) FROM seen`); sessions[0] != "1" {
		t.Errorf("%s server sessions, so the test proves nothing", sessions[0])
	}
}
