package vfs

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

// memNode is a file's content: the bytes as processes see them, and those
// that are on the medium. dirty are the blocks in which the two may differ.
type memNode struct {
	mu      sync.RWMutex
	now     []byte
	durable []byte
	dirty   map[int64]struct{}
	mod     time.Time
}

func newMemNode(now time.Time) *memNode { return &memNode{dirty: map[int64]struct{}{}, mod: now} }

func (*memNode) isDir() bool { return false }

func (n *memNode) size() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return int64(len(n.now))
}

func (n *memNode) modified() time.Time {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.mod
}

func (n *memNode) markLocked(off, end int64) {
	for b := off / BlockSize; b*BlockSize < end; b++ {
		n.dirty[b] = struct{}{}
	}
}

func (n *memNode) resizeLocked(size int64) {
	old := int64(len(n.now))
	if size < old {
		n.markLocked(size, old)
		n.now = n.now[:size]
		return
	}
	n.now = slices.Grow(n.now, int(size-old))[:size]
	clear(n.now[old:])
	n.markLocked(old, size)
}

func (n *memNode) sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := len(n.now)
	if len(n.durable) > size {
		n.durable = n.durable[:size]
	} else {
		old := len(n.durable)
		n.durable = slices.Grow(n.durable, size-old)[:size]
		clear(n.durable[old:])
	}
	for b := range n.dirty {
		lo := min(int(b*BlockSize), size)
		hi := min(lo+BlockSize, size)
		copy(n.durable[lo:hi], n.now[lo:hi])
	}
	clear(n.dirty)
}

// crash makes the file that a power cut leaves: each unsynced block is the new
// or the old one, and the length is the new, the old or one between them.
func (n *memNode) crash(rng *rand.Rand) *memNode {
	n.mu.RLock()
	defer n.mu.RUnlock()
	size := len(n.durable)
	if len(n.now) != size {
		switch rng.IntN(3) {
		case 0:
			size = len(n.now)
		case 1:
			lo, hi := min(size, len(n.now)), max(size, len(n.now))
			size = lo + rng.IntN(hi-lo+1)
		}
	}
	data := make([]byte, size)
	copy(data, n.durable)
	keep := rng.IntN(4) // 0 none, 3 all, else about half of the blocks
	for _, b := range slices.Sorted(maps.Keys(n.dirty)) {
		if keep == 0 || (keep < 3 && rng.IntN(2) == 0) {
			continue
		}
		lo := min(int(b*BlockSize), size)
		hi := min(lo+BlockSize, size)
		clear(data[lo:hi])
		if lo < len(n.now) {
			copy(data[lo:hi], n.now[lo:])
		}
	}
	return &memNode{now: data, durable: slices.Clone(data), dirty: map[int64]struct{}{}, mod: n.mod}
}

// CrashCopy is the disk after a power cut at this moment: what was synced is
// there; of the rest each 4 KiB block, each new length and each change of a
// name survives or not by rng. The copy shares nothing with m and has no locks.
func (m *Mem) CrashCopy(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.capacity, c.now = m.capacity, m.now
	c.root = crashDir(m.root, rng, map[node]node{})
	c.used = treeSize(c.root)
	return c
}

func crashDir(d *memDir, rng *rand.Rand, seen map[node]node) *memDir {
	names := maps.Clone(d.durable)
	keep := rng.IntN(4)
	for _, op := range d.pending {
		if keep == 3 || (keep > 0 && rng.IntN(2) == 0) {
			op.apply(names)
		}
	}
	c := newMemDir()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := names[name]
		twin, ok := seen[n]
		if !ok {
			if sub, isDir := n.(*memDir); isDir {
				twin = crashDir(sub, rng, seen)
			} else {
				twin = n.(*memNode).crash(rng)
			}
			seen[n] = twin
		}
		c.now[name] = twin
	}
	c.durable = maps.Clone(c.now)
	return c
}

// memFile is an open Mem file. It stays usable after its name is gone.
type memFile struct {
	m     *Mem
	n     *memNode
	path  string
	write bool
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.n.mu.RLock()
	defer f.n.mu.RUnlock()
	if off >= int64(len(f.n.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.now[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if !f.write {
		return 0, pathError("write", f.path, fs.ErrPermission)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	end := off + int64(len(p))
	var err error
	if grow := end - int64(len(f.n.now)); grow > 0 {
		if free := f.m.capacity - f.m.used; grow > free {
			end -= grow - max(0, free)
			p = p[:max(0, end-off)]
			err = pathError("write", f.path, syscall.ENOSPC)
		}
	}
	if len(p) == 0 {
		return 0, err
	}
	if grow := end - int64(len(f.n.now)); grow > 0 {
		f.m.used += grow
		f.n.resizeLocked(end)
	}
	copy(f.n.now[off:], p)
	f.n.markLocked(off, end)
	f.n.mod = f.m.now()
	return len(p), err
}

func (f *memFile) Size() (int64, error) { return f.n.size(), nil }

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.m.used += size - int64(len(f.n.now))
	f.n.resizeLocked(size)
	return nil
}

func (f *memFile) SyncData() error            { f.n.sync(); return nil }
func (f *memFile) Sync() error                { f.n.sync(); return nil }
func (f *memFile) Allocate(_, _ int64) error  { return nil }
func (f *memFile) WriteBack(_, _ int64) error { return nil }
func (f *memFile) Fd() (uintptr, bool)        { return 0, false }
func (f *memFile) Name() string               { return f.path }
func (f *memFile) Close() error               { return nil }
