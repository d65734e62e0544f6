package segstore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Look says whether Open could have a directory, and changes nothing: neither
// directory nor lock file is made. found is false where the directory is
// missing and could be made. Errors are those of Open.
func Look(fsys vfs.FS, dir string) (found bool, err error) {
	if found, err = look(fsys, dir); err != nil {
		return found, fmt.Errorf("look at %s: %w", dir, err)
	}
	return found, nil
}

func look(fsys vfs.FS, dir string) (found bool, err error) {
	info, err := fsys.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if parent := filepath.Dir(dir); parent != dir {
			_, err = look(fsys, parent)
		}
		return false, err
	} else if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return true, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if err := fsys.Writable(dir); err != nil {
		return true, err
	}
	lock := filepath.Join(dir, lockFile)
	if _, err := fsys.Stat(lock); err == nil {
		held, err := fsys.Lock(lock)
		if errors.Is(err, vfs.ErrLocked) {
			return true, ErrDirInUse
		} else if err != nil {
			return true, err
		}
		defer held.Close()
	}
	s := &Store{fs: fsys, dir: dir, onDisk: map[string][]byte{}}
	return true, s.readTop()
}
