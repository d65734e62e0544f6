package coordinator

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// LeaseOptions configure a Lease.
type LeaseOptions struct {
	Lease time.Duration // broker.session.timeout.ms: how long the database waits for a renewal
	Every time.Duration // broker.heartbeat.interval.ms
	// Shared is true where another broker can lead what this one leads; then only trust counts.
	Shared bool
}

// Lease says whether this process may still answer for what it leads. The database's clock decides when the lease
// expires; here, by the monotonic clock, trust ends earlier: Lease minus a margin after a renewal was sent.
//
// Where no other broker can lead, a broker that cannot reach Postgres goes on: once a renewal that was sent after
// trust had ended has come back without "fenced", it may answer for as long as such a renewal would have given it.
// A process that was stopped wakes up without either and must ask first.
type Lease struct {
	opts  LeaseOptions
	until atomic.Int64 // unix-like nanoseconds since start: may answer before; fencedForever after Fenced

	start time.Time // has the monotonic clock

	mu      sync.Mutex
	trust   time.Duration // since start, when trust ends
	changed chan struct{} // closed at each change
	parked  []func(bool)
}

const fencedForever = math.MinInt64

// NewLease makes a lease that has not been won.
func NewLease(o LeaseOptions) *Lease {
	return &Lease{opts: o, start: time.Now(), changed: make(chan struct{})}
}

func (l *Lease) margin() time.Duration { return 100*time.Millisecond + l.opts.Lease/1000 }

// worth is how long a renewal that was sent at a moment counts from then on.
func (l *Lease) worth() time.Duration { return l.opts.Lease - l.margin() }

// MayAnswer is asked before each reply.
func (l *Lease) MayAnswer() bool { return int64(time.Since(l.start)) < l.until.Load() }

// Trusted says whether Postgres has confirmed the lease lately.
func (l *Lease) Trusted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until.Load() != fencedForever && time.Since(l.start) < l.trust
}

// Renewed notes a renewal that succeeded and was sent at sentAt.
func (l *Lease) Renewed(sentAt time.Time) {
	l.change(func() {
		l.trust = max(l.trust, sentAt.Sub(l.start)+l.worth())
		l.extendLocked(l.trust)
	})
}

// Failed notes a renewal that did not reach Postgres, or whose answer did not come back.
func (l *Lease) Failed(sentAt time.Time) {
	l.change(func() {
		sent := sentAt.Sub(l.start)
		if l.opts.Shared || sent < l.trust || l.trust == 0 {
			return
		}
		l.extendLocked(sent + l.worth())
	})
}

// Fenced ends it for good.
func (l *Lease) Fenced() { l.change(func() { l.until.Store(fencedForever) }) }

func (l *Lease) extendLocked(until time.Duration) {
	if now := l.until.Load(); now != fencedForever && int64(until) > now {
		l.until.Store(int64(until))
	}
}

func (l *Lease) change(f func()) {
	l.mu.Lock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
	var release []func(bool)
	may := l.MayAnswer()
	if may || l.until.Load() == fencedForever {
		release, l.parked = l.parked, nil
	}
	l.mu.Unlock()
	for _, f := range release {
		f(may)
	}
}

// Changed is closed at the next change.
func (l *Lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// WhenMayAnswer calls f once: at once if an answer is allowed now, otherwise as soon as that is known, with false if
// this process is fenced. f must not block; it may run on the goroutine that renews.
func (l *Lease) WhenMayAnswer(f func(may bool)) {
	if l.MayAnswer() {
		f(true)
		return
	}
	l.mu.Lock()
	may, fenced := l.MayAnswer(), l.until.Load() == fencedForever
	if !may && !fenced {
		l.parked = append(l.parked, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f(may)
}

// Run renews until ctx ends or the process is fenced, which is the only error it returns. renew must return when its
// context ends, and nil only when the lease was extended by a commit.
//
// A renewal is sent every opts.Every, and one more the moment that trust ends, with that much time to fail: so a
// Postgres that hangs holds answers back once, for about opts.Every.
func (l *Lease) Run(ctx context.Context, renew func(context.Context) error) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			l.change(func() {})
			return nil
		case <-next.C:
		}
		sent := time.Now()
		attempt, cancel := context.WithDeadline(ctx, sent.Add(l.patience(sent)))
		err := renew(attempt)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			l.Renewed(sent)
		case errors.Is(err, meta.ErrFenced):
			l.Fenced()
			return err
		default:
			l.Failed(sent)
		}
		next.Reset(l.pause(sent))
	}
}

// patience is how long a renewal sent now may take: while trust holds, no longer than that; when answers are held
// back, as short as a beat; in between, so short that this one and the next have both failed before the worth of the
// last one, which counts from its sending, is used up.
func (l *Lease) patience(sent time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := sent.Sub(l.start)
	long := max(l.opts.Every, l.worth()*2/5)
	switch {
	case now < l.trust:
		return min(long, l.trust-now)
	case int64(now) < l.until.Load():
		return long
	default:
		return l.opts.Every
	}
}

// pause is how long to wait before the next renewal: a beat after the last one began, or until trust ends.
func (l *Lease) pause(sent time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.start)
	wait := max(sent.Add(l.opts.Every).Sub(l.start)-now, 0)
	if now < l.trust {
		wait = min(wait, l.trust-now)
	} else if int64(now) >= l.until.Load() && l.trust > 0 && !l.opts.Shared {
		wait = 0 // answers are held back until one more was tried
	}
	return wait
}
