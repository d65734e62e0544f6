package embedpg_test

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pgbroker/pgbroker/internal/embedpg"
)

// needRoot skips a test that changes users. CI runs these as root, by `make test-root`.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changes users: needs root")
	}
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// TestClosedParent: a directory below one that only root may enter, as /root is, stays closed and serves all the same.
func TestClosedParent(t *testing.T) {
	needRoot(t)
	t.Parallel()
	closed := filepath.Join(ownDir(t), "closed")
	if err := os.MkdirAll(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(closed, "new", "db")
	server := start(t, embedpg.Options{DataDir: dir})
	if err := server.EnsureDatabase(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	query(t, server.URL("a"), "create table n (n int)")
	if err := server.Restart(t.Context()); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(closed)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the parent was opened: %v, %v", info.Mode(), err)
	}
}

// TestClosedBinaries: programs below such a directory cannot be used, and the start says so.
func TestClosedBinaries(t *testing.T) {
	needRoot(t)
	dir := ownDir(t)
	closed := filepath.Join(filepath.Dir(dir), "closed")
	for _, path := range []string{closed, filepath.Join(closed, "bin")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range map[string]string{"initdb": "", "postgres": "echo 'postgres (PostgreSQL) 17.5'"} {
		if err := os.WriteFile(filepath.Join(closed, "bin", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PGBROKER_POSTGRES_BINDIR", filepath.Join(closed, "bin"))
	_, err := embedpg.Start(t.Context(), embedpg.Options{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "who is to run Postgres, may not enter it") {
		t.Errorf("got %v", err)
	}
}

// TestAnotherUser runs the start and orphan tests as nobody, and then opens a cluster of that user as root.
func TestAnotherUser(t *testing.T) {
	needRoot(t)
	t.Parallel()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skipf("no user nobody: %v", err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)

	home := ownDir(t)
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "embedpg.test")
	text := mustRead(t, os.Args[0])
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, uid, gid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^(TestStartStopStart|TestOrphans)$", "-test.v")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "GOCOVERDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := bytes.Count(out, []byte("\n--- PASS: Test")); n != 2 {
		t.Errorf("%d tests passed:\n%s", n, out)
	}
}

// TestRootChangesUser: root runs Postgres as somebody else, and what one user made as that user.
func TestRootChangesUser(t *testing.T) {
	needRoot(t)
	t.Parallel()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skipf("no user nobody: %v", err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	dir := ownDir(t)
	first := start(t, embedpg.Options{DataDir: dir})
	if uid := ownerOf(t, filepath.Join("/proc", strconv.Itoa(first.Pids()[0]))); uid == 0 {
		t.Error("Postgres runs as root")
	}
	if uid := ownerOf(t, filepath.Join(dir, "pgdata")); uid == 0 {
		t.Error("the cluster belongs to root")
	}
	stop(t, first)
	// The cluster of another user, as if that one had made it.
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, embedpg.Options{DataDir: dir})
	if got := ownerOf(t, filepath.Join("/proc", strconv.Itoa(server.Pids()[0]))); got != uid {
		t.Errorf("Postgres runs as user %d, want %d", got, uid)
	}
}
