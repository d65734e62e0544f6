package segstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// SpaceOptions are the alarm levels of the file system under the log
// directory, in percent of its use as df counts it. 0 turns a level off.
type SpaceOptions struct {
	WarnPercent int // log.disk.usage.warn.percent: one line in the log
	StopPercent int // log.disk.usage.stop.percent: appends are refused
}

const (
	// spaceEvery is how often the watcher looks at the file system.
	spaceEvery = time.Second
	// spaceFloor is the least that is kept free, whatever the percentage says:
	// markers, indexes and snapshots of all logs and the files at the top have to
	// fit. A small file system keeps a tenth.
	spaceFloor = 64 << 20
)

// Space is the file system of a store as last looked at. Sizes are bytes.
type Space struct {
	Total, Free int64 // what this process may use, and what is left of it
	Reserve     int64 // Free below it refuses appends
	Full        bool  // appends are refused
	Refused     int64 // appends refused since the start, for lack of space
}

// space keeps appends out of the reserve, which is for what must go on when
// the disk is full: markers, indexes, checkpoints, the next start. A look each
// second finds out what is free; in between appends count down what they may
// write, so that the reserve holds at any rate of writing.
type space struct {
	store   *Store
	left    atomic.Int64 // bytes that appends may write before the next look
	full    atomic.Bool  // appends are refused until a look finds clearly more than the reserve
	refused atomic.Int64
	wake    chan struct{} // holds one token when an append was refused
	last    atomic.Pointer[Space]
	err     error // what take returns when the reserve is reached

	stopping atomic.Bool // a look has found the disk full: no need for another one at each refusal

	looking                 sync.Mutex // one look at a time; guards the fields below
	warned, blind, vanished bool
}

func newSpace(s *Store) *space {
	sp := &space{store: s, wake: make(chan struct{}, 1), err: fmt.Errorf("%w: what is free is the reserve of log.disk.usage.stop.percent", ErrFull)}
	sp.left.Store(math.MaxInt64)
	sp.last.Store(&Space{})
	return sp
}

// take asks whether n more bytes may be written; ErrFull if they would go into
// the reserve.
func (sp *space) take(n int) error {
	if sp.left.Add(-int64(n)) >= 0 {
		return nil
	}
	sp.left.Add(int64(n))
	sp.full.Store(true)
	sp.refuse()
	return sp.err
}

// refuse counts an append refused for lack of space and has a look taken.
func (sp *space) refuse() {
	if sp.refused.Add(1); !sp.stopping.Load() {
		select {
		case sp.wake <- struct{}{}:
		default:
		}
	}
}

// fits says whether compaction may write n bytes, half of the reserve included:
// it gives back more than it takes.
func (sp *space) fits(n int64) error {
	if last := sp.last.Load(); last.Reserve > 0 && last.Free-n < last.Reserve/2 {
		return fmt.Errorf("%w: %d bytes are free, %d are to be rewritten", ErrFull, last.Free, n)
	}
	return nil
}

// run looks at the file system until ctx ends.
func (sp *space) run(ctx context.Context) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-sp.wake:
		}
		sp.look()
	}
}

// look measures what is free and says whether appends go on.
func (sp *space) look() {
	sp.looking.Lock()
	defer sp.looking.Unlock()
	s := sp.store
	if err := s.present(); err != nil {
		if !sp.vanished {
			sp.vanished = true
			s.log.Error("every log is failed", "err", err)
		}
		for _, l := range s.Logs() {
			l.fail(err)
			l.tell()
		}
		return
	}
	total, free, err := s.fs.Usage(s.dir)
	if err != nil {
		if !sp.blind {
			s.log.Error("the space of the log directory cannot be read", "dir", s.dir, "err", err)
		}
		sp.blind = true
		return // as it was
	}
	sp.blind = false
	reserve := reserveOf(total, s.opts.Space.StopPercent)
	resume := max(1, reserve+reserve/5)
	full := free < max(1, reserve) || sp.full.Load() && free < resume
	sp.full.Store(full)
	switch {
	case reserve == 0: // only a write can find out
		sp.left.Store(math.MaxInt64)
	case full:
		sp.left.Store(math.MinInt64 / 2)
	default:
		sp.left.Store(free - reserve)
	}
	sp.last.Store(&Space{Total: total, Free: free, Reserve: reserve})
	sp.report(full, resume)
}

// reserveOf is how many bytes of total stay free for what is no append.
func reserveOf(total int64, stopPercent int) int64 {
	if stopPercent <= 0 || stopPercent >= 100 {
		return 0
	}
	return max(total/100*int64(100-stopPercent), min(spaceFloor, total/10))
}

// report writes one line for each level that is crossed.
func (sp *space) report(full bool, resume int64) {
	last := sp.last.Load()
	log := sp.store.log.With("dir", sp.store.dir, "total", last.Total, "free", last.Free)
	switch was := sp.stopping.Swap(full); {
	case full && !was:
		log.Error("disk is full: appends are refused, reads and deletion go on", "reserve", last.Reserve, "resumes_at", resume)
	case !full && was:
		log.Info("disk has space again: appends are accepted", "refused_so_far", sp.refused.Load())
	}
	used := 0.0
	if last.Total > 0 {
		used = 100 * float64(last.Total-last.Free) / float64(last.Total)
	}
	level := float64(sp.store.opts.Space.WarnPercent)
	switch {
	case level <= 0:
	case used >= level && !sp.warned:
		sp.warned = true
		log.Warn("disk is filling up", "used_percent", math.Round(used), "warn_percent", level)
	case used < level-1 && sp.warned:
		sp.warned = false
		log.Info("disk is below the warning level again", "used_percent", math.Round(used))
	}
}

// Space is what the last look at the file system found, at most a second ago.
// It asks nobody.
func (s *Store) Space() Space {
	sp := *s.space.last.Load()
	sp.Full, sp.Refused = s.space.full.Load(), s.space.refused.Load()
	return sp
}

// present says whether the directory is still the one that was opened: bytes
// written to files that lost their names, or lie under another mount, would be
// gone after the next start.
func (s *Store) present() error {
	for _, name := range [...]string{lockFile, metaFile} {
		if _, err := s.fs.Stat(filepath.Join(s.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("%w: the log directory %s has vanished", ErrStorage, s.dir)
}
