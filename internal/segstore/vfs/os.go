package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OS is the real file system.
type OS struct{}

var _ FS = OS{}

// Open opens for reading.
func (OS) Open(path string) (File, error) { return openOS(path, os.O_RDONLY) }

// OpenReadWrite opens for reading and writing; create makes it if it is missing.
func (OS) OpenReadWrite(path string, create bool) (File, error) {
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	return openOS(path, flag)
}

func openOS(path string, flag int) (File, error) {
	f, err := openFile(path, flag)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, fd: f.Fd()}, nil
}

// openFile is os.OpenFile without the attempt to have the file polled, which
// costs as much as the rest where many files are opened, written and closed.
func openFile(path string, flag int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0o644)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// ReadFile reads a whole file.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// WriteFile writes a whole file; it is not durable.
func (OS) WriteFile(path string, data []byte, perm fs.FileMode) error {
	return os.WriteFile(path, data, perm)
}

// Mkdir makes one directory.
func (OS) Mkdir(path string, perm fs.FileMode) error { return os.Mkdir(path, perm) }

// MkdirAll makes a directory and its parents.
func (OS) MkdirAll(path string, perm fs.FileMode) error { return os.MkdirAll(path, perm) }

// ReadDir lists names in order.
func (OS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// Stat describes a file.
func (OS) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

// Rename moves a file over another.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove unlinks a file or an empty directory.
func (OS) Remove(path string) error { return os.Remove(path) }

// RemoveAll unlinks a tree.
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncDir makes the names in a directory durable.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// WriteBackAll is syncfs on Linux and nothing elsewhere.
func (OS) WriteBackAll(path string) { writeBackAllOS(path) }

// Lock takes an exclusive lock that ends with the process.
func (OS) Lock(path string) (io.Closer, error) { return lockOS(path) }

// Writable asks for the rights of this process and whether the file system is read-only.
func (OS) Writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// Usage is what a process that is not root may use of the file system that holds path, and what is left of it.
func (OS) Usage(path string) (total, free int64, err error) { return usageOS(path) }

// osFile adds the calls that os.File lacks. fd stays valid until Close.
type osFile struct {
	*os.File
	fd uintptr
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Fd() (uintptr, bool) { return f.fd, true }
