package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// Bounds of the timeout_ms that an admin request brings, and the pause between two attempts while Postgres is away.
const (
	minChangeWait   = time.Second
	maxChangeWait   = time.Minute
	changeRetryWait = 200 * time.Millisecond
)

// changeContext bounds a change of the catalog by the timeout that the request brings.
func changeContext(ctx context.Context, timeoutMillis int32) (context.Context, context.CancelFunc) {
	wait := min(max(time.Duration(timeoutMillis)*time.Millisecond, minChangeWait), maxChangeWait)
	return context.WithTimeout(ctx, wait)
}

// beginChange waits for its turn to change the catalog: what a change was decided on still holds when it is committed,
// as far as this broker is concerned. The caller ends its turn by end. The lease does not wait for it.
func (b *Broker) beginChange(ctx context.Context) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case b.changing <- struct{}{}:
		return func() { <-b.changing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// retryChange runs a change until Postgres has taken or refused it, or ctx ends. A change whose outcome is unknown is
// made again: change must see from what it finds that an earlier attempt took effect.
func retryChange(ctx context.Context, change func(attempt int) error) error {
	for attempt := 1; ; attempt++ {
		err := change(attempt)
		if !errors.Is(err, meta.ErrUnavailable) && !errors.Is(err, meta.ErrUnknownOutcome) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(changeRetryWait):
		}
	}
}

// serve applies a catalog that was committed. After it, a new topic can be written to.
func (b *Broker) serve(c meta.Catalog) error {
	if err := b.apply(c); err != nil {
		return fmt.Errorf("%w: the change is committed, but this broker cannot serve it yet: %w", segstore.ErrStorage, err)
	}
	return nil
}

// reload brings the catalog up to date with Postgres.
func (b *Broker) reload(ctx context.Context) error {
	r, err := b.store.Renew(ctx, b.owner, b.cfg.Duration("broker.session.timeout.ms"), b.catalog.Load().cluster.CatalogVersion)
	if err != nil || r.Catalog == nil {
		return err
	}
	return b.serve(*r.Catalog)
}
