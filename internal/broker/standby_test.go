package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// standbyWorld is what a standby sees: a directory, its lock, and whoever holds them.
type standbyWorld struct {
	dir     string // directory.id that is there, "" none
	dirErr  error
	lock    string // of the directory
	openErr error
	opened  int
}

var holdersDir = meta.UUID{0xd1}

func idText(id meta.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func (w *standbyWorld) standby(anyDirectory bool, holder func(context.Context) (meta.Holder, error)) *Standby {
	return NewStandby(StandbyOptions{NodeID: 1, Dir: "/log", Log: slog.New(slog.DiscardHandler), AnyDirectory: anyDirectory, Holder: holder,
		Directory: func() (string, error) { return w.dir, w.dirErr },
		Lock:      func() string { return w.lock },
		Open:      func() error { w.opened++; return w.openErr }})
}

const holdersLease = 3 * time.Second

// holderOf is a process that holds a lock, with so much left of its lease.
func holderOf(lock string, remaining time.Duration, change ...func(*meta.Holder)) meta.Holder {
	h := meta.Holder{Incarnation: 4, Process: meta.NewProcessID(lock), Running: remaining > 0, Remaining: remaining, Lease: holdersLease, LogDirs: []meta.UUID{{7}, holdersDir}}
	for _, f := range change {
		f(&h)
	}
	return h
}

func stopped(h *meta.Holder) { h.Running, h.Stopped = false, true }

// TestStandbyJudges is the table of what a standby makes of what it sees: what it waits for, for how long at least, and
// when it opens the directory. Only a directory that was opened with its lock lets it go on.
func TestStandbyJudges(t *testing.T) {
	broken := errors.New("input/output error")
	here := standbyWorld{dir: idText(holdersDir), lock: "mine"}
	world := func(f func(*standbyWorld)) standbyWorld { w := here; f(&w); return w }
	locked := world(func(w *standbyWorld) { w.openErr = segstore.ErrDirInUse })
	for _, c := range []struct {
		name   string
		world  standbyWorld
		any    bool
		holder meta.Holder
		quiet  time.Duration // since when the holder was seen like this
		kind   string        // "": takes over
		wait   time.Duration
		opened int
		err    error
	}{
		{name: "nobody ever registered", world: standbyWorld{}, opened: 1},
		{name: "nobody ever registered, and another process has the directory", world: standbyWorld{openErr: segstore.ErrDirInUse}, kind: "lock", wait: standbyTry, opened: 1},
		{name: "the directory cannot be opened", world: world(func(w *standbyWorld) { w.openErr = broken }), holder: holderOf("other", -time.Hour), quiet: time.Hour, opened: 1, err: broken},

		{name: "it renews elsewhere", world: here, holder: holderOf("other", 2*time.Second), quiet: time.Hour, kind: "lease", wait: 2 * time.Second},
		{name: "it renews elsewhere, where locks have no names", world: world(func(w *standbyWorld) { w.lock = "" }), holder: holderOf("", 2*time.Second), quiet: time.Hour, kind: "lease", wait: 2 * time.Second},
		{name: "it renews under this lock", world: locked, holder: holderOf("mine", 2*time.Second), kind: "lease", wait: standbyTry, opened: 1},
		{name: "its lease runs, and this lock, which it had, is free", world: here, holder: holderOf("mine", 2*time.Second), opened: 1},
		{name: "its lease has ended under this lock, which it keeps", world: locked, holder: holderOf("mine", -time.Second), quiet: time.Hour, kind: "lock", wait: standbyTry, opened: 1},

		{name: "its lease has ended just now", world: here, holder: holderOf("other", -time.Millisecond), kind: "silence", wait: holdersLease},
		{name: "its lease has ended, and was silent for a part of another", world: here, holder: holderOf("other", -time.Second), quiet: time.Second, kind: "silence", wait: holdersLease - time.Second},
		{name: "it was silent for a whole lease", world: here, holder: holderOf("other", -time.Second), quiet: holdersLease, opened: 1},
		{name: "it was silent for a whole lease, and another standby has the directory", world: locked, holder: holderOf("other", -time.Second), quiet: holdersLease, kind: "lock", wait: standbyTry, opened: 1},
		{name: "it has stopped", world: here, holder: holderOf("other", -time.Millisecond, stopped), opened: 1},
		{name: "it has stopped, with time left", world: here, holder: holderOf("other", time.Second, stopped), opened: 1},

		{name: "the volume is not there", world: world(func(w *standbyWorld) { w.dir = "" }), holder: holderOf("other", -time.Second, stopped), kind: "directory", wait: standbyLook},
		{name: "the volume cannot be read", world: world(func(w *standbyWorld) { w.dirErr = broken }), holder: holderOf("other", -time.Second, stopped), kind: "directory", wait: standbyLook},
		{name: "it is another directory", world: world(func(w *standbyWorld) { w.dir = idText(meta.UUID{9}) }), holder: holderOf("other", -time.Second, stopped), kind: "directory", wait: standbyLook},
		{name: "its id is no id", world: world(func(w *standbyWorld) { w.dir = "%" }), holder: holderOf("other", -time.Second, stopped), kind: "directory", wait: standbyLook},
		{name: "it is another directory under this lock", world: world(func(w *standbyWorld) { w.dir = idText(meta.UUID{9}) }), holder: holderOf("mine", time.Second), kind: "directory", wait: standbyLook},
		{name: "any directory will do", world: world(func(w *standbyWorld) { w.dir = "" }), any: true, holder: holderOf("other", -time.Second, stopped), opened: 1},
		{name: "any directory that can be read", world: world(func(w *standbyWorld) { w.dirErr = broken }), any: true, holder: holderOf("other", -time.Second, stopped), kind: "directory", wait: standbyLook},
		{name: "any directory, but it renews", world: here, any: true, holder: holderOf("other", time.Second), quiet: time.Hour, kind: "lease", wait: time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := c.world
				s := w.standby(c.any, nil)
				s.quiet = time.Now().Add(-c.quiet)
				st, wait, err := s.judge(c.holder)
				kind := ""
				if st != nil {
					kind = st.kind
				}
				if kind != c.kind || wait != c.wait || w.opened != c.opened || !errors.Is(err, c.err) {
					t.Errorf("waits %s for %q (%v), opened %d times, error %v; want %s for %q, opened %d times, error %v", wait, kind, st, w.opened, err, c.wait, c.kind, c.opened, c.err)
				}
				if st != nil && st.text == "" {
					t.Error("it does not say what it waits for")
				}
			})
		})
	}
}

// life is a holder's, by the database's clock: it renews twice a second until it dies.
type life struct {
	began, dies time.Time
	down        [2]time.Time // nobody reaches the database in between
	forgets     time.Time    // from then on another server answers, which lacks the last renewals
}

const renewsEvery = 500 * time.Millisecond

func (l life) seen(context.Context) (meta.Holder, error) {
	now := time.Now()
	if !now.Before(l.down[0]) && now.Before(l.down[1]) {
		return meta.Holder{}, meta.ErrUnavailable
	}
	last := now
	if last.After(l.dies) {
		last = l.dies
	}
	beat := int64(last.Sub(l.began) / renewsEvery)
	h := holderOf("other", 0)
	h.ServerMark = "1/1"
	if !l.forgets.IsZero() && !now.Before(l.forgets) {
		beat, h.ServerMark = max(beat-4, 0), "1/2"
	}
	h.Beat = beat
	h.Until = l.began.Add(time.Duration(beat) * renewsEvery).Add(holdersLease)
	h.Remaining = h.Until.Sub(now)
	h.Running = h.Remaining > 0
	return h, nil
}

// TestStandbyWaitsALeaseOfSilence: the standby goes on when the holder's lease has ended and the holder had a whole lease to
// be heard of, counted anew from an outage of the database and from the first sight of another server.
func TestStandbyWaitsALeaseOfSilence(t *testing.T) {
	second := func(t time.Time, n float64) time.Time { return t.Add(time.Duration(n * float64(time.Second))) }
	for _, c := range []struct {
		name     string
		life     func(began time.Time) life
		from, to float64 // seconds after the beginning, when it must take over
	}{
		{"it dies", func(b time.Time) life { return life{began: b, dies: second(b, 2)} }, 5, 5.3},
		{"the database is away until after the lease", func(b time.Time) life {
			return life{began: b, dies: second(b, 2), down: [2]time.Time{second(b, 3), second(b, 7)}}
		}, 10, 10.3},
		{"a server answers that lacks the last renewals", func(b time.Time) life { return life{began: b, dies: second(b, 4), forgets: second(b, 4.1)} }, 7, 7.4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := standbyWorld{dir: idText(holdersDir), lock: "mine"}
				began := time.Now()
				s := w.standby(false, c.life(began).seen)
				if err := s.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if after := time.Since(began).Seconds(); after < c.from || after > c.to || w.opened != 1 {
					t.Errorf("took over after %.2f s with %d looks at the lock, want %.1f to %.1f s and one", after, w.opened, c.from, c.to)
				}
				if s.Waiting() != nil {
					t.Error("it says that it still waits")
				}
			})
		})
	}
}

// TestStandbyNeverPassesAHolderThatRenews: however long it waits, and whatever outages there are.
func TestStandbyNeverPassesAHolderThatRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := standbyWorld{dir: idText(holdersDir), lock: "mine"}
		began := time.Now()
		l := life{began: began, dies: began.Add(time.Hour), down: [2]time.Time{began.Add(time.Second), began.Add(20 * time.Second)}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		s := w.standby(false, l.seen)
		if err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || w.opened != 0 {
			t.Errorf("it ended with %v and opened the directory %d times", err, w.opened)
		}
		if s.Waiting() == nil {
			t.Error("it does not say what it waited for")
		}
	})
}
