package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func TestBudgetWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{max: 100}
		var a, c, d lease
		order := make(chan string, 2)
		if err := b.take(t.Context(), &a, 90, nil); err != nil {
			t.Fatal(err)
		}
		go func() { _ = b.take(t.Context(), &c, 50, nil); order <- "c" }()
		synctest.Wait()
		go func() { _ = b.take(t.Context(), &d, 55, nil); order <- "d" }()
		synctest.Wait()
		if len(order) != 0 || !b.pressed() {
			t.Fatal("somebody passed the first in line")
		}
		a.give()
		if first := <-order; first != "c" {
			t.Errorf("%s came first", first)
		}
		c.give()
		<-order
		d.give()
		if b.inUse() != 0 || b.pressed() {
			t.Errorf("%d in use at the end", b.inUse())
		}
	})
}

// Two frames that each wait for what the other holds: one may overdraw, so both end.
func TestBudgetOverdraftPreventsDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{max: 100}
		leases := make([]lease, 2)
		for i := range leases {
			_ = b.take(t.Context(), &leases[i], 50, nil)
		}
		done := make(chan int, 2)
		for i := range leases {
			go func() { _ = b.take(t.Context(), &leases[i], 50, nil); done <- i }()
		}
		first := <-done
		synctest.Wait()
		if len(done) != 0 || b.inUse() != 150 {
			t.Fatalf("both overdrew: %d in use", b.inUse())
		}
		leases[first].give()
		leases[<-done].give()
		if b.inUse() != 0 {
			t.Errorf("%d in use at the end", b.inUse())
		}
	})
}

func TestBudgetWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{max: 100}
		var a, c, d lease
		_ = b.take(t.Context(), &a, 100, nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed, got := make(chan error), make(chan error)
		go func() { failed <- b.take(ctx, &c, 100, nil) }()
		synctest.Wait()
		go func() { got <- b.take(t.Context(), &d, 40, nil) }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		a.shrink(50)
		if err := <-got; err != nil || b.inUse() != 90 {
			t.Errorf("%v, %d in use", err, b.inUse())
		}
	})
}

// Whatever frames do, the bound holds, none waits for ever, and all comes back.
func TestBudgetProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const limit, frameMax = 100, 60
		frames := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 20), 1, 3), 1, 12).Draw(rt, "steps of each frame")
		b := &budget{max: limit}
		done := make(chan error, len(frames))
		for _, steps := range frames {
			go func() {
				var l lease
				for _, n := range steps {
					if err := b.take(context.Background(), &l, n, nil); err != nil {
						done <- err
						return
					}
					if used := b.inUse(); used > limit+frameMax {
						done <- errors.New("the budget is exceeded by more than one frame")
						return
					}
				}
				l.give()
				done <- nil
			}()
		}
		for range frames {
			if err := <-done; err != nil {
				rt.Fatal(err)
			}
		}
		if b.inUse() != 0 {
			rt.Fatalf("%d in use at the end", b.inUse())
		}
	})
}
