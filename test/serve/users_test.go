package serve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pgbroker/pgbroker/test/harness"
)

// nobody is the id of the user and the group nobody.
const nobody = 65534

// openDir is a directory that other users may enter, unlike t.TempDir. It belongs to uid when this user is root.
func openDir(t testing.TB, uid int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgbroker-serve-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// reachable is a copy of the binary where every user may run it.
func reachable(t testing.TB) string {
	t.Helper()
	binary, err := os.ReadFile(harness.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(openDir(t, os.Getuid()), "pgbroker")
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
