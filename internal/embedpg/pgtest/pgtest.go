// Package pgtest gives tests a real Postgres without any set-up: URL a fresh database on one server that all tests of
// the process share, Server a server of the test's own that it may stop, kill and pause.
//
// Nothing outlives the test process, however it ends: the kernel stops the servers with it (Linux), and a small shell
// process, which waits for this one's end, stops them elsewhere and removes their directories.
//
// A machine without Postgres, on which none can be downloaded either, skips such a test; under
// PGBROKER_TEST_REQUIRE=all it fails.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgbroker/pgbroker/internal/embedpg"
)

const (
	startLimit = 2 * time.Minute // a first download included
	stopLimit  = 10 * time.Second
)

// shared is the server of URL. It lives as long as the process: nothing tells a package that its last test has ended.
var shared = sync.OnceValues(func() (*embedpg.Server, error) { return start() })

var databases atomic.Int64

// URL returns the connection URL (role postgres, password included) of a database that nobody else uses. It is dropped
// when the test ends, sessions that are still open with it.
func URL(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		missing(t, err)
	}
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := server.EnsureDatabase(context.Background(), name); err != nil {
		t.Fatalf("make a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := server.DropDatabase(context.Background(), name); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return server.URL(name)
}

// Server returns a server of the test's own, with the database "postgres" in it. It is stopped and removed when the test
// ends, in whatever state the test leaves it.
func Server(t testing.TB) *embedpg.Server {
	t.Helper()
	server, err := start()
	if err != nil {
		missing(t, err)
	}
	endWith(t, server)
	return server
}

// Standby returns a streaming standby of a server that Server returned.
func Standby(t testing.TB, primary *embedpg.Server) *embedpg.Server {
	t.Helper()
	dir, err := directory()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	server, err := primary.Standby(ctx, embedpg.Options{DataDir: dir, Fast: true, EndWithOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, server)
	return server
}

// endWith stops and removes a server with the test.
func endWith(t testing.TB, server *embedpg.Server) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("stop the test's Postgres: %v", err)
		}
		if err := os.RemoveAll(filepath.Dir(server.LogFile())); err != nil {
			t.Errorf("remove the test's Postgres: %v", err)
		}
	})
}

// IgnoreShared lets goleak pass over the goroutine that waits for the end of the shared server.
func IgnoreShared() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/pgbroker/pgbroker/internal/embedpg.(*process).run")
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
		t.Fatalf("this test needs Postgres: %v", err)
	}
	t.Skipf("this test needs Postgres: %v", err)
}

// directory is one that is removed when the process ends.
func directory() (string, error) {
	// Not t.TempDir: its path is often too long for a Unix socket, and it ends with a test, not with the process.
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // started as root, Postgres is another user
		return "", err
	}
	return dir, guard(dir)
}

func start() (*embedpg.Server, error) {
	dir, err := directory()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return embedpg.Start(ctx, embedpg.Options{DataDir: dir, Fast: true, EndWithOwner: true})
}
