// Package vfs is the only door to the disk. OS talks to the real one, Mem is a
// disk in memory that can be copied as a power cut would leave it, Faulty fails
// the n-th call. Nothing else in the broker opens a file.
package vfs

import (
	"io"
	"io/fs"
)

// File is an open file. Calls with an explicit offset may overlap; a File has no position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the length in bytes.
	Size() (int64, error)
	// Truncate sets the length in bytes; what is added reads as zeros.
	Truncate(size int64) error
	// SyncData makes all written bytes, and the length needed to read them, durable (fdatasync).
	SyncData() error
	// Sync makes data and metadata durable (fsync).
	Sync() error
	// Allocate reserves disk blocks for [off, off+n) without changing the length.
	Allocate(off, n int64) error
	// WriteBack asks the kernel to start writing [off, off+n); it promises nothing.
	WriteBack(off, n int64) error
	// Fd is the descriptor for sendfile, or ok=false where there is none (memory).
	Fd() (fd uintptr, ok bool)
	Name() string
}

// FS is a file system. Paths are absolute or relative to the process.
type FS interface {
	// Open opens for reading.
	Open(path string) (File, error)
	// OpenReadWrite opens for reading and writing; create makes it if it is missing.
	OpenReadWrite(path string, create bool) (File, error)
	// ReadFile and WriteFile handle small whole files. WriteFile is not durable: see WriteFileAtomic.
	ReadFile(path string) ([]byte, error)
	WriteFile(path string, data []byte, perm fs.FileMode) error
	Mkdir(path string, perm fs.FileMode) error
	MkdirAll(path string, perm fs.FileMode) error
	// ReadDir lists names in order.
	ReadDir(path string) ([]fs.DirEntry, error)
	Stat(path string) (fs.FileInfo, error)
	Rename(from, to string) error
	Remove(path string) error
	RemoveAll(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(path string) error
	// WriteBackAll has everything written that is dirty on the file system which
	// holds path, names too, and waits for it. It promises nothing: what is to be
	// durable is synced afterwards, which then takes little time, and where the
	// errors show.
	WriteBackAll(path string)
	// Lock takes an exclusive lock that ends with the process; ErrLocked if another holds it.
	Lock(path string) (io.Closer, error)
	// Writable is why no file can be made in a directory, as far as its mode and its file system say; nil if it can.
	Writable(dir string) error
	// Usage is the file system that holds path, in bytes: what may be used by a
	// process that is not root (as df counts its Use%), and what is left of it.
	Usage(path string) (total, free int64, err error)
}
