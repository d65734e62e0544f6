package vfs

import (
	"errors"
	"fmt"
	"path/filepath"
)

// ErrLocked says that another process, or another handle, holds the lock.
var ErrLocked = errors.New("locked by another holder")

// WriteFileAtomic replaces path by data so that a crash leaves either the old
// or the new bytes: it writes path.tmp, fsyncs it, renames it over path and
// fsyncs the directory. When it returns nil the new bytes are durable.
func WriteFileAtomic(fsys FS, path string, data []byte) error {
	tmp := path + ".tmp"
	if err := WriteFileSynced(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// WriteFileSynced writes a whole file and fsyncs it. Its name is durable only
// after a SyncDir of its directory.
func WriteFileSynced(fsys FS, path string, data []byte) error {
	return writeFile(fsys, path, data, true)
}

func writeFile(fsys FS, path string, data []byte, sync bool) error {
	f, err := fsys.OpenReadWrite(path, true)
	if err != nil {
		return err
	}
	err = func() error {
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			return err
		}
		if !sync {
			return nil
		}
		return f.Sync()
	}()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
