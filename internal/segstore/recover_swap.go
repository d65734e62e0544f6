package segstore

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
)

// leftover is a file with .cleaned or .swap.
type leftover struct {
	base int64
	path string
}

// finishSwaps ends a compaction, ours or Kafka's, that a stop cut short
// (Kafka's LogLoader): files still .cleaned are undone, with every .swap from
// their base on; what is .swap takes the place of the segments it covers.
func (r *recovery) finishSwaps() error {
	fsys, dir := r.log.store.fs, r.log.dir
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	var cleaned, swaps, segments []leftover
	lowest := int64(math.MaxInt64)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if name, ok := strings.CutSuffix(e.Name(), cleanedSuffix); ok {
			base, _, _ := parseSegmentFile(name)
			lowest = min(lowest, base)
			cleaned = append(cleaned, leftover{base, path})
		} else if name, ok := strings.CutSuffix(e.Name(), swapSuffix); ok {
			base, _, _ := parseSegmentFile(name)
			swaps = append(swaps, leftover{base, path})
		} else if base, _, ok := parseSegmentFile(e.Name()); ok {
			segments = append(segments, leftover{base, path})
		}
	}
	if len(cleaned)+len(swaps) == 0 {
		return nil
	}
	var undo, finish []leftover
	for _, s := range swaps {
		if s.base >= lowest {
			undo = append(undo, s)
		} else {
			finish = append(finish, s)
		}
	}
	r.log.store.log.Warn("a compaction that was cut short is undone or finished", "topic", r.log.topic,
		"partition", r.log.partition, "undone", len(undo)+len(cleaned), "finished", len(finish))
	// The .cleaned say that those .swap do not count, so they go last.
	for _, files := range [...][]leftover{undo, cleaned} {
		if err := r.removeAll(files); err != nil {
			return err
		}
	}
	return r.finishSwap(finish, segments)
}

// removeAll removes files durably.
func (r *recovery) removeAll(files []leftover) error {
	if len(files) == 0 {
		return nil
	}
	for _, f := range files {
		if err := removeIfThere(r.log.store.fs, f.path); err != nil {
			return err
		}
	}
	return r.log.store.fs.SyncDir(r.log.dir)
}

// finishSwap removes the segments that the .swap files cover and then gives
// those their names, the log files last.
func (r *recovery) finishSwap(swaps, segments []leftover) error {
	var covered []leftover
	for _, s := range swaps {
		if !strings.HasSuffix(s.path, logSuffix+swapSuffix) {
			continue
		}
		end, err := r.swapEnd(s)
		if err != nil {
			return err
		}
		for _, old := range segments {
			snapshotBefore := old.base == s.base && strings.HasSuffix(old.path, snapshotSuffix)
			if old.base >= s.base && old.base < end && !snapshotBefore {
				covered = append(covered, old)
			}
		}
	}
	if err := r.removeAll(covered); err != nil {
		return err
	}
	for _, logs := range [...]bool{false, true} {
		for _, s := range swaps {
			if strings.HasSuffix(s.path, logSuffix+swapSuffix) != logs {
				continue
			}
			if err := r.log.store.fs.Rename(s.path, strings.TrimSuffix(s.path, swapSuffix)); err != nil {
				return err
			}
		}
	}
	return r.log.store.fs.SyncDir(r.log.dir)
}

// swapEnd checks the batches of a .swap log file and gives the offset after
// the last one. It was durable before it got that name, so a bad batch is
// corruption; nothing is removed then.
func (r *recovery) swapEnd(s leftover) (int64, error) {
	seg := newSegment(r.log.dir, s.base, r.log.store.now(), 0)
	seg.file.path = s.path
	defer r.log.store.handles.drop(&seg.file)
	info, err := r.log.store.fs.Stat(s.path)
	if err != nil {
		return 0, err
	}
	seg.size = info.Size()
	twin, state := newSegment(r.log.dir, s.base, r.log.store.now(), 0), newProducers()
	good, err := r.readBatches(seg, twin, &state, nil)
	if err != nil {
		return 0, err
	}
	if good != seg.size {
		return 0, fmt.Errorf("%w: at %d of %s", ErrCorrupt, good, s.path)
	}
	return twin.end, nil
}
