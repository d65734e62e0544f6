package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func testLease() *Lease {
	return NewLease(LeaseOptions{Lease: 3 * time.Second, Every: 500 * time.Millisecond})
}

func mustAnswer(t *testing.T, l *Lease, want bool, when string) {
	t.Helper()
	if got := l.MayAnswer(); got != want {
		t.Errorf("%s: may answer = %v", when, got)
	}
}

func TestLeaseTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLease()
		mustAnswer(t, l, false, "before it was won")
		l.Failed(time.Now())
		mustAnswer(t, l, false, "never won, and Postgres is silent")

		sent := time.Now()
		time.Sleep(400 * time.Millisecond)
		l.Renewed(sent)
		mustAnswer(t, l, true, "renewed")
		// Trust counts from the sending, less the margin.
		time.Sleep(time.Until(sent.Add(3*time.Second - 103*time.Millisecond - time.Nanosecond)))
		mustAnswer(t, l, true, "a moment before trust ends")
		time.Sleep(time.Nanosecond)
		mustAnswer(t, l, false, "when trust ends")
		if l.Trusted() {
			t.Error("trusted")
		}

		l.Failed(sent.Add(time.Second))
		mustAnswer(t, l, false, "a renewal from before trust ended says nothing")
		time.Sleep(time.Second)
		l.Failed(time.Now().Add(-500 * time.Millisecond))
		mustAnswer(t, l, true, "one sent after trust ended did not reach Postgres")
		if l.Trusted() {
			t.Error("trusted without Postgres")
		}
		time.Sleep(10 * time.Second)
		mustAnswer(t, l, false, "woken after a pause: ask first")
		l.Renewed(time.Now())
		mustAnswer(t, l, true, "Postgres is back")
		l.Fenced()
		mustAnswer(t, l, false, "fenced")
		l.Renewed(time.Now())
		l.Failed(time.Now().Add(time.Hour))
		mustAnswer(t, l, false, "fenced for good")
	})
}

// Where another broker can lead, silence of Postgres is no permission.
func TestLeaseShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(LeaseOptions{Lease: 3 * time.Second, Every: 500 * time.Millisecond, Shared: true})
		l.Renewed(time.Now())
		time.Sleep(5 * time.Second)
		l.Failed(time.Now())
		mustAnswer(t, l, false, "trust is over")
	})
}

func TestLeaseParksReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLease()
		l.Renewed(time.Now())
		var answered, refused atomic.Int32
		park := func() {
			l.WhenMayAnswer(func(may bool) {
				if may {
					answered.Add(1)
				} else {
					refused.Add(1)
				}
			})
		}
		park()
		if answered.Load() != 1 {
			t.Fatal("held back under trust")
		}
		time.Sleep(5 * time.Second)
		changed := l.Changed()
		park()
		park()
		if answered.Load() != 1 {
			t.Fatal("answered without trust")
		}
		l.Failed(time.Now())
		<-changed
		if answered.Load() != 3 {
			t.Errorf("%d answered", answered.Load())
		}
		time.Sleep(5 * time.Second)
		park()
		l.Fenced()
		park()
		if answered.Load() != 3 || refused.Load() != 2 {
			t.Errorf("%d answered, %d refused", answered.Load(), refused.Load())
		}
	})
}

// fakePostgres answers renewals until it is told to hang or to refuse.
type fakePostgres struct {
	mode    atomic.Int32 // 0 answers, 1 hangs, 2 refuses, 3 fences
	renewed atomic.Int32
	tried   atomic.Int32
}

func (p *fakePostgres) renew(ctx context.Context) error {
	p.tried.Add(1)
	switch p.mode.Load() {
	case 1:
		<-ctx.Done()
		return fmt.Errorf("%w: %w", meta.ErrUnavailable, ctx.Err())
	case 2:
		return meta.ErrUnavailable
	case 3:
		return fmt.Errorf("renew: %w", meta.ErrFenced)
	}
	time.Sleep(2 * time.Millisecond)
	p.renewed.Add(1)
	return nil
}

// Postgres hangs, as its stopped processes do, or refuses: answers are held back once, for about a beat, when trust
// ends, and then go on for as long as it takes.
func TestLeaseRunWhilePostgresIsAway(t *testing.T) {
	for mode, name := range map[int32]string{1: "hangs", 2: "refuses"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p := testLease(), &fakePostgres{}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.Run(ctx, p.renew) }()
				time.Sleep(10 * time.Second)
				mustAnswer(t, l, true, "in an ordinary life")
				if n := p.renewed.Load(); n < 19 || n > 21 {
					t.Errorf("%d renewals in ten seconds", n)
				}
				p.mode.Store(mode)
				pauses, longest, since := 0, time.Duration(0), time.Time{}
				for range 40_000 { // forty seconds, looked at each millisecond
					time.Sleep(time.Millisecond)
					switch may := l.MayAnswer(); {
					case !may && since.IsZero():
						since = time.Now()
						pauses++
					case may && !since.IsZero():
						longest = max(longest, time.Since(since))
						since = time.Time{}
					}
				}
				t.Logf("%d pauses, the longest %s, %d renewals tried", pauses, longest, p.tried.Load())
				if pauses > 1 || longest > 510*time.Millisecond || !since.IsZero() {
					t.Errorf("answers were held back %d times, up to %s, still: %v", pauses, longest, !since.IsZero())
				}
				if n := p.tried.Load(); n > 150 {
					t.Errorf("%d renewals were tried in fifty seconds", n)
				}
				p.mode.Store(0)
				time.Sleep(2500 * time.Millisecond)
				if !l.Trusted() {
					t.Error("Postgres is back, but not trusted")
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

func TestLeaseRunFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := testLease(), &fakePostgres{}
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context(), p.renew) }()
		time.Sleep(2 * time.Second)
		p.mode.Store(3)
		if err := <-ended; !errors.Is(err, meta.ErrFenced) {
			t.Errorf("Run: %v", err)
		}
		mustAnswer(t, l, false, "fenced")
	})
}

func TestHighOf(t *testing.T) {
	at := func(b int32, o int64) Position { return Position{b, o} }
	for _, c := range []struct {
		name         string
		self         int64
		positions    []Position
		isr, pending []int32
		min          int
		want         int64
	}{
		{"alone", 7, nil, []int32{1}, nil, 1, 7},
		{"the slowest in sync", 7, []Position{at(2, 5), at(3, 6)}, []int32{1, 2, 3}, nil, 2, 5},
		{"a follower is ahead of the leader's disk", 7, []Position{at(2, 9)}, []int32{1, 2}, nil, 1, 7},
		{"asked to join counts", 7, []Position{at(2, 6), at(3, 1)}, []int32{1, 2}, []int32{3}, 1, 1},
		{"who is not in sync does not", 7, []Position{at(2, 6), at(3, 1)}, []int32{1, 2}, nil, 1, 6},
		{"too few", 7, nil, []int32{1}, nil, 2, -1},
		{"unknown position", 7, nil, []int32{1, 2}, nil, 1, -1},
	} {
		if got := HighOf(c.self, c.positions, c.isr, c.pending, c.min); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
