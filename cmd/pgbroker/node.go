package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/pgbroker/pgbroker/internal/broker"
	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/ops"
	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// stopLimit is how long a stop may take: in-flight requests are answered and logs flushed within it.
const stopLimit = 10 * time.Second

// node is one broker process with its HTTP address. Fields fill as start goes on; abandon and stop take down what is there.
type node struct {
	cfg     *config.Config
	log     *slog.Logger
	level   *slog.LevelVar // of log; nil: fixed
	http    *ops.Server
	process *prometheus.Registry // metrics that outlive a start
	dir     string
	mode    segstore.Durability
	began   time.Time
	// Of one start; a standby may need several.
	registry   *prometheus.Registry
	logMetrics segstore.Observer
	segments   *segstore.Store
	store      *meta.Postgres
	broker     *broker.Broker
	serving    atomic.Pointer[serving]
	waiting    atomic.Pointer[broker.Standby] // nil: it is no standby, or waits no more
	// standby waits for the lease and the directory of the process that is this broker.
	standby bool
	// acceptNewLogDir starts without the directory that this node's partitions were written to.
	acceptNewLogDir bool
	// acceptRestored starts on a database that was restored from an older backup.
	acceptRestored bool
}

// runNode starts a broker, prints the ready line, calls started, and serves until ctx ends.
func runNode(ctx context.Context, cfg *config.Config, flags settingFlags, log *slog.Logger, stdout io.Writer, started func(*node)) error {
	n := &node{cfg: cfg, log: log, level: flags.level, began: time.Now(), standby: flags.standby, acceptNewLogDir: flags.acceptNewLogDir, acceptRestored: flags.acceptRestored}
	if seededbug.Built {
		log.Error("THIS BUILD HAS SEEDED BUGS AND LOSES DATA: it is for tests only", "bug", seededbug.Active())
	}
	for {
		err := n.start(ctx)
		if err == nil {
			break
		}
		n.abandon()
		switch {
		case ctx.Err() != nil && n.waiting.Load() != nil:
			log.Info("stopped while standing by")
			return n.closeHTTP()
		case ctx.Err() == nil && n.standby && errors.Is(err, meta.ErrLeaseRunning):
			log.Info("another standby was faster", "err", err)
			continue
		}
		_ = n.closeHTTP()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	_, _ = fmt.Fprintln(stdout, n.readyLine())
	if started != nil {
		started(n)
	}
	var fatal error
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case fatal = <-n.broker.Fatal():
		log.Error("stopping", "err", fatal)
	}
	if err := n.stop(); fatal == nil {
		fatal = err
	}
	return fatal
}

// serving is what /readyz and /metrics show of a start.
type serving struct {
	registry *prometheus.Registry
	broker   *broker.Broker // nil not made yet
}

// start opens everything in order; what it opened is closed by abandon or stop.
func (n *node) start(ctx context.Context) error {
	n.registry = prometheus.NewRegistry()
	n.serving.Store(&serving{registry: n.registry})
	if n.standby {
		if err := n.standBy(ctx); err != nil {
			return err
		}
	} else {
		if err := n.openDirectory(); err != nil {
			return err
		}
		if err := n.openPostgres(ctx); err != nil {
			return err
		}
	}
	b, err := broker.New(broker.Options{
		Config: n.cfg, Store: n.store, Segments: n.segments, FS: vfs.OS{}, Dir: n.dir, Durability: n.mode,
		Log: n.log, LogLevel: n.level, Registerer: n.registry, Software: readVersion().Version, BootID: bootID(), LockID: lockID(n.dir),
		AcceptNewLogDir: n.acceptNewLogDir, AcceptRestored: n.acceptRestored,
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	n.broker = b
	n.serving.Store(&serving{registry: n.registry, broker: b})
	if err := n.listenHTTP(); err != nil {
		return err
	}
	return bindError("listeners", b.Start(ctx, n.progress()))
}

// listenHTTP serves http.listen, if there is one, from now on until the end of the process.
func (n *node) listenHTTP() (err error) {
	address := n.cfg.String("http.listen")
	if address == "" || n.http != nil {
		return nil
	}
	n.process = prometheus.NewRegistry()
	n.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.process.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pgbroker_standby", Help: "1 while this process waits for the lease and the log directory of the broker, 0 otherwise.",
	}, func() float64 {
		if n.waiting.Load() != nil {
			return 1
		}
		return 0
	}))
	started := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return n.serving.Load().registry.Gather() })
	checks := []ops.Check{{Name: "standby", Test: n.waitsFor}, {Name: "broker", Test: n.servesReady}}
	if n.http, err = ops.Listen(address, checks, prometheus.Gatherers{n.process, started}, n.log); err != nil {
		return bindError("http.listen", err)
	}
	go func() {
		if err := n.http.Serve(); err != nil {
			n.log.Error("http", "err", err)
		}
	}()
	return nil
}

// waitsFor says what a standby waits for, nil if this is none or waits no more.
func (n *node) waitsFor() error {
	if w := n.waiting.Load(); w != nil {
		return w.Waiting()
	}
	return nil
}

// servesReady is the readiness of the broker; a standby that waits is not ready for its own reason alone.
func (n *node) servesReady() error {
	switch b := n.serving.Load().broker; {
	case n.waiting.Load() != nil:
		return nil
	case b == nil:
		return errors.New("starting")
	default:
		return b.Ready()
	}
}

// checkDirectory reads where the records are.
func (n *node) checkDirectory() error {
	dirs := n.cfg.List("log.dirs")
	switch {
	case len(dirs) == 0 || dirs[0] == "":
		return usagef("log.dirs is not set; give the directory for record data as --set log.dirs=/var/lib/pgbroker or KAFKA_LOG_DIRS")
	case len(dirs) > 1:
		return usagef("log.dirs=%s: give exactly one directory", strings.Join(dirs, ","))
	}
	n.dir = dirs[0]
	n.mode = segstore.Strict
	if n.cfg.String("durability") == "relaxed" {
		n.mode = segstore.Relaxed
	}
	return nil
}

// openDirectory takes the lock of the one log directory.
func (n *node) openDirectory() (err error) {
	if err := n.checkDirectory(); err != nil {
		return err
	}
	if n.logMetrics == nil {
		n.logMetrics = broker.NewLogMetrics(n.registry, n.dir)
	}
	n.segments, err = segstore.Open(segstore.Options{
		FS: vfs.OS{}, Dir: n.dir, Durability: n.mode, Now: time.Now, Log: n.log,
		Observer:        n.logMetrics,
		RecoveryThreads: n.cfg.Int("num.recovery.threads.per.data.dir"),
		RetentionEvery:  n.cfg.Duration("log.retention.check.interval.ms"),
		CheckpointEvery: n.cfg.Duration("log.flush.offset.checkpoint.interval.ms"),
		ProducerExpiry:  n.cfg.Duration("producer.id.expiration.ms"),
		Cleaner: segstore.CleanerOptions{
			Enable:         n.cfg.Bool("log.cleaner.enable"),
			BufferBytes:    n.cfg.Int64("log.cleaner.dedupe.buffer.size"),
			BytesPerSecond: n.cfg.Float("log.cleaner.io.max.bytes.per.second"),
			Backoff:        n.cfg.Duration("log.cleaner.backoff.ms"),
		},
		Space: segstore.SpaceOptions{
			WarnPercent: n.cfg.Int("log.disk.usage.warn.percent"),
			StopPercent: n.cfg.Int("log.disk.usage.stop.percent"),
		},
	})
	if errors.Is(err, segstore.ErrDirInUse) {
		return &dirInUseError{n.dir}
	}
	if err != nil {
		return directoryError(err)
	}
	return nil
}

// openPostgres waits for the database and brings its tables up to date.
func (n *node) openPostgres(ctx context.Context) (err error) {
	n.store, err = openStore(ctx, n.cfg, n.log, n.registry)
	if err != nil {
		return err
	}
	return n.store.Migrate(ctx)
}

// openStore connects and waits up to postgres.wait.ms, telling the log every five seconds.
func openStore(ctx context.Context, cfg *config.Config, log *slog.Logger, reg prometheus.Registerer) (*meta.Postgres, error) {
	store, err := newStore(ctx, cfg, log, reg)
	if err != nil {
		return nil, err
	}
	err = store.WaitReady(ctx, cfg.Duration("postgres.wait.ms"), func(line string) { log.Warn(line) })
	switch {
	case err == nil:
		return store, nil
	case errors.Is(err, meta.ErrVersion):
		err = fmt.Errorf("postgres.url: %w", err)
	default:
		err = unreachablef("postgres.url: %w", err)
	}
	store.Close()
	return nil, err
}

// newStore prepares sessions to postgres.url and opens none yet.
func newStore(ctx context.Context, cfg *config.Config, log *slog.Logger, reg prometheus.Registerer) (*meta.Postgres, error) {
	address := cfg.String("postgres.url")
	if address == "" {
		return nil, usagef("postgres.url is not set; give it as --set postgres.url=postgres://user@host/database or PGBROKER_POSTGRES_URL (\"pgbroker dev\" brings a Postgres of its own)")
	}
	store, err := meta.Open(ctx, meta.Options{
		URL: address, Pooler: cfg.Bool("postgres.pooler"), Lossless: cfg.String("postgres.failover") == "lossless", ApplicationName: "pgbroker", Log: log, Registerer: reg,
	})
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("postgres.url: %w", err)}
	}
	return store, nil
}

// progress reports a recovery that takes longer than a second.
func (n *node) progress() func(segstore.Progress) {
	next := time.Now().Add(time.Second)
	return func(p segstore.Progress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(5 * time.Second)
			n.log.Info("recovering logs", "done", p.Done, "total", p.Total)
		}
	}
}

// readyLine says where everything is; scripts wait for it.
func (n *node) readyLine() string {
	return fmt.Sprintf("ready bootstrap=%s http=%s postgres=%s durability=%s data=%s took=%.1fs",
		n.bootstrap(), n.httpURL(), redactURL(n.cfg.String("postgres.url")), n.cfg.String("durability"), n.dir, time.Since(n.began).Seconds())
}

// bootstrap is the advertised address of each listener.
func (n *node) bootstrap() string { return strings.Join(n.broker.Bootstrap(), ",") }

func (n *node) httpURL() string {
	if n.http == nil {
		return "off"
	}
	return "http://" + n.http.Addr().String()
}

// stop ends service in order and within stopLimit.
func (n *node) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit-time.Second)
	defer cancel()
	err := n.broker.Stop(ctx)
	if n.http != nil {
		_ = n.http.Close(ctx)
	}
	n.store.Close()
	return err
}

// closeHTTP ends the HTTP address of a start that failed.
func (n *node) closeHTTP() error {
	if n.http == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return n.http.Close(ctx)
}

// abandon closes what a failed start had opened, but the HTTP address. The logs were not appended to, so nothing needs a
// flush.
func (n *node) abandon() {
	if n.broker != nil {
		n.broker.Abandon()
	}
	if n.store != nil {
		n.store.Close()
	}
	if n.segments != nil {
		_ = n.segments.Close(false, 0)
	}
	n.broker, n.store, n.segments, n.logMetrics = nil, nil, nil, nil
}

// redactURL hides the password of a Postgres URL and what is not needed to recognise it.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return "(hidden)"
	}
	host := u.Host
	if host == "" {
		host = u.Query().Get("host")
	}
	return fmt.Sprintf("%s://…@%s%s", u.Scheme, host, u.Path)
}

// bootID tells apart the boots of this machine: the page cache survives a kill, not a boot.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// softMemoryLimit leaves the collector alone until the heap is worth collecting.
func softMemoryLimit() { debug.SetGCPercent(200) }

// loopbackAddress makes host:port for 127.0.0.1.
func loopbackAddress(port int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(port)) }
