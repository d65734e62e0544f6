package segstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestLookChangesNothing: what a start could have is found out without a trace.
func TestLookChangesNothing(t *testing.T) {
	root := t.TempDir()
	tree := func() (names []string) {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			names = append(names, path+" "+info.ModTime().String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	file, bad := filepath.Join(root, "file"), filepath.Join(root, "bad")
	used, fresh := filepath.Join(root, "used"), filepath.Join(root, "fresh")
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Mkdir(bad, 0o755), os.Mkdir(fresh, 0o755),
		os.WriteFile(filepath.Join(bad, metaFile), []byte("node.id=x\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, vfs.OS{}, used, Strict, testConfig())
	before := tree()
	for _, c := range []struct {
		dir   string
		found bool
		want  error
	}{
		{fresh, true, nil},
		{filepath.Join(root, "a", "b"), false, nil},
		{file, true, syscall.ENOTDIR},
		{filepath.Join(file, "a"), false, syscall.ENOTDIR},
		{bad, true, ErrCorrupt},
		{used, true, ErrDirInUse},
	} {
		if found, err := Look(vfs.OS{}, c.dir); found != c.found || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", c.dir, found, err)
		}
	}
	if after := tree(); !slices.Equal(before, after) {
		t.Errorf("before:\n%q\nafter:\n%q", before, after)
	}
	stopTest(t, s, true)
	before = tree()
	if found, err := Look(vfs.OS{}, used); !found || err != nil {
		t.Errorf("after the stop: %v, %v", found, err)
	}
	if after := tree(); !slices.Equal(before, after) {
		t.Errorf("after the stop, before:\n%q\nafter:\n%q", before, after)
	}
	s = openTest(t, vfs.OS{}, used, Strict, testConfig()) // its lock was given back
	stopTest(t, s, true)
}
