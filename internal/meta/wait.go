package meta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const sqlReadWrite = `/* read_write */ SELECT current_setting('transaction_read_only') = 'off'`

var errReadOnly = errors.New("the server is read only")

// Ping reaches a read-write Postgres, or says why not (ErrUnavailable, ErrVersion).
func (p *Postgres) Ping(ctx context.Context) error {
	return p.withConn(ctx, p.durable, func(ctx context.Context, conn *pgxpool.Conn) error {
		var ok bool
		if err := conn.QueryRow(ctx, sqlReadWrite).Scan(&ok); err != nil {
			return p.classify(conn, err)
		}
		if !ok {
			p.kill(conn)
			return unavailable(errReadOnly)
		}
		return nil
	})
}

const (
	waitLineEvery = 5 * time.Second
	waitRetry     = 250 * time.Millisecond
)

// WaitReady tries for wait until a read-write Postgres answers. It calls line every five seconds meanwhile. The error says
// where, why and how to fix it, in one line and without the password.
func (p *Postgres) WaitReady(ctx context.Context, wait time.Duration, line func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	nextLine := time.Now().Add(waitLineEvery)
	var last error
	for {
		err := p.Ping(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the cause, rather than that time is over
			last = err
		}
		if errors.Is(err, ErrVersion) || errors.Is(err, errEncoding) {
			return &waitError{fmt.Sprintf("postgres at %s: %s", p.Address(), p.oneLine(last)), last}
		}
		if now := time.Now(); !now.Before(nextLine) {
			line(fmt.Sprintf("waiting for Postgres at %s: %s", p.Address(), p.oneLine(last)))
			nextLine = nextLine.Add(waitLineEvery)
		}
		select {
		case <-ctx.Done():
			return &waitError{fmt.Sprintf("postgres at %s: not ready after %s: %s; %s", p.Address(), wait, p.oneLine(last), hint(last)), last}
		case <-time.After(waitRetry):
		}
	}
}

// waitError is one line for people; the cause is for errors.Is.
type waitError struct {
	text  string
	cause error
}

func (e *waitError) Error() string { return e.text }
func (e *waitError) Unwrap() error { return e.cause }

// oneLine is the innermost cause with its SQLSTATE.
func (p *Postgres) oneLine(err error) string {
	text := err.Error()
	var pgErr *pgconn.PgError
	var dial *net.OpError
	var refused *serverError
	switch {
	case errors.As(err, &refused):
		text = refused.Error()
	case errors.As(err, &pgErr):
		text = fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
	case errors.As(err, &dial):
		text = dial.Error()
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		text = errReadOnly.Error()
	}
	text = strings.Join(strings.Fields(text), " ")
	if pw := p.config.Password; len(pw) > 3 { // none of these texts has it; a shorter one would garble the line
		text = strings.ReplaceAll(text, pw, "xxxxx")
	}
	return text
}

// hint says how to fix what WaitReady gave up on.
func hint(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "28P01", "28000":
			return "check user and password in postgres.url or PGPASSFILE, and the server's pg_hba.conf"
		case "3D000":
			return "create the database, or name another one in postgres.url"
		case "42501":
			return "the role needs LOGIN, and CREATE on the database"
		case "53300":
			return "raise max_connections, or give the role fewer connections elsewhere"
		case "57P03":
			return "the server is starting or stopping: look at its log"
		case "08P01":
			return "if a pooler answers here, set postgres.pooler=true"
		}
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, errReadOnly), errors.Is(err, pgconn.ErrReadOnlyConnection):
		return "name the primary in postgres.url, too; several hosts are allowed"
	case errors.As(err, &dns):
		return "check the host name in postgres.url"
	case strings.Contains(err.Error(), "tls"), strings.Contains(err.Error(), "x509"), strings.Contains(err.Error(), "TLS"):
		return "check sslmode and sslrootcert in postgres.url"
	}
	return "check host and port in postgres.url and that the server runs and listens there"
}

// parseCause is what is wrong with a URL, without the URL: a malformed one may carry the password anywhere.
func parseCause(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+3:]
	}
	if strings.Contains(text, "://") || strings.Contains(text, "@") {
		text = "cannot be parsed"
	}
	return strings.Join(strings.Fields(text), " ") + "; expected is postgres://user@host:5432/database or keywords as psql takes them"
}
