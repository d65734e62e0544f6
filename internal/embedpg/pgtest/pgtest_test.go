package pgtest_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// victimVariable makes the test binary a process that uses both kinds of server and waits to be killed.
const victimVariable = "PGTEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		testing.Init()
		victim()
	}
	goleak.VerifyTestMain(m, pgtest.IgnoreShared())
}

func victim() {
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "victim", F: func(t *testing.T) {
		pgtest.URL(t)
		server := pgtest.Server(t)
		if err := server.Pause(); err != nil { // the hardest to end
			t.Fatal(err)
		}
		fmt.Printf("ready %d %s\n", server.Pids()[0], filepath.Dir(server.LogFile()))
		select {}
	}}}, nil, nil)
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestURLGivesEachCallItsOwnDatabase(t *testing.T) {
	a, b := parse(t, pgtest.URL(t)), parse(t, pgtest.URL(t))
	if a.Host != b.Host {
		t.Errorf("servers %s and %s: want one for the process", a.Host, b.Host)
	}
	if a.Path == b.Path {
		t.Errorf("database %s given twice", a.Path)
	}
}

// TestDatabaseIsDropped: the database goes with its test, even when a session is left open.
func TestDatabaseIsDropped(t *testing.T) {
	var gone string
	t.Run("user", func(t *testing.T) {
		gone = pgtest.URL(t)
		if _, err := pgx.Connect(t.Context(), gone); err != nil { // never closed
			t.Fatal(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), gone)
	if err == nil {
		conn.Close(t.Context())
		t.Error("the database is still there")
	}
}

func TestServerIsTheTestsOwn(t *testing.T) {
	shared := parse(t, pgtest.URL(t))
	var dir string
	t.Run("user", func(t *testing.T) {
		server := pgtest.Server(t)
		dir = filepath.Dir(server.LogFile())
		if own := parse(t, server.URL("postgres")); own.Host == shared.Host {
			t.Errorf("both at %s", own.Host)
		}
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
	conn, err := pgx.Connect(t.Context(), shared.String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
}

// TestNothingOutlivesTheProcess kills a test process that has a shared server and a paused one.
func TestNothingOutlivesTheProcess(t *testing.T) {
	pgtest.URL(t) // skips where there is no Postgres
	temp, err := os.MkdirTemp("", "victim-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"=1", "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	if _, err := fmt.Fscanf(out, "ready %d %s\n", &pid, &dir); err != nil {
		t.Fatalf("the victim did not start: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says "killed"
	deadline := time.Now().Add(20 * time.Second)
	for {
		left, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 && syscall.Kill(pid, 0) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v, process %d: %v", left, pid, syscall.Kill(pid, 0))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
