// Package harness holds what the tests of the real binary share: the binary itself, the programs beside it, and how its
// processes are started and read.
package harness

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// built is the binary of this test process; Main removes its directory.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Binary is the path of the binary under test: PGBROKER_TEST_BINARY, or one that is built once for this test process,
// in a directory that only this user may enter. A package whose tests call it has a TestMain that ends with Main.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("PGBROKER_TEST_BINARY"); path != "" {
		return path
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "pgbroker-test-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "pgbroker")
		if out, err := exec.Command("go", "build", "-o", built.path, "github.com/pgbroker/pgbroker/cmd/pgbroker").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// Main runs the tests, removes what Binary built and exits with the tests' code.
func Main(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// Need skips a test whose program is missing, or fails it under PGBROKER_TEST_REQUIRE=all.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("PGBROKER_TEST_REQUIRE") == "all" {
		t.Fatalf("%s is not installed", program)
	}
	t.Skipf("%s is not installed", program)
}

// FreePort is a port of 127.0.0.1 that nobody listened on a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Environment is this process's environment without settings of a broker (PGBROKER_TEST_BINARY itself would be one), but for
// the seeded bug of a build that has some, plus what is added.
func Environment(extra ...string) []string {
	plain := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PGBROKER_") && !strings.HasPrefix(v, "PGBROKER_SEEDED_BUG=") || strings.HasPrefix(v, "KAFKA_")
	})
	return append(plain, extra...)
}

// Field is the value of key=value in a line of words such as the ready line; "" if it has none.
func Field(line, key string) string {
	for _, word := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			return v
		}
	}
	return ""
}

// Tail is the last lines of a text, at most as many as given.
func Tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Buffer is a buffer that a process writes while a test reads.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
