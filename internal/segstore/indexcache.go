package segstore

import (
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// indexCacheBytes is how much of sealed segments' indexes a store keeps in memory.
const indexCacheBytes = 32 << 20

// indexCache holds the indexes of sealed segments that were asked for, the
// oldest out first when there are too many bytes.
type indexCache struct {
	fs      vfs.FS
	handles *handles

	mu    sync.Mutex // guards the fields below
	fifo  []*loadedIndex
	bytes int
}

// loadedIndex is the content of a sealed segment's index files.
type loadedIndex struct {
	segment *segment
	offsets offsetIndex
	times   timeIndex
}

// get gives the segment's indexes as they are now; the caller may not change them.
func (c *indexCache) get(s *segment) (offsetIndex, timeIndex, error) {
	s.mu.RLock()
	index, times, sealed, size, end := s.index, s.times, s.sealed, s.size, s.end
	s.mu.RUnlock()
	if !sealed {
		return index, times, nil
	}
	if x := s.cached.Load(); x != nil {
		return x.offsets, x.times, nil
	}
	x, err := c.load(s, size, end)
	if err != nil {
		return nil, nil, err
	}
	c.put(x)
	return x.offsets, x.times, nil
}

// put keeps a segment's indexes until there are too many bytes or the segment goes.
func (c *indexCache) put(x *loadedIndex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.segment.retired {
		return // a reader that has it still
	}
	x.segment.cached.Store(x)
	c.fifo = append(c.fifo, x)
	c.bytes += len(x.offsets) + len(x.times)
	for c.bytes > indexCacheBytes && len(c.fifo) > 1 {
		old := c.fifo[0]
		old.segment.cached.CompareAndSwap(old, nil)
		c.bytes -= len(old.offsets) + len(old.times)
		c.fifo[0], c.fifo = nil, c.fifo[1:]
	}
}

// forget gives up what is kept of a segment that is no longer part of a log.
func (c *indexCache) forget(s *segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.retired = true
	x := s.cached.Swap(nil)
	if x == nil {
		return
	}
	if i := slices.Index(c.fifo, x); i >= 0 {
		c.fifo = slices.Delete(c.fifo, i, i+1)
		c.bytes -= len(x.offsets) + len(x.times)
	}
}

// load reads the index files. If they are missing or make no sense, an index
// made from the batch headers takes their place in memory.
func (c *indexCache) load(s *segment, size, end int64) (*loadedIndex, error) {
	offsets, err1 := c.fs.ReadFile(s.stem + indexSuffix)
	times, err2 := c.fs.ReadFile(s.stem + timeSuffix)
	x := &loadedIndex{segment: s, offsets: offsets, times: times}
	replaced := s.gone.Load() // then those may be the files of the segment in its place
	if !replaced && err1 == nil && err2 == nil && x.offsets.sane(size) && x.times.sane(end-s.base) {
		return x, nil
	}
	for _, err := range [...]error{err1, err2} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	f, err := c.handles.acquire(&s.file)
	if err != nil {
		return nil, err
	}
	defer c.handles.release(&s.file)
	sc := newScan(f, size)
	defer sc.close()
	twin := &segment{base: s.base, end: s.base, maxTimestamp: noTimestamp, maxOffset: s.base}
	for pos := int64(0); pos < size; {
		h, err := sc.header(pos)
		if err != nil {
			return nil, err
		}
		twin.add(&h, int64(h.Size()), scanChunk, s.modified)
		pos += int64(h.Size())
	}
	x.offsets, x.times = twin.index, twin.times.add(twin.maxTimestamp, twin.maxOffset-twin.base)
	return x, nil
}
