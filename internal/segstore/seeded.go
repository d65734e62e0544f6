package segstore

import (
	"time"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// loadLater is seededbug.ServeBeforeRecovery: the log is empty for everyone until its recovery has run.
func (l *Log) loadLater() {
	l.segments = []*segment{newSegment(l.dir, 0, l.store.now(), 0)}
	time.AfterFunc(seededbug.Late, func() {
		r := l.newRecovery(0, 0)
		term := l.LastTerm()
		_ = l.rebuild(func() error { return l.adoptLocked(r, r.run) })
		_, _ = l.BeginTerm(term)
		l.tell()
	})
}
