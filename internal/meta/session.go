package meta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// witness is a session parameter that tells whether the ones that a session was started with are in force.
const witness = "plan_cache_mode"

// sessionParams adds what a session starts with; what the URL sets stays, except the durability.
func (p *Postgres) sessionParams(params map[string]string, class string) {
	for name, value := range p.ownParams(class) {
		if params[name] == "" || name == "synchronous_commit" {
			params[name] = value
		}
	}
}

func (p *Postgres) ownParams(class string) map[string]string {
	return map[string]string{
		"synchronous_commit": class,
		"lock_timeout":       millis(p.opts.LockTimeout),
		"statement_timeout":  millis(p.opts.StatementTimeout),
		// A broker that is paused inside a transaction must not keep its row locks.
		"idle_in_transaction_session_timeout": millis(p.opts.StatementTimeout),
		"jit":                                 "off",
		// A plan made while a table was small must not read all of it when it has grown.
		"enable_seqscan": "off",
		// Every statement here has one good plan; to plan a guard anew costs more than to run it.
		witness: "force_generic_plan",
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// beforeConnect makes a session that needs no state, once a pooler is known to be there.
func (p *Postgres) beforeConnect(_ context.Context, c *pgx.ConnConfig) error {
	if p.pooler.Load() {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // the unnamed statement only
		for name := range p.ownParams("") {
			delete(c.RuntimeParams, name)
		}
	}
	return nil
}

// afterConnect refuses a server that cannot work.
func (p *Postgres) afterConnect(ctx context.Context, c *pgx.Conn) error {
	version := c.PgConn().ParameterStatus("server_version")
	if major := majorVersion(version); major != 0 && major < minServerMajor {
		return &serverError{ErrVersion, fmt.Sprintf("it has version %s, at least %d is needed", version, minServerMajor)}
	}
	if enc := c.PgConn().ParameterStatus("server_encoding"); enc != "" && enc != "UTF8" && enc != "SQL_ASCII" {
		return &serverError{errEncoding, fmt.Sprintf("database %q has the encoding %s, one made with ENCODING 'UTF8' is needed", c.Config().Database, enc)}
	}
	want, direct := c.Config().RuntimeParams[witness]
	if !direct {
		return nil
	}
	if p.pooler.Load() { // found while this session was made
		return errPooler
	}
	shown, err := c.PgConn().Exec(ctx, "SHOW "+witness).ReadAll()
	if err == nil {
		err = p.noteServer(ctx, c)
	}
	if err == nil && (len(shown) != 1 || len(shown[0].Rows) != 1 || string(shown[0].Rows[0][0]) != want) {
		return errPooler
	}
	return err
}

const serverKey = "pgbroker.server"

// noteServer remembers which server a session leads to. What cannot be found out is not compared.
func (p *Postgres) noteServer(ctx context.Context, c *pgx.Conn) error {
	if p.mark.Load() == nil || p.noMark.Load() {
		return nil
	}
	shown, err := c.PgConn().Exec(ctx, sqlServerMark).ReadAll()
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) {
		return nil
	}
	if err == nil && len(shown) == 1 && len(shown[0].Rows) == 1 {
		c.PgConn().CustomData()[serverKey] = string(shown[0].Rows[0][0])
	}
	return err
}

// checkServer refuses a session that leads to another server than the one whose history is known: what is read there may
// be older, and must not be changed before it has been compared.
func (p *Postgres) checkServer(c *pgx.Conn) error {
	known := p.mark.Load()
	found, ok := c.PgConn().CustomData()[serverKey].(string)
	if known == nil || !ok || *known == unknownMark || found == *known || seededbug.On(seededbug.MarkNotCompared) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx)
	return unavailable(fmt.Errorf("it is another server (%s instead of %s), which has not been compared yet", found, *known))
}

// majorVersion of "15.18 (Debian …)", "17beta1"; 0 if there is none.
func majorVersion(version string) (major int) {
	for i := 0; i < len(version) && version[i] >= '0' && version[i] <= '9'; i++ {
		major = major*10 + int(version[i]-'0')
	}
	return major
}

// errPooler: what the session was started with is not in force, so it is not one session.
var errPooler = errors.New("a pooler stands before the server")

// findPooler says whether a connection was refused because of a pooler, which is known from then on.
func (p *Postgres) findPooler(err error) bool {
	var pgErr *pgconn.PgError
	refused := errors.As(err, &pgErr) && pgErr.Code == "08P01" && strings.Contains(pgErr.Message, "startup parameter")
	if !refused && !errors.Is(err, errPooler) {
		return false
	}
	if !p.pooler.Swap(true) {
		p.log.Info("a pooler stands before Postgres: settings go with each transaction", "postgres", p.Address())
		p.resetPools()
	}
	return true
}

// serverError is a server that no waiting can make fit.
type serverError struct {
	kind error
	text string
}

func (e *serverError) Error() string { return e.kind.Error() + ": " + e.text }
func (e *serverError) Unwrap() error { return e.kind }

var errEncoding = errors.New("unusable encoding")
