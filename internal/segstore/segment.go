package segstore

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// Suffixes of a segment's files; the name is the base offset in 20 digits.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	abortedSuffix  = ".txnindex"
	snapshotSuffix = ".snapshot"
	deletedSuffix  = ".deleted"
)

func segmentFile(dir string, base int64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", base, suffix))
}

// parseSegmentFile splits the name of one of a segment's files.
func parseSegmentFile(name string) (base int64, suffix string, ok bool) {
	digits, rest, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, "." + rest, err == nil
}

// segment is one file of a log with its indexes. The last segment of a log is
// active: its indexes are in memory and grow. A sealed one has them on disk
// and loads them when they are asked for.
type segment struct {
	base   int64
	stem   string // of its files' names: they stand until the segment is deleted
	file   handle
	jitter time.Duration // taken off segment.ms

	mu           sync.RWMutex // guards the fields below; innermost lock
	size         int64        // bytes of whole batches
	end          int64        // offset after the last one
	index        offsetIndex  // active only
	times        timeIndex    // active only
	snapshot     []byte       // producer state before base, if its file is not written yet
	aborted      []abortedTxn // active, or its file has no name yet
	hasAborted   bool         // there is, or will be, a .txnindex
	sealed       bool
	synced       bool  // sealed, and its indexes are durable
	unindexed    int64 // bytes since the last index entry
	maxTimestamp int64
	maxOffset    int64 // last offset of the first batch with maxTimestamp
	firstTime    int64 // largest timestamp of the first batch: from it segment.ms counts
	created      time.Time
	modified     time.Time // of the last write: age of a segment without timestamps

	cached atomic.Pointer[loadedIndex] // sealed only; see indexCache
	gone   atomic.Bool                 // replaced: files of its name may be those of another segment

	retired bool // no longer part of a log; guarded by indexCache
}

func newSegment(dir string, base int64, now time.Time, jitter time.Duration) *segment {
	s := &segment{file: handle{path: segmentFile(dir, base, logSuffix)}}
	s.begin(dir, base, now, jitter)
	return s
}

// begin makes an empty segment one that starts at base. Nobody else uses it yet.
func (s *segment) begin(dir string, base int64, now time.Time, jitter time.Duration) {
	s.base, s.end, s.stem = base, base, segmentFile(dir, base, "")
	s.maxTimestamp, s.maxOffset, s.firstTime = noTimestamp, base, noTimestamp
	s.created, s.modified = now, now
	if jitter > 0 {
		s.jitter = rand.N(jitter)
	}
}

// add takes a batch written at the end of the active segment into the books.
func (s *segment) add(h *BatchHeader, size int64, interval int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		s.firstTime = h.MaxTimestamp
	}
	if h.MaxTimestamp > s.maxTimestamp && h.Records > 0 { // compaction leaves headers without records
		s.maxTimestamp, s.maxOffset = h.MaxTimestamp, h.LastOffset()
	}
	if s.unindexed > interval {
		s.index = s.index.add(h.LastOffset()-s.base, s.size)
		s.times = s.times.add(s.maxTimestamp, s.maxOffset-s.base)
		s.unindexed = 0
	}
	s.unindexed += size
	s.size += size
	s.end = h.LastOffset() + 1
	s.modified = now
}

func (s *segment) addAborted(t abortedTxn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = append(s.aborted, t)
	s.hasAborted = true
}

// full says whether a batch must go to a new segment (Kafka's
// LogSegment.shouldRoll).
func (s *segment) full(h *BatchHeader, size int64, lastOffset int64, cfg *LogConfig, now time.Time) bool {
	if s.size == 0 {
		return lastOffset-s.base > math.MaxInt32
	}
	waited := now.Sub(s.created)
	if s.firstTime >= 0 {
		waited = msBetween(s.firstTime, h.MaxTimestamp)
	}
	return s.size+size > min(cfg.SegmentBytes, math.MaxInt32) ||
		waited > cfg.rollAge()-s.jitter ||
		int64(len(s.index)+offsetEntrySize) > cfg.IndexBytes ||
		int64(len(s.times)+2*timeEntrySize) > cfg.IndexBytes ||
		lastOffset-s.base > math.MaxInt32
}

// msBetween is to-from in milliseconds as a duration, without overflow.
func msBetween(from, to int64) time.Duration {
	d := to - from
	if d > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	if d < math.MinInt64/int64(time.Millisecond) {
		return math.MinInt64
	}
	return time.Duration(d) * time.Millisecond
}

// shape is what readers need to know of a segment.
func (s *segment) shape() (size, end int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size, s.end
}

// newest is the largest timestamp, or the time of the last write if no record
// has one (Kafka's LogSegment.largestTimestamp).
func (s *segment) newest() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.maxTimestamp >= 0 {
		return s.maxTimestamp
	}
	return s.modified.UnixMilli()
}

// abortedIn lists the aborted transactions whose marker is in this segment.
func (s *segment) abortedIn(fsys vfs.FS) ([]abortedTxn, error) {
	s.mu.RLock()
	list, sealed, has := s.aborted, s.sealed, s.hasAborted
	s.mu.RUnlock()
	if !sealed || !has || list != nil {
		return list, nil
	}
	data, err := fsys.ReadFile(s.stem + abortedSuffix)
	if err != nil {
		return nil, err
	}
	return decodeAborted(data, s.base)
}

// save writes the in-memory indexes to their files; nothing is durable.
func (s *segment) save(write fileWriter) error {
	s.mu.Lock()
	s.times = s.times.add(s.maxTimestamp, s.maxOffset-s.base)
	index, times, aborted := s.index, s.times, s.aborted
	s.mu.Unlock()
	if err := write(s.stem+indexSuffix, index); err != nil {
		return err
	}
	if err := write(s.stem+timeSuffix, times); err != nil {
		return err
	}
	if len(aborted) > 0 {
		return write(s.stem+abortedSuffix, encodeAborted(aborted))
	}
	return nil
}

// fileWriter writes a whole file.
type fileWriter func(path string, data []byte) error

// saveSnapshot writes the producer snapshot before the segment, if that was left to do.
func (s *segment) saveSnapshot(write fileWriter) error {
	s.mu.RLock()
	data := s.snapshot
	s.mu.RUnlock()
	if data == nil {
		return nil
	}
	if err := write(s.stem+snapshotSuffix, data); err != nil {
		return err
	}
	s.mu.Lock()
	s.snapshot = nil
	s.mu.Unlock()
	return nil
}

func (s *segment) isSealed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sealed
}

// seal ends the active life of a segment whose indexes are saved.
func (s *segment) seal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
	s.index, s.times, s.aborted = nil, nil, nil
}

// segmentsFrom is the part of a sorted list that begins with the segment which
// holds offset.
func segmentsFrom(list []*segment, offset int64) []*segment {
	i, found := slices.BinarySearchFunc(list, offset, func(s *segment, off int64) int { return cmp.Compare(s.base, off) })
	if !found {
		i = max(0, i-1)
	}
	return list[i:]
}
