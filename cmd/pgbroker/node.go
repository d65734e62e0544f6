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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

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

// node is one broker process with its HTTP address. Fields fill as start goes on; close takes down what is there.
type node struct {
	cfg      *config.Config
	log      *slog.Logger
	level    *slog.LevelVar // of log; nil: fixed
	registry *prometheus.Registry
	segments *segstore.Store
	store    *meta.Postgres
	broker   *broker.Broker
	http     *ops.Server
	dir      string
	mode     segstore.Durability
	began    time.Time
	// acceptNewLogDir starts without the directory that this node's partitions were written to.
	acceptNewLogDir bool
	// acceptRestored starts on a database that was restored from an older backup.
	acceptRestored bool
}

// runNode starts a broker, prints the ready line, calls started, and serves until ctx ends.
func runNode(ctx context.Context, cfg *config.Config, flags settingFlags, log *slog.Logger, stdout io.Writer, started func(*node)) error {
	n := &node{cfg: cfg, log: log, level: flags.level, began: time.Now(), acceptNewLogDir: flags.acceptNewLogDir, acceptRestored: flags.acceptRestored}
	if seededbug.Built {
		log.Error("THIS BUILD HAS SEEDED BUGS AND LOSES DATA: it is for tests only", "bug", seededbug.Active())
	}
	if err := n.start(ctx); err != nil {
		n.abandon()
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

// start opens everything in order; what it opened is closed by abandon or stop.
func (n *node) start(ctx context.Context) error {
	n.registry = prometheus.NewRegistry()
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := n.openDirectory(); err != nil {
		return err
	}
	if err := n.openPostgres(ctx); err != nil {
		return err
	}
	b, err := broker.New(broker.Options{
		Config: n.cfg, Store: n.store, Segments: n.segments, FS: vfs.OS{}, Dir: n.dir, Durability: n.mode,
		Log: n.log, LogLevel: n.level, Registerer: n.registry, Software: readVersion().Version, BootID: bootID(), AcceptNewLogDir: n.acceptNewLogDir, AcceptRestored: n.acceptRestored,
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	n.broker = b
	if address := n.cfg.String("http.listen"); address != "" {
		checks := []ops.Check{{Name: "broker", Test: b.Ready}}
		if n.http, err = ops.Listen(address, checks, n.registry, n.log); err != nil {
			return bindError("http.listen", err)
		}
		go func() {
			if err := n.http.Serve(); err != nil {
				n.log.Error("http", "err", err)
			}
		}()
	}
	return bindError("listeners", b.Start(ctx, n.progress()))
}

// openDirectory takes the lock of the one log directory.
func (n *node) openDirectory() (err error) {
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
	n.segments, err = segstore.Open(segstore.Options{
		FS: vfs.OS{}, Dir: n.dir, Durability: n.mode, Now: time.Now, Log: n.log,
		Observer:        broker.NewLogMetrics(n.registry, n.dir),
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
		return fmt.Errorf("log.dirs: %s is in use by another process; stop it, or give this one a directory of its own", n.dir)
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
	address := cfg.String("postgres.url")
	if address == "" {
		return nil, usagef("postgres.url is not set; give it as --set postgres.url=postgres://user@host/database or PGBROKER_POSTGRES_URL (\"pgbroker dev\" brings a Postgres of its own)")
	}
	store, err := meta.Open(ctx, meta.Options{
		URL: address, Pooler: cfg.Bool("postgres.pooler"), ApplicationName: "pgbroker", Log: log, Registerer: reg,
	})
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("postgres.url: %w", err)}
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

// abandon closes what a failed start had opened. The logs were not appended to, so nothing needs a flush.
func (n *node) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n.broker != nil {
		n.broker.Abandon()
	}
	if n.http != nil {
		_ = n.http.Close(ctx)
	}
	if n.store != nil {
		n.store.Close()
	}
	if n.segments != nil {
		_ = n.segments.Close(false, 0)
	}
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
