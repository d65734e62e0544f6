package ecosystem

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// pgbouncer starts one in transaction mode before a Postgres and returns the URL through it. As root it runs as nobody, since
// it refuses to be root.
func pgbouncer(t *testing.T, target string) string {
	t.Helper()
	harness.Need(t, "pgbouncer")
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	dir, err := os.MkdirTemp("", "pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	port := harness.FreePort(t)
	ini := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = any\n"+
		"pool_mode = transaction\ndefault_pool_size = 4\nunix_socket_dir =\nserver_check_delay = 0\n", u.Hostname(), u.Port(), u.User.Username(), password, port)
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("pgbouncer", ini)
	log := &harness.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
		gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread that started the process ends
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("pgbouncer: %s", harness.Tail(log.String(), 20))
		}
	})
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	u.RawQuery = "sslmode=disable"
	eventually(t, 10*time.Second, "pgbouncer listens", func() bool {
		conn, err := net.Dial("tcp", u.Host)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return u.String()
}

// TestPgbouncer: the broker reaches its Postgres only through pgbouncer in transaction mode. franz-go's scenarios of the
// compatibility suite hold (groups of both protocols, transactions with offsets), also after kill -9, and what was committed is
// there after a clean stop, after a kill and when the broker goes to Postgres directly.
func TestPgbouncer(t *testing.T) {
	rounds := size(t, 1, 3)
	target := pgtest.Server(t).URL("postgres")
	settings := []string{"group.initial.rebalance.delay.ms=0", "group.consumer.min.heartbeat.interval.ms=200", "group.consumer.heartbeat.interval.ms=200"}
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgbouncer(t, target), Set: settings})
	b.MustStart()
	cache := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", cache, "./cmd/franz-go")
	build.Dir = "../compat/go"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for round := range rounds {
		p := launch(t, []string{"BOOTSTRAP=" + b.Bootstrap(), fmt.Sprint("PREFIX=pooled-", round)}, filepath.Join(cache, "franz-go"))
		p.wait(t, 3*time.Minute)
		for _, line := range p.output() {
			if !strings.Contains(line, " PASS ") {
				t.Errorf("round %d: %s", round, line)
			}
		}
		if n := p.count(" PASS "); n < 18 {
			t.Errorf("only %d scenarios passed", n)
		}
		state := read(t, b, rounds)
		b.Kill()
		b.MustStart()
		if now := read(t, b, rounds); now != state {
			t.Errorf("after a kill: %s, was %s", now, state)
		}
	}
	state := read(t, b, rounds)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	direct := harness.NewBroker(t, harness.BrokerOptions{Postgres: target, Dir: b.Dir(), Set: settings})
	direct.MustStart()
	if now := read(t, direct, rounds); now != state {
		t.Errorf("without pgbouncer: %s, was %s", now, state)
	}
	t.Log(state)
}

// read is what the rounds have left: committed offsets of their groups, and records of the copies.
func read(t *testing.T, b *harness.Broker, rounds int) string {
	t.Helper()
	var found []string
	adm := kadm.NewClient(client(t, b))
	for round := range rounds {
		for _, group := range []string{"resume", "txn", "next"} {
			name := fmt.Sprintf("pooled-%d-%s", round, group)
			offsets, err := adm.FetchOffsets(t.Context(), name)
			if err != nil {
				t.Fatalf("offsets of %s: %v", name, err)
			}
			sum := int64(0)
			offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
			found = append(found, fmt.Sprint(name, "=", sum))
		}
		if topics, err := adm.ListTopics(t.Context(), fmt.Sprintf("pooled-%d-txn-out", round)); err == nil && topics.Error() == nil {
			found = append(found, fmt.Sprint(len(readAll(t, b, fmt.Sprintf("pooled-%d-txn-out", round)).all), " copied"))
		}
	}
	return strings.Join(found, " ")
}
