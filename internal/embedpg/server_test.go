package embedpg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgbroker/pgbroker/internal/embedpg"
)

// ownDir returns a directory that ends with the test, with a path as short as a user's.
func ownDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embedpg-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "db")
}

func start(t *testing.T, opts embedpg.Options) *embedpg.Server {
	t.Helper()
	opts.Fast, opts.EndWithOwner = true, true
	server, err := embedpg.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

func stop(t *testing.T, server *embedpg.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// query runs one statement over TCP with the password and returns the first column of its row, if any.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	value := ""
	for rows.Next() {
		if values, err := rows.Values(); err == nil {
			value = fmt.Sprint(values[0])
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestStartStopStart(t *testing.T) {
	t.Parallel()
	dir := ownDir(t)
	began := time.Now()
	first := start(t, embedpg.Options{DataDir: dir})
	t.Logf("first start %s", time.Since(began).Round(time.Millisecond))
	if err := first.EnsureDatabase(t.Context(), `my "db"`); err != nil {
		t.Fatal(err)
	}
	if err := first.EnsureDatabase(t.Context(), `my "db"`); err != nil {
		t.Fatalf("the second time: %v", err)
	}
	url := first.URL(`my "db"`)
	query(t, url, "create table kept as select 7 as n")
	if got := query(t, url, "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where name in ('listen_addresses', 'max_connections', 'password_encryption', 'port')"); got != fmt.Sprintf("listen_addresses=127.0.0.1 max_connections=100 password_encryption=scram-sha-256 port=%d", first.Port()) {
		t.Errorf("settings %s", got)
	}
	stop(t, first)
	if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", first.Port())); err == nil {
		t.Error("somebody listens after the stop")
	}
	if first.Pids() != nil {
		t.Errorf("processes %v after the stop", first.Pids())
	}

	began = time.Now()
	second := start(t, embedpg.Options{DataDir: dir})
	t.Logf("second start %s", time.Since(began).Round(time.Millisecond))
	if second.URL(`my "db"`) != url {
		t.Errorf("URL %s, was %s", second.URL(`my "db"`), url)
	}
	if saved, err := embedpg.URLOf(dir, `my "db"`); err != nil || saved != url {
		t.Errorf("saved URL %s, %v", saved, err)
	}
	if got := query(t, url, "select n from kept"); got != "7" {
		t.Errorf("read %q", got)
	}
	if err := second.DropDatabase(t.Context(), `my "db"`); err != nil {
		t.Error(err)
	}
}

// TestOneCluster runs, one after the other, what needs no cluster of its own: making one takes a second.
func TestOneCluster(t *testing.T) {
	t.Parallel()
	dir := ownDir(t)
	if _, err := embedpg.URLOf(dir, "postgres"); err == nil {
		t.Error("a URL before there is anything")
	}
	// What a process leaves that is killed while it makes a cluster.
	if err := os.MkdirAll(filepath.Join(dir, "pgdata.new", "base"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, dir string)
	}{
		{"secrets on disk", testSecretsOnDisk},
		{"one owner at a time", testOneOwnerAtATime},
		{"pause and resume", testPauseAndResume},
		{"ports", testPorts},
		{"a stranger with the old pid", testStrangerWithTheOldPid},
		{"a start says what Postgres said", testStartSaysWhatPostgresSaid}, // last: it breaks the cluster
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, dir) })
	}
}

func testSecretsOnDisk(t *testing.T, dir string) {
	server := start(t, embedpg.Options{DataDir: dir})
	info, err := os.Stat(filepath.Join(dir, "password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the password's file: %v, %v", info.Mode(), err)
	}
	wrong := strings.Replace(server.URL("postgres"), "postgres:", "postgres:x", 2)
	wrong = strings.Replace(wrong, "postgres:x//", "postgres://", 1)
	if conn, err := pgx.Connect(t.Context(), wrong); err == nil {
		conn.Close(t.Context())
		t.Error("let in with a wrong password")
	}
	out, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(server.Pids()[0])).Output()
	if err == nil && bytes.Contains(out, bytes.TrimSpace(mustRead(t, filepath.Join(dir, "password")))) {
		t.Error("the password is in the command line")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testOneOwnerAtATime(t *testing.T, dir string) {
	server := start(t, embedpg.Options{DataDir: dir})
	_, err := embedpg.Start(t.Context(), embedpg.Options{DataDir: dir})
	want := fmt.Sprintf("%s is in use by the process %d; stop it or choose another data directory", dir, os.Getpid())
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := query(t, server.URL("postgres"), "select 1"); got != "1" {
		t.Errorf("the first server answers %q", got)
	}
}

func testPorts(t *testing.T, dir string) {
	server := start(t, embedpg.Options{DataDir: dir})
	stop(t, server)
	// Somebody else takes the port while the server is down.
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", server.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = embedpg.Start(t.Context(), embedpg.Options{DataDir: dir, Port: server.Port()})
	if want := fmt.Sprintf("port %d of the private Postgres is in use; stop who uses it or choose another port", server.Port()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	other := start(t, embedpg.Options{DataDir: dir})
	if other.Port() == server.Port() {
		t.Errorf("port %d is in use and was given", other.Port())
	}
	if saved, err := embedpg.URLOf(dir, "postgres"); err != nil || saved != other.URL("postgres") {
		t.Errorf("saved URL %s, %v; want %s", saved, err, other.URL("postgres"))
	}
}

func TestCrashesAndRestart(t *testing.T) {
	t.Parallel()
	server := start(t, embedpg.Options{DataDir: ownDir(t)})
	url := server.URL("postgres")
	query(t, url, "create table n (n int)")
	for i, end := range []func() error{
		server.Immediate,
		server.Kill,
		func() error { return errors.Join(server.Pause(), server.Kill()) },
		func() error { return nil }, // running
		func() error { return server.Stop(context.Background()) },
		func() error { return syscall.Kill(server.Pids()[0], syscall.SIGKILL) }, // by somebody else
	} {
		query(t, url, fmt.Sprintf("insert into n values (%d)", i))
		before := server.Pids()
		if err := end(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if server.Pids() == nil {
			awaitEnd(t, before)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatalf("%d: restart: %v", i, err)
		}
		if got := query(t, url, "select count(*) from n"); got != strconv.Itoa(i+1) {
			t.Errorf("%d: %s rows", i, got)
		}
	}
}

// awaitEnd waits until none of the processes is left.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range pids {
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(deadline) {
				t.Fatalf("process %d lives on", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func testPauseAndResume(t *testing.T, dir string) {
	server := start(t, embedpg.Options{DataDir: dir})
	if len(server.Pids()) < 4 {
		t.Errorf("processes %v: the postmaster's children are missing", server.Pids())
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := server.EnsureDatabase(ctx, "a"); err == nil {
		t.Error("a paused server made a database")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := server.EnsureDatabase(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	// Left paused, it can be stopped all the same.
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	stop(t, server)
	if err := server.Pause(); err == nil {
		t.Error("paused what does not run")
	}
}

// ownerVariable makes the test binary a process that owns a server and waits to be killed.
const ownerVariable = "EMBEDPG_TEST_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerVariable); dir != "" {
		opts := embedpg.Options{DataDir: dir, Fast: true, EndWithOwner: strings.HasSuffix(dir, "/ends-with-owner")}
		server, err := embedpg.Start(context.Background(), opts)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("pid %d\n", server.Pids()[0])
		select {}
	}
	os.Exit(m.Run())
}

// startOwner starts a process that owns a server of dir and returns it and the postmaster's pid.
func startOwner(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
		t.Fatalf("the owner did not start: %v", err)
	}
	return cmd, pid
}

// TestEndWithOwner: kill -9 of the owner takes Postgres with it.
func TestEndWithOwner(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the parent death signal of Linux")
	}
	t.Parallel()
	dir := filepath.Join(filepath.Dir(ownDir(t)), "ends-with-owner")
	owner, pid := startOwner(t, dir)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // says "killed"
	awaitEnd(t, []int{pid})
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(pid int) error{
		"running": func(int) error { return nil },
		"stopped": func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := ownDir(t)
			owner, pid := startOwner(t, dir)
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = owner.Wait() // says "killed"
			if err := syscall.Kill(pid, 0); err != nil {
				t.Fatalf("the orphan is gone already: %v", err)
			}
			if err := before(pid); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			server := start(t, embedpg.Options{DataDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if server.Pids()[0] == pid {
				t.Error("the orphan still runs")
			}
			if !strings.Contains(log.String(), "left behind") {
				t.Errorf("log %q", log.String())
			}
			if got := query(t, server.URL("postgres"), "select 1"); got != "1" {
				t.Errorf("answer %q", got)
			}
		})
	}
}

// testStrangerWithTheOldPid: the pid in postmaster.pid was given to another program since. That one is left alone, and
// the server starts.
func testStrangerWithTheOldPid(t *testing.T, dir string) {
	server := start(t, embedpg.Options{DataDir: dir})
	old := mustRead(t, filepath.Join(dir, "pgdata", "postmaster.pid"))
	stop(t, server)

	stranger := exec.Command("sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stranger.Process.Kill(); err != nil {
			t.Errorf("the stranger did not live: %v", err)
		}
		_ = stranger.Wait()
	}()
	_, rest, _ := bytes.Cut(old, []byte("\n"))
	forged := fmt.Appendf(nil, "%d\n%s", stranger.Process.Pid, rest)
	if err := os.WriteFile(filepath.Join(dir, "pgdata", "postmaster.pid"), forged, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, embedpg.Options{DataDir: dir})
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(ownDir(t), strings.Repeat("long", 30))
	server := start(t, embedpg.Options{DataDir: dir})
	if err := server.EnsureDatabase(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	sockets := query(t, server.URL("postgres"), "show unix_socket_directories")
	if len(sockets) > 107-len("/.s.PGSQL.65535") {
		t.Errorf("socket directory %s", sockets)
	}
	stop(t, server)
	if _, err := os.Stat(sockets); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", sockets, err)
	}
}

func testStartSaysWhatPostgresSaid(t *testing.T, dir string) {
	stop(t, start(t, embedpg.Options{DataDir: dir}))
	conf := filepath.Join(dir, "pgdata", "postgresql.conf")
	if err := os.WriteFile(conf, append(mustRead(t, conf), "shared_buffers = much\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := embedpg.Start(t.Context(), embedpg.Options{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers": "much"`) {
		t.Errorf("got %v", err)
	}
}
