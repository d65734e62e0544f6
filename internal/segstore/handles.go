package segstore

import (
	"container/list"
	"errors"
	"io/fs"
	"sync"
	"syscall"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// handles keeps at most limit segment files open: they are opened when first
// used, and the one unused for longest is closed when there are too many.
// Files in use are never closed; so that the limit holds all the same, writers
// have a share of their own and reads keep no file when it is crowded.
type handles struct {
	fs    vfs.FS
	limit int

	mu   sync.Mutex // guards the fields below and those of every handle
	idle list.List  // *handle open and unused, oldest use first
	open int
}

// fileLimit is how many segment files a store keeps open: a quarter of what the
// process may, since connections need descriptors too.
func fileLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 256
	}
	return int(min(max(uint64(r.Cur)/4, 64), 8192)) // Cur is signed on some systems
}

// crowded says whether as many files are in use as may be open.
func (c *handles) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open-c.idle.Len() >= c.limit
}

// handle is a segment file, open or not.
type handle struct {
	path string
	file vfs.File
	refs int
	elem *list.Element // place in idle
	gone bool          // the file was deleted: close on the last release
}

func newHandles(fsys vfs.FS, limit int) *handles { return &handles{fs: fsys, limit: limit} }

// acquire opens the file if needed and keeps it open until release.
func (c *handles) acquire(h *handle) (vfs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.file == nil {
		if h.gone {
			return nil, &fs.PathError{Op: "open", Path: h.path, Err: fs.ErrNotExist}
		}
		f, err := c.openLocked(h.path)
		if err != nil {
			return nil, err
		}
		h.file = f
		c.open++
		c.evictLocked()
	}
	if h.elem != nil {
		c.idle.Remove(h.elem)
		h.elem = nil
	}
	h.refs++
	return h.file, nil
}

// openLocked opens for writing where that is allowed, so that one descriptor
// serves all; when the process has run out of descriptors it gives up idle ones.
func (c *handles) openLocked(path string) (vfs.File, error) {
	f, err := c.fs.OpenReadWrite(path, false)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		f, err = c.fs.Open(path)
	}
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && c.idle.Len() > 0 {
		for range min(64, c.idle.Len()) {
			c.closeOldestLocked()
		}
		f, err = c.fs.OpenReadWrite(path, false)
	}
	return f, err
}

// adopt takes over a file that the caller opened; it counts as acquired once.
func (c *handles) adopt(h *handle, f vfs.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.file, h.refs = f, 1
	c.open++
	c.evictLocked()
}

func (c *handles) evictLocked() {
	for c.open > c.limit && c.idle.Len() > 0 {
		c.closeOldestLocked()
	}
}

func (c *handles) closeOldestLocked() {
	h := c.idle.Remove(c.idle.Front()).(*handle)
	h.elem = nil
	c.closeLocked(h)
}

// closeLocked closes an unused file. Its bytes are synced, or those of a log
// that failed or was deleted, so an error of close says nothing new.
func (c *handles) closeLocked(h *handle) {
	h.file.Close()
	h.file = nil
	c.open--
}

func (c *handles) release(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.refs--
	if h.refs > 0 || h.file == nil {
		return
	}
	if h.gone {
		c.closeLocked(h)
		return
	}
	h.elem = c.idle.PushBack(h)
	c.evictLocked()
}

// drop closes the file now, or when its last user releases it; it cannot be
// opened again.
func (c *handles) drop(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.gone = true
	if h.elem != nil {
		c.idle.Remove(h.elem)
		h.elem = nil
	}
	if h.refs == 0 && h.file != nil {
		c.closeLocked(h)
	}
}

// rename notes that the file has another name now.
func (c *handles) rename(h *handle, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.path = path
}
