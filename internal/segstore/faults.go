package segstore

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// FaultKind sorts errors of the disk for the log and for metrics.
type FaultKind string

// The kinds of faults.
const (
	FaultFull     FaultKind = "full"     // no space, or no quota: passes
	FaultHandles  FaultKind = "handles"  // no descriptor left: passes
	FaultReadOnly FaultKind = "readonly" // the file system takes no writes: final for the log
	FaultIO       FaultKind = "io"       // everything else; of a write final for the log, of a read not
)

// FaultKinds lists all kinds.
var FaultKinds = []FaultKind{FaultFull, FaultHandles, FaultReadOnly, FaultIO}

func faultKind(err error) FaultKind {
	switch {
	case isFull(err):
		return FaultFull
	case isShort(err):
		return FaultHandles
	case errors.Is(err, syscall.EROFS):
		return FaultReadOnly
	}
	return FaultIO
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isShort says that the process, or the machine, has no descriptor left.
func isShort(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// faultQuiet is how long a kind of fault stays silent after its line in the log.
const faultQuiet = time.Minute

// faults tells of errors of the disk: the observer counts each, the log has one
// line a minute for each kind and operation, however many requests meet it.
type faults struct {
	store *Store

	mu    sync.Mutex // guards said
	said  map[fault]time.Time
	quiet map[fault]int // met since the line
}

type fault struct {
	op   string
	kind FaultKind
}

func newFaults(s *Store) *faults {
	return &faults{store: s, said: map[fault]time.Time{}, quiet: map[fault]int{}}
}

// note reports one fault met by op on a log.
func (f *faults) note(op string, l *Log, err error) {
	kind := faultKind(err)
	if o := f.store.observer; o != nil {
		o.DiskFault(kind)
	}
	key, now := fault{op, kind}, time.Now()
	f.mu.Lock()
	if now.Sub(f.said[key]) < faultQuiet {
		f.quiet[key]++
		f.mu.Unlock()
		return
	}
	more := f.quiet[key]
	f.said[key], f.quiet[key] = now, 0
	f.mu.Unlock()
	f.store.log.Error("disk error", "op", op, "kind", string(kind), "topic", l.topic, "partition", l.partition, "err", err, "more_before", more)
}
