package vfs

import (
	"io"
	"io/fs"
	"sync"
)

// Op is a kind of call on the disk.
type Op int

// The kinds that Faulty counts; OpAny counts all of them together.
const (
	OpAny Op = iota
	OpOpen
	OpCreate
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpSyncDir
	OpRename
	OpRemove
	OpMkdir
	OpReadDir
)

// Faulty passes calls on and fails the n-th one of a kind. All calls may overlap.
type Faulty struct {
	FS
	mu     sync.Mutex
	counts map[Op]int
	kind   Op
	nth    int
	err    error
	sticky bool
	hits   int
}

// NewFaulty wraps base; nothing fails until Fail is called.
func NewFaulty(base FS) *Faulty { return &Faulty{FS: base, counts: map[Op]int{}} }

// Fail makes the n-th call of kind from now on (1 is the next) return err; with
// sticky all later calls of that kind fail too. A failed write stops halfway.
func (f *Faulty) Fail(kind Op, n int, err error, sticky bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.counts)
	f.kind, f.nth, f.err, f.sticky, f.hits = kind, n, err, sticky, 0
}

// Heal lets all calls pass again.
func (f *Faulty) Heal() { f.Fail(OpAny, 0, nil, false) }

// Hits is how many calls were failed since the last Fail.
func (f *Faulty) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

func (f *Faulty) check(op Op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[op]++
	f.counts[OpAny]++
	if f.nth == 0 || (f.kind != OpAny && f.kind != op) {
		return nil
	}
	if c := f.counts[f.kind]; c == f.nth || (f.sticky && c > f.nth) {
		f.hits++
		return pathError("faulty", path, f.err)
	}
	return nil
}

// Open opens for reading.
func (f *Faulty) Open(path string) (File, error) { return f.file(OpOpen, path, f.FS.Open) }

// OpenReadWrite counts as OpCreate if create is set.
func (f *Faulty) OpenReadWrite(path string, create bool) (File, error) {
	op := OpOpen
	if create {
		op = OpCreate
	}
	return f.file(op, path, func(p string) (File, error) { return f.FS.OpenReadWrite(p, create) })
}

func (f *Faulty) file(op Op, path string, open func(string) (File, error)) (File, error) {
	if err := f.check(op, path); err != nil {
		return nil, err
	}
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, f: f}, nil
}

// ReadFile counts as OpRead.
func (f *Faulty) ReadFile(path string) ([]byte, error) {
	if err := f.check(OpRead, path); err != nil {
		return nil, err
	}
	return f.FS.ReadFile(path)
}

// WriteFile counts as OpWrite.
func (f *Faulty) WriteFile(path string, data []byte, perm fs.FileMode) error {
	if err := f.check(OpWrite, path); err != nil {
		return err
	}
	return f.FS.WriteFile(path, data, perm)
}

// Mkdir counts as OpMkdir.
func (f *Faulty) Mkdir(path string, perm fs.FileMode) error {
	if err := f.check(OpMkdir, path); err != nil {
		return err
	}
	return f.FS.Mkdir(path, perm)
}

// ReadDir counts as OpReadDir.
func (f *Faulty) ReadDir(path string) ([]fs.DirEntry, error) {
	if err := f.check(OpReadDir, path); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(path)
}

// Rename counts as OpRename.
func (f *Faulty) Rename(from, to string) error {
	if err := f.check(OpRename, from); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// Remove counts as OpRemove.
func (f *Faulty) Remove(path string) error {
	if err := f.check(OpRemove, path); err != nil {
		return err
	}
	return f.FS.Remove(path)
}

// RemoveAll counts as OpRemove.
func (f *Faulty) RemoveAll(path string) error {
	if err := f.check(OpRemove, path); err != nil {
		return err
	}
	return f.FS.RemoveAll(path)
}

// SyncDir counts as OpSyncDir.
func (f *Faulty) SyncDir(path string) error {
	if err := f.check(OpSyncDir, path); err != nil {
		return err
	}
	return f.FS.SyncDir(path)
}

// Lock is not counted: tests of faults need a store to start with.
func (f *Faulty) Lock(path string) (io.Closer, error) { return f.FS.Lock(path) }

type faultyFile struct {
	File
	f *Faulty
}

func (x *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := x.f.check(OpRead, x.Name()); err != nil {
		return 0, err
	}
	return x.File.ReadAt(p, off)
}

func (x *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := x.f.check(OpWrite, x.Name()); err != nil {
		n, _ := x.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return x.File.WriteAt(p, off)
}

func (x *faultyFile) Truncate(size int64) error {
	if err := x.f.check(OpTruncate, x.Name()); err != nil {
		return err
	}
	return x.File.Truncate(size)
}

func (x *faultyFile) SyncData() error {
	if err := x.f.check(OpSync, x.Name()); err != nil {
		return err
	}
	return x.File.SyncData()
}

func (x *faultyFile) Sync() error {
	if err := x.f.check(OpSync, x.Name()); err != nil {
		return err
	}
	return x.File.Sync()
}
