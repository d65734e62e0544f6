package meta

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// minServerMajor is the oldest Postgres that is tested against.
const minServerMajor = 14

// Options of Open. Zero values mean the default given.
type Options struct {
	// URL is a libpq URL or keyword string: several hosts, Unix sockets, PG… environment, PGPASSFILE and TLS work as
	// in psql, except that target_session_attrs defaults to read-write.
	URL string
	// Pooler: a transaction-mode pooler stands between, so no session state and no named prepared statements are used.
	// False: found out at the first connection.
	Pooler           bool
	ApplicationName  string        // "pgbroker"
	MaxConns         int32         // of the durable pool, 4; the others have two each
	ConnectTimeout   time.Duration // per host, 5 s
	LockTimeout      time.Duration // 5 s
	StatementTimeout time.Duration // 10 s; bounds each attempt of a method, too
	MigrateWait      time.Duration // for another process that migrates, 1 min
	// Lossless: nothing is forgotten by a failover, the user says. Bootstrap warns where the server makes that a hope.
	Lossless   bool
	Log        *slog.Logger // slog.Default()
	Registerer prometheus.Registerer
}

// Postgres implements Store. Its methods may be called from many goroutines.
type Postgres struct {
	opts    Options
	config  *pgx.ConnConfig
	log     *slog.Logger
	metrics *metrics
	// Three pools, so that a lease renewal never waits behind other work.
	durable, relaxed, control *pool
	pooler                    atomic.Bool
	// noMark: the server refuses to name itself, so that a transaction must not ask (an error would end it).
	noMark atomic.Bool
	// mark is the server whose history this process goes by, nil before Bootstrap. A session that leads to another one is
	// not used before Reconcile.
	mark atomic.Pointer[string]
	trim trimming
}

var _ Store = (*Postgres)(nil)

// pool is a set of sessions of one durability class.
type pool struct {
	*pgxpool.Pool
	name  string
	class string // value of synchronous_commit: "on" or "off"
}

// Open prepares the pools. It does not connect: see WaitReady. Errors never contain the password.
func Open(ctx context.Context, o Options) (*Postgres, error) {
	o.ApplicationName = orDefault(o.ApplicationName, "pgbroker")
	o.MaxConns = orDefault(o.MaxConns, 4)
	o.ConnectTimeout = orDefault(o.ConnectTimeout, 5*time.Second)
	o.LockTimeout = orDefault(o.LockTimeout, 5*time.Second)
	o.StatementTimeout = orDefault(o.StatementTimeout, 10*time.Second)
	o.MigrateWait = orDefault(o.MigrateWait, time.Minute)
	o.Log = orDefault(o.Log, slog.Default())

	p := &Postgres{opts: o, log: o.Log, metrics: newMetrics()}
	p.pooler.Store(o.Pooler)
	for _, each := range []struct {
		dst         **pool
		name, class string
		max         int32
	}{
		{&p.durable, "durable", "on", o.MaxConns},
		{&p.relaxed, "relaxed", "off", 2},
		{&p.control, "control", "on", 2},
	} {
		cfg, err := p.poolConfig(each.class, each.max)
		if err != nil {
			p.Close()
			return nil, err
		}
		created, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("open pool %s: %w", each.name, err)
		}
		*each.dst = &pool{Pool: created, name: each.name, class: each.class}
		p.config = cfg.ConnConfig
	}
	if o.Registerer != nil {
		if err := p.metrics.register(o.Registerer, p.pools()); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (p *Postgres) poolConfig(class string, maxConns int32) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(p.opts.URL)
	if err != nil {
		return nil, fmt.Errorf("parse the URL: %s", parseCause(err))
	}
	cfg.MaxConns = maxConns
	cfg.PingTimeout = 2 * time.Second
	c := cfg.ConnConfig
	c.Tracer = p.metrics
	c.ConnectTimeout = p.opts.ConnectTimeout
	if c.ValidateConnect == nil && os.Getenv("PGTARGETSESSIONATTRS") == "" && !strings.Contains(p.opts.URL, "target_session_attrs") {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = p.opts.ApplicationName
	}
	p.sessionParams(c.RuntimeParams, class)
	c.OnNotice = noteWarning
	cfg.BeforeConnect = p.beforeConnect
	cfg.AfterConnect = p.afterConnect
	return cfg, nil
}

func (p *Postgres) pools() []*pool { return []*pool{p.durable, p.relaxed, p.control} }

// closeLimit bounds Close: a session of a server that hangs takes pgx 15 s to give up.
const closeLimit = time.Second

// Close waits for running statements and closes every session. Those of a server that does not answer are left to end
// by themselves after a second.
func (p *Postgres) Close() {
	var closing sync.WaitGroup
	for _, each := range p.pools() {
		if each != nil {
			closing.Go(each.Close)
		}
	}
	closed := make(chan struct{})
	go func() { closing.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(closeLimit):
		p.log.Debug("sessions of a Postgres that does not answer were left to end by themselves")
	}
}

// Address lists host:port (or socket) of every server in the URL.
func (p *Postgres) Address() string {
	one := func(host string, port uint16) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	list := []string{one(p.config.Host, p.config.Port)}
	for _, f := range p.config.Fallbacks {
		if a := one(f.Host, f.Port); a != list[len(list)-1] { // a host is listed once with and once without TLS
			list = append(list, a)
		}
	}
	return strings.Join(list, ",")
}

// Database is the database's name.
func (p *Postgres) Database() string { return p.config.Database }

// StatementCounts says how often each statement was sent since Open, by name; begin, commit and rollback are counted too.
func (p *Postgres) StatementCounts() map[string]int64 { return p.metrics.counts() }
