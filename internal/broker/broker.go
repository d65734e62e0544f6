package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// Options of a Broker. Everything in it is owned by the caller and outlives the broker.
type Options struct {
	Config     *config.Config
	Store      meta.Store      // migrated and reachable
	Segments   *segstore.Store // open, not yet recovered
	FS         vfs.FS
	Dir        string // the log directory, for the state and run files
	Durability segstore.Durability
	Log        *slog.Logger
	LogLevel   *slog.LevelVar // of Log, which requests can change; nil: fixed
	Registerer prometheus.Registerer
	Software   string // version, for the brokers table
	BootID     string // of the machine's current boot, "" unknown
	// LockID names the lock of the log directory that Segments holds: the same for two processes only if one kernel guards
	// one lock file for both. "" unknown: then the lease of a process before this one is always waited for.
	LockID string
	// AcceptNewLogDir starts on an empty directory although this broker leads partitions: their records are lost.
	AcceptNewLogDir bool
	// AcceptRestored starts on a database that was restored from an older backup; see compareHistory.
	AcceptRestored bool
}

// Broker serves one node id. Start it once, then Run, then Stop.
type Broker struct {
	cfg        *config.Config
	store      meta.Store
	segments   *segstore.Store
	fs         vfs.FS
	dir        string
	durability segstore.Durability
	log        *slog.Logger
	logLevel   *slog.LevelVar
	software   string
	bootID     string
	acceptNew  bool
	// acceptRestored is consent to a database that was restored from an older backup.
	acceptRestored bool
	nodeID         int32
	metrics        *metrics
	registerer     prometheus.Registerer

	catalog atomic.Pointer[catalog]
	// control serialises changes of the catalog, the state file and terms. I/O and SQL happen under it; no
	// request of an existing topic ever takes it.
	control sync.Mutex
	state   *stateFile
	// removing are deleted topics whose logs are being removed, by name; guarded by control.
	removing map[string]chan struct{}
	owner    meta.Owner
	// What was won and applied, for a database that forgets it; see reconcile.
	process      meta.UUID // this process, and the lock that it holds
	registration meta.Registration
	applied      meta.Catalog
	shards       []meta.Shard
	forgotten    bool         // the database was found to have gone back at the start
	beat         atomic.Int64 // of the last renewal
	// applying is the catalog version that is being applied, once all that it takes away is taken away. A renewal that
	// brings the same version need not wait for the rest, which may be ten thousand new logs. 0 none.
	applying atomic.Int64
	// changing holds one token while a request changes topics; see beginChange.
	changing chan struct{}

	lease     *coordinator.Lease
	groups    *coordinator.Groups
	sessions  *sessionCache
	throttle  throttle
	mutations throttle // of controller_mutation_rate
	connects  throttle // of connection_creation_rate
	parked    parkedFetches
	producers idBlock
	txns      txnLogs
	server    *wire.Server
	listeners []config.Listener

	ready   atomic.Bool
	fenced  atomic.Bool // another process has taken over: the log directory may be its own
	fatal   chan error  // first failure that ends the process
	stop    context.CancelFunc
	running sync.WaitGroup
}

// New checks what can be checked without I/O.
func New(o Options) (*Broker, error) {
	listeners, err := o.Config.Listeners()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: o.Config, store: o.Store, segments: o.Segments, fs: o.FS, dir: o.Dir,
		durability: o.Durability, log: o.Log, logLevel: o.LogLevel, software: o.Software, bootID: o.BootID, acceptNew: o.AcceptNewLogDir, acceptRestored: o.AcceptRestored, registerer: o.Registerer,
		nodeID:    int32(o.Config.Int("node.id")),
		process:   meta.NewProcessID(o.LockID),
		listeners: listeners,
		removing:  map[string]chan struct{}{},
		fatal:     make(chan error, 1),
		changing:  make(chan struct{}, 1),
		sessions:  newSessionCache(o.Config.Int("max.incremental.fetch.session.cache.slots")),
	}
	b.throttle.window = quotaWindow(o.Config.Int("quota.window.num"), o.Config.Int("quota.window.size.seconds"))
	b.mutations.window = span(o.Config.Int("controller.quota.window.num"), o.Config.Int("controller.quota.window.size.seconds"))
	b.connects.window = b.throttle.window
	b.txns.broker = b
	b.metrics = newMetrics(o.Registerer, b)
	registry, err := wire.NewRegistry(b.apis())
	if err != nil {
		return nil, err
	}
	b.server = wire.NewServer(wire.Options{
		Registry: registry,
		Limits: wire.Limits{
			MaxRequestBytes:    int32(o.Config.Int("socket.request.max.bytes")),
			MaxConnections:     o.Config.Int("max.connections"),
			MaxConnectionsByIP: o.Config.Int("max.connections.per.ip"),
			MaxIdle:            o.Config.Duration("connections.max.idle.ms"),
			QueuedBytes:        o.Config.Int64("queued.max.request.bytes"),
			SendBuffer:         o.Config.Int("socket.send.buffer.bytes"),
			ReceiveBuffer:      o.Config.Int("socket.receive.buffer.bytes"),
		},
		Log:        o.Log,
		Registerer: o.Registerer,
		Throttle:   b.throttleConnection,
	})
	return b, nil
}

// Start recovers, registers and begins to accept. It returns when clients are served.
func (b *Broker) Start(ctx context.Context, progress func(segstore.Progress)) error {
	cluster, err := b.store.Bootstrap(ctx)
	if err != nil {
		return err
	}
	directory, err := b.checkDirectory(cluster)
	if err != nil {
		return err
	}
	if err := b.awaitLease(ctx, directory); err != nil {
		return err
	}
	if b.state, err = openStateFile(b.fs, b.dir, cluster); err != nil {
		return err
	}
	defaults, err := b.cfg.Topic(nil)
	if err != nil {
		return err
	}
	// The topics' own properties arrive with the registration; recovery needs none of them.
	config := func(string, segstore.TopicID) segstore.LogConfig { return logConfig(defaults) }
	if err := b.segments.Recover(ctx, config, progress); err != nil {
		return err
	}
	if err := b.server.Listen(ctx, wireListeners(b.listeners)); err != nil {
		return err
	}
	registered, err := b.register(ctx, cluster, directory)
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	b.stop = stop
	if err := b.openTerms(registered); err != nil {
		return err
	}
	fence, err := b.lostPageCache()
	if err != nil {
		return err
	}
	if err := b.loadGroups(ctx, run); err != nil {
		return err
	}
	if err := b.recoverTxns(ctx, fence); err != nil {
		return fmt.Errorf("finish transactions: %w", err)
	}
	if err := b.writeRunFile(); err != nil {
		return err
	}
	b.startBackground(run)
	b.ready.Store(true)
	b.goRun(func() {
		if err := b.server.Serve(run); err != nil && run.Err() == nil {
			b.fail(fmt.Errorf("serve: %w", err))
		}
	})
	return nil
}

// register makes this process the one that leads what this node leads, and puts that on disk.
func (b *Broker) register(ctx context.Context, cluster meta.Cluster, directory meta.UUID) (meta.Registered, error) {
	b.lease = coordinator.NewLease(coordinator.LeaseOptions{
		Lease: b.cfg.Duration("broker.session.timeout.ms"), Every: b.cfg.Duration("broker.heartbeat.interval.ms"),
		Shared: b.cfg.String("broker.fencing") == "lease",
	})
	var rack *string
	if r := b.cfg.String("broker.rack"); r != "" {
		rack = &r
	}
	b.registration = meta.Registration{
		BrokerID: b.nodeID, ProcessID: b.process, Lease: b.cfg.Duration("broker.session.timeout.ms"),
		LogDirs: []meta.UUID{directory}, Endpoints: b.endpoints(), Rack: rack, Software: b.software,
		Floors: b.floors(), AcceptNewLogDirs: b.acceptNew,
	}
	forgotten, err := b.compareHistory(ctx, cluster, b.registration)
	if errors.Is(err, meta.ErrLeaseRunning) {
		return meta.Registered{}, b.leaseRunning(err)
	}
	if err != nil {
		return meta.Registered{}, err
	}
	b.forgotten = forgotten
	sent := time.Now()
	registered, err := b.store.Register(ctx, b.registration)
	switch {
	case errors.Is(err, meta.ErrLeaseRunning):
		return registered, b.leaseRunning(err)
	case errors.Is(err, meta.ErrLogDirs):
		return registered, fmt.Errorf("log.dirs: %s: %w; give that directory, or start with --accept-new-log-dir if it is lost for good (its records are, then)", b.dir, err)
	case err != nil:
		return registered, err
	}
	b.lease.Renewed(sent)
	b.owner = meta.Owner{BrokerID: b.nodeID, Incarnation: registered.Incarnation}
	return registered, nil
}

func (b *Broker) leaseRunning(err error) error {
	return fmt.Errorf("node.id=%d: %w; stop that one (a killed one's lease runs out by itself), or give this one a node.id of its own", b.nodeID, err)
}

// recoverTxns ends what a start must end: markers of decided transactions come before anything is served. What a power cut
// may have taken, or a database that went back has forgotten, is fenced, and only then this run is the last one.
func (b *Broker) recoverTxns(ctx context.Context, lostRecords bool) error {
	if err := b.groups.RecoverTxns(ctx, lostRecords || b.forgotten); err != nil || !b.forgotten {
		return err
	}
	return b.abortOrphans()
}

// Fatal delivers the failure that must end the process, such as being fenced.
func (b *Broker) Fatal() <-chan error { return b.fatal }

// Ready says whether requests are served with everything they need; the reason otherwise.
func (b *Broker) Ready() error {
	switch {
	case !b.ready.Load():
		return errors.New("starting or stopping")
	case !b.lease.Trusted():
		return errors.New("postgres has not confirmed the lease: metadata changes wait, produce and fetch go on")
	}
	return nil
}

// Addr is the bound address of a listener, for logs and tests.
func (b *Broker) Addr(listener string) string { return b.server.Addr(listener).String() }

// ClusterID is valid after Start.
func (b *Broker) ClusterID() string { return b.catalog.Load().cluster.ID }

const (
	// tellLimit bounds the news of a stop to a Postgres that may hang; nothing depends on it.
	tellLimit = 500 * time.Millisecond
	// drainLimit leaves of what a stop may take (10 s) enough for the groups' last changes, however slow a client reads.
	drainLimit = 5 * time.Second
	// flushReserve is what those leave for the logs and for Postgres' sessions.
	flushReserve = 2 * time.Second
)

// Stop ends service in order: not ready, no new connections, waiting fetches and joins answered, requests under way
// finished, groups handed over, logs flushed and closed. It takes at most until ctx ends. A broker that was replaced leaves
// its files as they are.
func (b *Broker) Stop(ctx context.Context) error {
	b.ready.Store(false)
	b.server.StopAccepting()
	_ = b.tellState(ctx, meta.BrokerStopping)
	b.releaseParked()
	b.groups.Release(ctx)
	draining, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	if err := b.server.Drain(draining); err != nil {
		b.log.Warn("requests were still in progress at the end of the stop", "err", err)
	}
	settling, cancel := context.WithDeadline(ctx, deadlineOf(ctx).Add(-flushReserve))
	defer cancel()
	b.groups.Close(settling)
	b.stop()
	b.running.Wait()
	b.server.Close()
	if b.fenced.Load() {
		return nil // the files may be another process' by now; the end of this one closes them, and gives the lock back
	}
	err := b.segments.Close(true, b.owner.Incarnation)
	if stateErr := b.state.Close(); err == nil {
		err = stateErr
	}
	// Also when the flush has used up the time: the next process would wait for the lease to run out.
	if stopErr := b.tellState(context.WithoutCancel(ctx), meta.BrokerStopped); stopErr != nil {
		b.log.Warn("postgres was not told that this broker stopped; its lease runs out by itself", "err", stopErr)
	}
	return err
}

// deadlineOf is when a context ends, a stop's usual limit from now if it has no deadline.
func deadlineOf(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(drainLimit + flushReserve)
}

// tellState writes this broker's state for operators.
func (b *Broker) tellState(ctx context.Context, s meta.BrokerState) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	return b.store.SetBrokerState(ctx, b.owner, s)
}

// goRun starts a goroutine that Stop waits for.
func (b *Broker) goRun(f func()) {
	b.running.Add(1)
	go func() {
		defer b.running.Done()
		f()
	}()
}

// fail reports the first failure that must end the process.
func (b *Broker) fail(err error) {
	select {
	case b.fatal <- err:
	default:
	}
}

// Bootstrap lists the advertised addresses, one per listener. Valid after Start.
func (b *Broker) Bootstrap() []string {
	var out []string
	for _, e := range b.endpoints() {
		out = append(out, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	}
	return out
}

// Abandon closes the listeners of a broker whose Start failed.
func (b *Broker) Abandon() { b.server.Close() }
