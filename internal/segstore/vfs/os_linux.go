package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

func (f *osFile) SyncData() error {
	return f.retry("fdatasync", func() error { return unix.Fdatasync(int(f.fd)) })
}

func (f *osFile) Allocate(off, n int64) error {
	err := f.retry("fallocate", func() error {
		return unix.Fallocate(int(f.fd), unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil // a reservation is an optimisation: some file systems have none
	}
	return err
}

func (f *osFile) WriteBack(off, n int64) error {
	err := f.retry("sync_file_range", func() error {
		return unix.SyncFileRange(int(f.fd), off, n, unix.SYNC_FILE_RANGE_WRITE)
	})
	if errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func (f *osFile) retry(op string, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: op, Path: f.Name(), Err: err}
		}
	}
}

// writeBackAllOS leaves errors to the syncs of the files. syncfs does not know
// all of them: before Linux 5.8 none, before 5.17 none of the journal, and none
// that a file system meets before it has handed the bytes to the disk. But it
// hides none either: each file keeps its own mark of a failed write.
func writeBackAllOS(path string) {
	d, err := os.Open(path)
	if err != nil {
		return
	}
	defer d.Close()
	_ = unix.Syncfs(int(d.Fd()))
}

// lockOS takes both a flock and an open-file-description lock: the second one
// excludes Kafka, whose Java FileChannel.lock is an fcntl lock.
func lockOS(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		lk := unix.Flock_t{Type: unix.F_WRLCK}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk)
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, ErrLocked
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}

func usageOS(path string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	used := int64(st.Blocks) - int64(st.Bfree)
	return (used + int64(st.Bavail)) * unit, int64(st.Bavail) * unit, nil
}
