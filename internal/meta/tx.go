package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlSetLocal does through a pooler what sessionParams does without one.
const sqlSetLocal = `/* set_local */ SELECT set_config('synchronous_commit', $1, true), set_config('lock_timeout', $2, true),
	set_config('statement_timeout', $3, true), set_config('idle_in_transaction_session_timeout', $3, true)`

// maxAttempts bounds how often a transaction that Postgres itself rolled back (deadlock, serialization) is tried.
const maxAttempts = 4

// tx runs fn in one transaction. Its error is classified: ErrUnavailable means that nothing happened,
// ErrUnknownOutcome that only a read-back can tell.
func (p *Postgres) tx(ctx context.Context, pl *pool, opts pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return p.retry(ctx, pl, func(ctx context.Context, conn *pgxpool.Conn) error {
		tx, err := conn.BeginTx(ctx, opts)
		if err != nil {
			return p.classify(conn, err)
		}
		if p.pooler.Load() {
			if _, err := tx.Exec(ctx, sqlSetLocal, p.setLocalArgs(pl)...); err != nil {
				return p.rollback(ctx, conn, tx, err)
			}
		}
		if err := fn(ctx, tx); err != nil {
			return p.rollback(ctx, conn, tx, err)
		}
		return p.commit(ctx, pl, conn, tx)
	})
}

// batch sends statements and the end of their transaction in one round trip: everything up to the only Sync is one
// implicit transaction, so a statement that must hold has to raise an error in SQL. Callbacks may only read.
func (p *Postgres) batch(ctx context.Context, pl *pool, build func(b *pgx.Batch)) error {
	return p.retry(ctx, pl, func(ctx context.Context, conn *pgxpool.Conn) error {
		b := &pgx.Batch{}
		if p.pooler.Load() {
			b.Queue(sqlSetLocal, p.setLocalArgs(pl)...)
		}
		build(b)
		start := time.Now()
		err := conn.SendBatch(ctx, b).Close()
		return p.commitResult(pl, conn, start, err)
	})
}

func (p *Postgres) setLocalArgs(pl *pool) []any {
	return []any{pl.class, millis(p.opts.LockTimeout), millis(p.opts.StatementTimeout)}
}

func (p *Postgres) retry(ctx context.Context, pl *pool, attempt func(context.Context, *pgxpool.Conn) error) error {
	for n := 1; ; n++ {
		err := p.withConn(ctx, pl, attempt)
		if n < maxAttempts && errors.Is(err, errRolledBack) && ctx.Err() == nil {
			continue
		}
		return err
	}
}

type longKey struct{}

// withLimit is for work of many statements: each is bounded by the server, together they may take limit.
func withLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, longKey{}, true), limit)
}

// withConn bounds fn by the statement timeout, unless the context says that it has a longer limit.
func (p *Postgres) withConn(parent context.Context, pl *pool, fn func(context.Context, *pgxpool.Conn) error) (err error) {
	defer func() { p.noteUp(parent, err) }()
	ctx := parent
	if _, long := ctx.Value(longKey{}).(bool); !long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.opts.StatementTimeout)
		defer cancel()
	}
	conn, err := pl.Acquire(ctx)
	if err != nil && p.findPooler(err) {
		conn, err = pl.Acquire(ctx)
	}
	if err != nil {
		if refused := (*serverError)(nil); errors.As(err, &refused) {
			return err
		}
		return unavailable(err)
	}
	defer conn.Release()
	if pl != p.control {
		if err := p.checkServer(conn.Conn()); err != nil {
			return err
		}
	}
	clearWarning(conn.Conn().PgConn())
	return fn(ctx, conn)
}

// noteUp keeps the metric; a caller that gave up says nothing about the server.
func (p *Postgres) noteUp(parent context.Context, err error) {
	var refused *serverError
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnknownOutcome), errors.As(err, &refused):
		if !errors.Is(parent.Err(), context.Canceled) {
			p.metrics.up.Set(0)
		}
	default:
		p.metrics.up.Set(1)
	}
}

// rollback ends a transaction that surely does not take effect and says why.
func (p *Postgres) rollback(ctx context.Context, conn *pgxpool.Conn, tx pgx.Tx, cause error) error {
	cause = p.classify(conn, cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // a session that cannot roll back is closed by pgx
	return cause
}

func (p *Postgres) commit(ctx context.Context, pl *pool, conn *pgxpool.Conn, tx pgx.Tx) error {
	start := time.Now()
	err := tx.Commit(ctx)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("commit: %w", err)
	}
	return p.commitResult(pl, conn, start, err)
}

// commitResult classifies what came back for a COMMIT. Only an answer of severity ERROR proves a rollback. A warning
// proves nothing either: a wait for a synchronous standby that is cancelled ends in success with a warning.
func (p *Postgres) commitResult(pl *pool, conn *pgxpool.Conn, start time.Time, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case err == nil && warned(conn.Conn().PgConn()):
		p.kill(conn)
		return fmt.Errorf("%w: the server gave up waiting for its standby", ErrUnknownOutcome)
	case err == nil:
		class := "durable"
		if pl.class == "off" {
			class = "relaxed"
		}
		p.metrics.commit.WithLabelValues(class).Observe(time.Since(start).Seconds())
		return nil
	case errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR", pgconn.SafeToRetry(err):
		return p.classify(conn, err)
	case conn.Conn().IsClosed():
		p.lost(err)
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err // a result that could not be read: a defect of a statement here
}

// errRolledBack marks a transaction that Postgres rolled back for the sake of another one.
var errRolledBack = errors.New("rolled back in favour of another transaction")

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// classify turns an error from before COMMIT into ErrUnavailable if a retry can help.
func (p *Postgres) classify(conn *pgxpool.Conn, err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		if conn.Conn().IsClosed() || pgconn.SafeToRetry(err) || pgconn.Timeout(err) {
			p.lost(err)
			return unavailable(err)
		}
		return err
	}
	switch code := pgErr.Code; {
	case code == "40001", code == "40P01": // serialization failure, deadlock
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, errRolledBack, err)
	case code == "25006": // read only: this server is not, or no longer, the primary
		p.kill(conn)
		return unavailable(err)
	case pgErr.SeverityUnlocalized == "FATAL", pgErr.SeverityUnlocalized == "PANIC", strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"):
		p.kill(conn)
		return unavailable(err)
	case code == "55P03", code == "57014", // lock timeout, statement timeout
		strings.HasPrefix(code, "53"), strings.HasPrefix(code, "58"): // out of resources, system error
		return unavailable(err)
	}
	return err
}

// kill closes a session that must not be used again, and with it all idle ones: they talk to the same server.
func (p *Postgres) kill(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = conn.Conn().Close(ctx)
	p.resetPools()
}

// lost drops idle sessions after one has broken, so that the next call does not have to find each of them dead. A
// timeout says nothing about the others; those are pinged before use.
func (p *Postgres) lost(err error) {
	if !pgconn.Timeout(err) && !errors.Is(err, context.Canceled) {
		p.resetPools()
	}
}

func (p *Postgres) resetPools() {
	for _, pl := range p.pools() {
		pl.Reset()
	}
}

const warningKey = "pgbroker.warning"

// noteWarning remembers a warning of the statement that runs; see commitResult.
func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		c.CustomData()[warningKey] = true
	}
}

func warned(c *pgconn.PgConn) bool { return c.CustomData()[warningKey] != nil }

func clearWarning(c *pgconn.PgConn) { delete(c.CustomData(), warningKey) }
