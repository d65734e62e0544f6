package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// BlockSize is the unit in which Mem loses unsynced bytes at a power cut.
const BlockSize = 4096

// Mem is a disk in memory. It remembers what was synced, so that CrashCopy can
// make the disk that a power cut would leave. All calls may overlap.
type Mem struct {
	mu       sync.Mutex // guards everything but the bytes of files, which have their own lock
	root     *memDir
	capacity int64
	used     int64
	now      func() time.Time
	locks    map[string]bool
}

var _ FS = (*Mem)(nil)

// NewMem returns an empty disk of 1 TiB.
func NewMem() *Mem {
	return &Mem{root: newMemDir(), capacity: 1 << 40, now: time.Now, locks: map[string]bool{}}
}

// SetCapacity sets the size of the disk in bytes; writes beyond it stop short with ENOSPC.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	m.capacity = n
	m.mu.Unlock()
}

// Used is the number of bytes in files.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// node is a *memDir or a *memNode (file).
type node interface{ isDir() bool }

// dirOp is one change of names since the last SyncDir: to now means n (nil:
// it is gone) and from, if set, is gone too.
type dirOp struct {
	from, to string
	n        node
}

type memDir struct {
	now     map[string]node
	durable map[string]node
	pending []dirOp
}

func newMemDir() *memDir { return &memDir{now: map[string]node{}, durable: map[string]node{}} }

func (*memDir) isDir() bool { return true }

func (d *memDir) change(op dirOp) {
	op.apply(d.now)
	d.pending = append(d.pending, op)
}

func (op dirOp) apply(names map[string]node) {
	if op.from != "" {
		delete(names, op.from)
	}
	if op.n == nil {
		delete(names, op.to)
	} else {
		names[op.to] = op.n
	}
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// split gives the elements of a path; both "/a/b" and "a/b" start at the root.
func split(path string) []string {
	path = strings.Trim(filepath.Clean(path), "/")
	if path == "" || path == "." {
		return nil
	}
	return strings.Split(path, "/")
}

func (m *Mem) dirLocked(elems []string) (*memDir, bool) {
	d := m.root
	for _, e := range elems {
		next, ok := d.now[e].(*memDir)
		if !ok {
			return nil, false
		}
		d = next
	}
	return d, true
}

// parentLocked finds the directory that holds path and path's last element.
func (m *Mem) parentLocked(op, path string) (*memDir, string, error) {
	elems := split(path)
	if len(elems) == 0 {
		return nil, "", pathError(op, path, fs.ErrInvalid)
	}
	d, ok := m.dirLocked(elems[:len(elems)-1])
	if !ok {
		return nil, "", pathError(op, path, fs.ErrNotExist)
	}
	return d, elems[len(elems)-1], nil
}

func (m *Mem) open(path string, write, create bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, name, err := m.parentLocked("open", path)
	if err != nil {
		return nil, err
	}
	n, ok := d.now[name]
	if !ok {
		if !create {
			return nil, pathError("open", path, fs.ErrNotExist)
		}
		n = newMemNode(m.now())
		d.change(dirOp{to: name, n: n})
	}
	file, ok := n.(*memNode)
	if !ok {
		return nil, pathError("open", path, syscall.EISDIR)
	}
	return &memFile{m: m, n: file, path: path, write: write}, nil
}

// Open opens for reading.
func (m *Mem) Open(path string) (File, error) { return m.open(path, false, false) }

// OpenReadWrite opens for reading and writing; create makes it if it is missing.
func (m *Mem) OpenReadWrite(path string, create bool) (File, error) {
	return m.open(path, true, create)
}

// ReadFile reads a whole file.
func (m *Mem) ReadFile(path string) ([]byte, error) {
	f, err := m.Open(path)
	if err != nil {
		return nil, err
	}
	size, _ := f.Size()
	buf := make([]byte, size)
	n, err := f.ReadAt(buf, 0)
	if err == io.EOF {
		err = nil
	}
	return buf[:n], err
}

// WriteFile writes a whole file; it is not durable.
func (m *Mem) WriteFile(path string, data []byte, _ fs.FileMode) error {
	f, err := m.OpenReadWrite(path, true)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return err
}

// Mkdir makes one directory.
func (m *Mem) Mkdir(path string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, name, err := m.parentLocked("mkdir", path)
	if err != nil {
		return err
	}
	if _, ok := d.now[name]; ok {
		return pathError("mkdir", path, fs.ErrExist)
	}
	d.change(dirOp{to: name, n: newMemDir()})
	return nil
}

// MkdirAll makes a directory and its parents.
func (m *Mem) MkdirAll(path string, perm fs.FileMode) error {
	elems := split(path)
	for i := range elems {
		p := filepath.Join(elems[:i+1]...)
		if err := m.Mkdir(p, perm); err != nil {
			if st, serr := m.Stat(p); serr != nil || !st.IsDir() {
				return err
			}
		}
	}
	return nil
}

// ReadDir lists names in order.
func (m *Mem) ReadDir(path string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.dirLocked(split(path))
	if !ok {
		return nil, pathError("readdir", path, fs.ErrNotExist)
	}
	var list []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(d.now)) {
		list = append(list, fs.FileInfoToDirEntry(infoOf(name, d.now[name])))
	}
	return list, nil
}

// Stat describes a file.
func (m *Mem) Stat(path string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	elems := split(path)
	if len(elems) == 0 {
		return infoOf("/", m.root), nil
	}
	d, name, err := m.parentLocked("stat", path)
	if err != nil {
		return nil, err
	}
	n, ok := d.now[name]
	if !ok {
		return nil, pathError("stat", path, fs.ErrNotExist)
	}
	return infoOf(name, n), nil
}

// Rename moves a file over another, or a directory to a free name.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fd, fname, err := m.parentLocked("rename", from)
	if err != nil {
		return err
	}
	td, tname, err := m.parentLocked("rename", to)
	if err != nil {
		return err
	}
	n, ok := fd.now[fname]
	if !ok {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if fd != td {
		return pathError("rename", from, fmt.Errorf("across directories: %w", syscall.EXDEV))
	}
	if old, ok := td.now[tname]; ok {
		if old.isDir() {
			return pathError("rename", to, fs.ErrExist)
		}
		m.used -= old.(*memNode).size()
	}
	fd.change(dirOp{from: fname, to: tname, n: n})
	return nil
}

// Remove unlinks a file or an empty directory.
func (m *Mem) Remove(path string) error { return m.remove(path, false) }

// RemoveAll unlinks a tree; a missing path is no error.
func (m *Mem) RemoveAll(path string) error {
	if _, err := m.Stat(path); err != nil {
		return nil
	}
	return m.remove(path, true)
}

func (m *Mem) remove(path string, all bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, name, err := m.parentLocked("remove", path)
	if err != nil {
		return err
	}
	switch n := d.now[name].(type) {
	case nil:
		return pathError("remove", path, fs.ErrNotExist)
	case *memDir:
		if len(n.now) > 0 && !all {
			return pathError("remove", path, syscall.ENOTEMPTY)
		}
		m.used -= treeSize(n)
	case *memNode:
		m.used -= n.size()
	}
	d.change(dirOp{to: name})
	return nil
}

func treeSize(n node) (sum int64) {
	if f, ok := n.(*memNode); ok {
		return f.size()
	}
	for _, c := range n.(*memDir).now {
		sum += treeSize(c)
	}
	return sum
}

// SyncDir makes the names in a directory durable.
func (m *Mem) SyncDir(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.dirLocked(split(path))
	if !ok {
		return pathError("syncdir", path, fs.ErrNotExist)
	}
	d.durable, d.pending = maps.Clone(d.now), nil
	return nil
}

// WriteBackAll does nothing: a crash copy may lose all that is not synced.
func (m *Mem) WriteBackAll(string) {}

// Lock takes an exclusive lock; a CrashCopy holds none.
func (m *Mem) Lock(path string) (io.Closer, error) {
	f, err := m.OpenReadWrite(path, true)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[path] {
		return nil, ErrLocked
	}
	m.locks[path] = true
	return &memLock{File: f, m: m, path: path}, nil
}

type memLock struct {
	File
	m    *Mem
	path string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	delete(l.m.locks, l.path)
	l.m.mu.Unlock()
	return nil
}

// Writable is nil: a disk in memory takes all.
func (m *Mem) Writable(string) error { return nil }

// Usage is the capacity set and what is left of it.
func (m *Mem) Usage(string) (total, free int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.capacity, max(0, m.capacity-m.used), nil
}

type memInfo struct {
	name string
	size int64
	dir  bool
	mod  time.Time
}

func infoOf(name string, n node) memInfo {
	if f, ok := n.(*memNode); ok {
		return memInfo{name: name, size: f.size(), mod: f.modified()}
	}
	return memInfo{name: name, dir: true}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.mod }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
