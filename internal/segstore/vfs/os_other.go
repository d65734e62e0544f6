//go:build unix && !linux

package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Elsewhere than on Linux the broker runs for development only: fsync stands
// in for fdatasync and hints do nothing.

func (f *osFile) SyncData() error            { return f.Sync() }
func (f *osFile) Allocate(_, _ int64) error  { return nil }
func (f *osFile) WriteBack(_, _ int64) error { return nil }

func writeBackAllOS(string) {}

func lockOS(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return f, nil
}

func usageOS(path string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	used := int64(st.Blocks) - int64(st.Bfree)
	return (used + int64(st.Bavail)) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), nil
}
