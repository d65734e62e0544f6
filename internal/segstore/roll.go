package segstore

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// A roll must not show in the time of an append. What it needs is made before,
// what it leaves is saved after, by the tenders: two goroutines of the store.
//
//	half full     an empty file for the next segment is made: spareFile
//	roll          the spare gets its name; nothing else is done under the log's lock
//	afterwards    indexes and producer snapshot of the sealed segment are written
//
// A spare that a crash leaves is removed by recovery, as every .tmp file. The
// name that a roll gives is durable with the flush that makes the first batch
// under it durable.

// spareFile is the empty file that will be the log's next segment; a tender
// makes it. hastyFile is the same where a roll finds none. They differ, because
// the two may be made at the same time.
const (
	spareFile = "next.tmp"
	hastyFile = "roll.tmp"
)

// tendStep is how many bytes a log grows between two visits of a tender, and so
// the most that a relaxed log leaves to the kernel before it asks it to write.
const tendStep = 8 << 20

// tendLocked has a tender come and says when the next one is to. The caller holds mu.
func (l *Log) tendLocked(seg *segment, cfg *LogConfig) {
	l.tendAt = seg.size + tendStepOf(cfg)
	l.store.tenders.mark(&l.tendTurn)
}

func tendStepOf(cfg *LogConfig) int64 { return max(1, min(tendStep, cfg.SegmentBytes/2)) }

// rollLocked begins a new segment at base. The old one's indexes and a producer
// snapshot stay in memory until a tender has written them, not synced: until
// the housekeeper has done that, the recovery point stays below them.
func (l *Log) rollLocked(base int64, cfg *LogConfig, now time.Time) error {
	old := l.segments[len(l.segments)-1]
	snapshot := encodeSnapshot(l.producers.byID)
	seg, f, err := l.nextLocked(base, cfg, now)
	if err != nil {
		return err
	}
	seg.snapshot = snapshot
	wasOpen := l.writer != nil
	l.writer = f
	l.tendAt = tendStepOf(cfg)
	l.pos.Lock()
	if wasOpen {
		l.pinned = append(l.pinned, old)
	}
	l.segments = append(l.segments[:len(l.segments):len(l.segments)], seg)
	l.namesDirty = true
	l.recent.clear()
	l.pos.Unlock()
	l.store.flusher.mark(l)
	l.store.tenders.mark(&l.tendTurn)
	return nil
}

// nextLocked gives the empty segment that begins at base, its file acquired
// once. It gets its name last: a file with the name of a segment that is not
// part of the log, while the log goes on behind it, would end the log at the
// next start.
func (l *Log) nextLocked(base int64, cfg *LogConfig, now time.Time) (*segment, vfs.File, error) {
	prepared := l.spare != nil
	seg, f, err := l.takeSpareLocked()
	if err != nil {
		return nil, nil, err
	}
	path := segmentFile(l.dir, base, logSuffix)
	if err := l.store.fs.Rename(seg.file.path, path); err != nil {
		l.store.handles.release(&seg.file)
		l.dropSpareLocked()
		if prepared && errors.Is(err, fs.ErrNotExist) { // somebody has removed it
			return l.nextLocked(base, cfg, now)
		}
		return nil, nil, err
	}
	l.store.handles.rename(&seg.file, path)
	seg.begin(l.dir, base, now, cfg.SegmentJitter)
	l.spare = nil
	return seg, f, nil
}

// takeSpareLocked opens the spare, which stays the log's until it is renamed,
// and makes it where there is none.
func (l *Log) takeSpareLocked() (*segment, vfs.File, error) {
	if seg := l.spare; seg != nil {
		if f, err := l.store.handles.acquire(&seg.file); !errors.Is(err, fs.ErrNotExist) {
			return seg, f, err
		}
		l.dropSpareLocked()
	}
	seg, f, err := l.makeSpare(hastyFile)
	if err != nil {
		return nil, nil, err
	}
	l.spare = seg
	return seg, f, nil
}

// makeSpare makes the file of a segment that has no place yet, acquired once.
func (l *Log) makeSpare(name string) (*segment, vfs.File, error) {
	seg := &segment{file: handle{path: filepath.Join(l.dir, name)}}
	f, err := l.createSegment(seg)
	if err != nil {
		return nil, nil, err
	}
	l.store.handles.adopt(&seg.file, f)
	return seg, f, nil
}

// createSegment makes the empty file of a segment, cutting what an earlier
// attempt may have left. Its name is durable after the next flush.
func (l *Log) createSegment(seg *segment) (vfs.File, error) {
	f, err := l.store.fs.OpenReadWrite(seg.file.path, true)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// dropSpareLocked forgets the spare; its file stays for recovery to remove, or
// to be made anew. The caller holds mu.
func (l *Log) dropSpareLocked() {
	if l.spare != nil {
		l.store.handles.drop(&l.spare.file)
		l.spare = nil
	}
}

// tend does for a log what its appends leave to do. An error of the files beside
// the records is no matter of the log: a roll makes what is missing, and the
// housekeeper saves what is unsaved.
func (l *Log) tend() {
	if l.store.durability == Relaxed {
		if err := l.writeBack(); err != nil {
			_ = l.ioError("write back", err)
			l.tell()
		}
	}
	l.saveNow()
	if err := l.prepare(); err != nil {
		l.store.faults.note("prepare the next segment", l, err)
	}
}

// saveNow seals what rolls have left unsaved, without a sync.
func (l *Log) saveNow() {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	if l.writable() != nil {
		return
	}
	if err := l.saveRolled(); err != nil {
		l.store.faults.note("save indexes", l, err)
	}
}

// prepare makes the file of the next segment once the active one is half full.
func (l *Log) prepare() error {
	l.tidyMu.Lock() // so that the directory stays where it is
	defer l.tidyMu.Unlock()
	if l.writable() != nil {
		return nil
	}
	l.mu.Lock()
	active := l.segments[len(l.segments)-1]
	size, _ := active.shape()
	need := l.spare == nil && size >= l.cfg.Load().SegmentBytes/2
	l.mu.Unlock()
	if !need {
		return nil
	}
	seg, _, err := l.makeSpare(spareFile)
	if err != nil {
		return err
	}
	l.store.handles.release(&seg.file)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropSpareLocked() // of a roll that failed meanwhile
	l.spare = seg
	return nil
}

// saveRolled writes indexes and snapshots of the segments that rolls have left
// unsaved, the oldest first; nothing is durable. The caller holds tidyMu.
func (l *Log) saveRolled() error {
	write := func(path string, data []byte) error { return l.store.fs.WriteFile(path, data, 0o644) }
	segs := l.list()
	first := len(segs) - 1
	for first > 0 && !segs[first-1].isSealed() {
		first--
	}
	if err := segs[first].saveSnapshot(write); err != nil {
		return err
	}
	for i := first; i < len(segs)-1; i++ {
		if err := segs[i+1].saveSnapshot(write); err != nil {
			return err
		}
		if err := segs[i].save(write); err != nil {
			return err
		}
		segs[i].seal()
	}
	return nil
}

// written is up to where the kernel was asked to write a log.
type written struct {
	seg *segment
	to  int64
}

// writeBack asks the kernel to start writing what was appended since the last
// call, so that a relaxed log's dirty pages do not pile up until a flush, or
// the kernel itself, has to write them all. It makes nothing durable. Only the
// log's tender calls it.
func (l *Log) writeBack() error {
	segs := l.list()
	i := slices.Index(segs, l.asked.seg)
	if i < 0 {
		i = len(segs) - 1
	}
	for ; i < len(segs); i++ {
		if segs[i] != l.asked.seg {
			l.asked = written{seg: segs[i]}
		}
		size, _ := segs[i].shape()
		if size == l.asked.to {
			continue
		}
		f, err := l.store.handles.acquire(&segs[i].file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		} else if err != nil {
			return err
		}
		err = f.WriteBack(l.asked.to, size-l.asked.to)
		l.store.handles.release(&segs[i].file)
		if err != nil {
			return err
		}
		l.asked.to = size
	}
	return nil
}
