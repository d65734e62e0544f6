package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

const (
	// standbyLook is how often a standby looks at the lease, standbyTry how often at a lock on its own machine.
	standbyLook = 200 * time.Millisecond
	standbyTry  = 100 * time.Millisecond
)

// awaitLease comes before a start touches the logs. Another process that holds the lease lives, or has just died; one that
// had this lock is dead. A dead one's lease runs out by itself, so where the log directory is the registered one, its end is
// waited for; one that is renewed meanwhile is another broker's, and so is one with another directory.
func (b *Broker) awaitLease(ctx context.Context, directory meta.UUID) error {
	h, err := b.store.Holder(ctx, b.nodeID)
	if err != nil || !h.Running || meta.SameLock(h.Process, b.process) {
		return err
	}
	if meta.SameDirs(h.LogDirs, []meta.UUID{directory}) {
		b.log.Info("the last process of this broker held its lock on another machine, or on a copy of the directory: waiting for its lease to end", "remaining", h.Remaining.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(h.Remaining + time.Millisecond):
		}
		if h, err = b.store.Holder(ctx, b.nodeID); err != nil || !h.Running {
			return err
		}
	}
	return b.leaseRunning(&meta.LeaseRunningError{BrokerID: b.nodeID, Remaining: h.Remaining, Endpoints: h.Endpoints})
}

// StandbyOptions of a Standby.
type StandbyOptions struct {
	NodeID int32
	Dir    string // the log directory, which may come later
	// Holder reads whose the broker id is; Incarnation 0 also where there are no tables yet.
	Holder func(ctx context.Context) (meta.Holder, error)
	// Directory is the id of the log directory that is there now, "" none.
	Directory func() (id string, err error)
	// Lock names the lock of that directory, see Options.LockID; "" unknown.
	Lock func() string
	// AnyDirectory takes over with whatever directory there is.
	AnyDirectory bool
	// Open opens the directory with its lock: segstore.ErrDirInUse if another process has it.
	Open func() error
	Log  *slog.Logger
}

// Standby waits until this process may register as the broker: the process that was it has given its lease back, or is dead
// since its lock is free, or its lease has run out by the database's clock; and the log directory is there.
type Standby struct {
	opts  StandbyOptions
	state atomic.Pointer[standbyState]
	// The holder as it was seen without a change and without a gap since quiet.
	seen  sight
	quiet time.Time
}

// standbyState is what a standby waits for: kind changes rarely, text may with each look.
type standbyState struct{ kind, text string }

// sight is what changes when the holder lives, or when another server is asked.
type sight struct {
	incarnation, beat int64
	server            string
}

// NewStandby makes one that waits.
func NewStandby(o StandbyOptions) *Standby {
	s := &Standby{opts: o}
	s.state.Store(&standbyState{"start", "starting"})
	return s
}

// Waiting says what is waited for, nil once Wait has returned.
func (s *Standby) Waiting() error {
	if st := s.state.Load(); st != nil {
		return errors.New(st.text)
	}
	return nil
}

// Wait returns nil when the directory is open and the broker may start, and the context's error when that ends.
func (s *Standby) Wait(ctx context.Context) error {
	for {
		began := time.Now()
		h, err := s.opts.Holder(ctx)
		pause := standbyLook
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, meta.ErrUnavailable):
			s.quiet = time.Time{}
			s.note("postgres", "waiting for Postgres, which does not answer")
		case err != nil:
			return err
		default:
			s.watch(h, began)
			st, wait, err := s.judge(h)
			if err != nil {
				return err
			}
			if st == nil {
				s.state.Store(nil)
				s.opts.Log.Info("standby: taking over", "broker", s.opts.NodeID)
				return nil
			}
			s.note(st.kind, st.text)
			pause = min(pause, max(wait, time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// watch notes since when the holder has been silent. The look began at a moment.
func (s *Standby) watch(h meta.Holder, began time.Time) {
	if now := (sight{h.Incarnation, h.Beat, h.ServerMark}); s.quiet.IsZero() || now != s.seen {
		s.seen, s.quiet = now, began
	}
}

// judge says what there is to wait for, and how long at least; nil when the directory has been opened.
func (s *Standby) judge(h meta.Holder) (st *standbyState, wait time.Duration, err error) {
	lock := h.Incarnation != 0 && meta.SameLock(h.Process, meta.NewProcessID(s.opts.Lock())) // then it decides: the holder is dead if it is free
	if h.Running && !lock {
		return s.held(h), h.Remaining, nil
	}
	if h.Incarnation != 0 {
		if st := s.directory(h); st != nil {
			return st, standbyLook, nil
		}
		// The database may have forgotten the last renewals (a standby that lacks them was promoted), or the holder may not have
		// been able to reach it: it gets a whole lease to be heard of.
		if left := h.Lease - time.Since(s.quiet); left > 0 && !lock && !h.Stopped {
			return &standbyState{"silence", fmt.Sprintf("the lease of broker %d has ended; it has as long again to renew since it was first seen like this", s.opts.NodeID)}, left, nil
		}
	}
	err = s.opts.Open()
	if !errors.Is(err, segstore.ErrDirInUse) {
		return nil, 0, err
	}
	if h.Running {
		return s.held(h), standbyTry, nil
	}
	return &standbyState{"lock", fmt.Sprintf("%s is locked by a process of this machine that does not renew the lease of broker %d: it hangs, is stopped or is another standby", s.opts.Dir, s.opts.NodeID)}, standbyTry, nil
}

func (s *Standby) held(h meta.Holder) *standbyState {
	return &standbyState{"lease", fmt.Sprintf("broker %d at %s holds the lease until %s", s.opts.NodeID, addresses(h.Endpoints), h.Until.UTC().Format("15:04:05.000Z"))}
}

// directory says whether the log directory is the holder's.
func (s *Standby) directory(h meta.Holder) *standbyState {
	id, err := s.opts.Directory()
	switch {
	case err != nil:
		return &standbyState{"directory", fmt.Sprintf("waiting for the log directory: %v", err)}
	case s.opts.AnyDirectory:
		return nil
	case id == "":
		return &standbyState{"directory", fmt.Sprintf("waiting for the log directory: %s has no meta.properties, so its volume is not there", s.opts.Dir)}
	}
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || !slices.ContainsFunc(h.LogDirs, func(d meta.UUID) bool { return slices.Equal(d[:], raw) }) {
		return &standbyState{"directory", fmt.Sprintf("waiting for the log directory: %s is not the one of broker %d", s.opts.Dir, s.opts.NodeID)}
	}
	return nil
}

// note keeps the state, and logs it when it is another one.
func (s *Standby) note(kind, text string) {
	if last := s.state.Swap(&standbyState{kind, text}); last == nil || last.kind != kind {
		s.opts.Log.Info("standby: "+text, "state", kind)
	}
}

func addresses(ends []meta.Endpoint) string {
	var at []string
	for _, e := range ends {
		at = append(at, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	}
	return strings.Join(at, ",")
}
