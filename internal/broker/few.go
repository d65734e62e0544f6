package broker

import (
	"context"
	"runtime"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// few lets only as many requests be answered at once as there are processors. It is for answers that are made from memory
// and take megabytes while they are made: more of them at a time would hold more and be no faster. The others wait in line.
func few(handle wire.Handler) wire.Handler {
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	return func(ctx context.Context, r *wire.Request, done wire.Done) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			handle(ctx, r, done)
		case <-ctx.Done(): // nobody waits for the answer
			done(wire.Response{}, ctx.Err())
		}
	}
}
