package broker

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// No more large answers are made at once than processors can make, each request is answered, and one whose client has gone
// does not wait.
func TestFewAtOnce(t *testing.T) {
	most := int64(runtime.GOMAXPROCS(0))
	var now, answered atomic.Int64
	full, hold := make(chan struct{}, most), make(chan struct{})
	handle := few(func(_ context.Context, _ *wire.Request, done wire.Done) {
		if n := now.Add(1); n > most {
			t.Errorf("%d at once", n)
		}
		full <- struct{}{}
		<-hold
		<-full
		now.Add(-1)
		done(wire.Response{}, nil)
	})
	var asking sync.WaitGroup
	for range 10 * most {
		asking.Go(func() {
			handle(context.Background(), &wire.Request{}, func(_ wire.Response, err error) {
				if err == nil {
					answered.Add(1)
				}
			})
		})
	}
	for len(full) < int(most) {
		runtime.Gosched()
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	handle(gone, &wire.Request{}, func(_ wire.Response, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("one that has gone: %v", err)
		}
	})
	close(hold)
	asking.Wait()
	if answered.Load() != 10*most {
		t.Errorf("%d of %d were answered", answered.Load(), 10*most)
	}
}
