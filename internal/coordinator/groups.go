package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Options of Groups. Durations and sizes that are zero have Kafka's defaults.
type Options struct {
	Owner      int32 // this broker's id
	Store      Store
	Log        *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: no metrics
	// Fenced is called once when Postgres says that a newer owner has the shards. Everything is answered with
	// ErrNotCoordinator from then on, until Load.
	Fenced func()
	// Relaxed: what need not wait for the disk is committed without (synchronous_commit=off), and kept until it is settled.
	Relaxed bool

	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms; negative: none
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	MaxSize               int           // group.max.size
	OffsetMetadataMax     int           // offset.metadata.max.bytes
	OffsetsRetention      time.Duration // offsets.retention.minutes
	RetentionCheck        time.Duration // offsets.retention.check.interval.ms
	CommitTimeout         time.Duration // offsets.commit.timeout.ms
	NewMemberWait         time.Duration // Kafka: 5 minutes, not configurable

	ConsumerSessionTimeout    time.Duration // group.consumer.session.timeout.ms
	ConsumerHeartbeatInterval time.Duration // group.consumer.heartbeat.interval.ms
	ConsumerMaxSize           int           // group.consumer.max.size
	ConsumerAssignors         []string      // group.consumer.assignors, the default first; those that do not exist are left out
	Migration                 Migration     // group.consumer.migration.policy
	// ConsumerTimes are what a group's own properties say. It is called at heartbeats, on the shards' goroutines; nil: none has any.
	ConsumerTimes func(group string) ConsumerTimes

	MailboxSize int // requests that one shard may have waiting

	Embedded ConsumerProtocol
	// TopicName looks a topic up; false when it does not exist. Offsets of topics that do not exist are removed.
	TopicName func(meta.UUID) (string, bool)
	// Topics is what consumer groups can subscribe to. It is called at each of their heartbeats, on the shards'
	// goroutines, and gives an equal pointer while nothing has changed.
	Topics func() *TopicView

	// Transactions need the logs, and producer ids that were never given out before, durably.
	Logs          TxnLogs
	NewProducerID func(context.Context) (int64, error)

	TxnIDExpiration time.Duration // transactional.id.expiration.ms
	TxnIDCleanup    time.Duration // transaction.remove.expired.transaction.cleanup.interval.ms
}

func (o *Options) setDefaults() {
	set(&o.InitialRebalanceDelay, 3*time.Second)
	o.InitialRebalanceDelay = max(o.InitialRebalanceDelay, 0)
	set(&o.MinSessionTimeout, 6*time.Second)
	set(&o.MaxSessionTimeout, 30*time.Minute)
	set(&o.OffsetsRetention, 7*24*time.Hour)
	set(&o.RetentionCheck, 10*time.Minute)
	set(&o.CommitTimeout, 5*time.Second)
	set(&o.NewMemberWait, 5*time.Minute)
	set(&o.TxnIDExpiration, 7*24*time.Hour)
	set(&o.TxnIDCleanup, time.Hour)
	set(&o.MaxSize, 1<<31-1)
	set(&o.OffsetMetadataMax, 4096)
	set(&o.ConsumerSessionTimeout, 45*time.Second)
	set(&o.ConsumerHeartbeatInterval, 5*time.Second)
	set(&o.ConsumerMaxSize, 1<<31-1)
	o.ConsumerAssignors = knownAssignors(o.ConsumerAssignors)
	if o.Topics == nil {
		none := &TopicView{}
		o.Topics = func() *TopicView { return none }
	}
	set(&o.MailboxSize, 8192)
	if o.Fenced == nil {
		o.Fenced = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func set[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

const (
	maxPending = 10_000 // ids of one group given out and not used
	maxIdle    = 4096   // groups of one shard of which nothing is stored
)

// Groups coordinates the consumer groups of this broker. All methods may be called at any time from any goroutine.
// A done function is called exactly once, possibly before the method returns, never under a lock, and must not block.
type Groups struct {
	opts      Options
	health    *health
	committer *committer
	shards    [meta.Shards]*shard
	gates     sync.Map // transactional id → *txnGate
	gatesLost atomic.Bool
	closing   atomic.Bool
	stop      chan struct{} // closed by Close: Run ends
	stopOnce  sync.Once
	ran       chan struct{} // closed when Run has returned
	running   atomic.Bool
}

// New makes the coordinator. It owns no shard before Load and answers nothing before Run.
func New(o Options) *Groups {
	o.setDefaults()
	g := &Groups{opts: o, health: newHealth(time.Now()), stop: make(chan struct{}), ran: make(chan struct{})}
	cfg := &settings{
		initialDelay: o.InitialRebalanceDelay, newMemberWait: o.NewMemberWait,
		maxSize: o.MaxSize, maxPending: maxPending, metadataMax: o.OffsetMetadataMax,
		retention: o.OffsetsRetention, embedded: o.Embedded, migration: o.Migration, topicName: o.TopicName, topics: o.Topics,
		consumer: &consumerSettings{
			session: o.ConsumerSessionTimeout, interval: o.ConsumerHeartbeatInterval,
			maxSize: o.ConsumerMaxSize, assignors: o.ConsumerAssignors, times: o.ConsumerTimes,
		},
	}
	meter := newMetrics(o.Registerer)
	g.committer = newCommitter(o.Store, o.Owner, o.Log, g.health, meter, g.lost)
	g.committer.relaxed = o.Relaxed
	meter.watch(o.Registerer, g.Unsettled)
	g.committer.memory, g.committer.adopt = g.memory, g.adopt
	for i := range g.shards {
		g.shards[i] = &shard{
			id: int16(i), cfg: cfg, log: o.Log, box: newMailbox(o.MailboxSize), health: g.health, committer: g.committer,
			meter: meter, timeout: o.CommitTimeout, sweep: o.RetentionCheck, queueMax: o.MailboxSize, idleMax: maxIdle, newID: newMemberID,
			entries: map[string]*entry{}, calls: map[token]*call{},
			logs: o.Logs, newProducerID: o.NewProducerID, gates: &g.gates, peers: &g.shards, txns: map[string]*txnEntry{},
			expiry: expiry{after: o.TxnIDExpiration, every: o.TxnIDCleanup, most: expireAtOnce},
		}
	}
	return g
}

// newMemberID is Kafka's: what the client calls itself, cut to what can be stored, and a random UUID.
func newMemberID(prefix string) string {
	prefix = prefix[:min(len(prefix), meta.MaxKeyBytes-37)]
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return prefix + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Run works until Close, or until ctx ends, which drops what is not stored yet. It owns one goroutine per shard, the
// committer's with at most two transactions, and a clock.
func (g *Groups) Run(ctx context.Context) error {
	g.running.Store(true)
	defer close(g.ran)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	storing, endStoring := context.WithCancel(ctx)
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	defer endStoring()

	g.health.tick(time.Now())
	var committing, shards sync.WaitGroup
	committing.Go(func() { g.committer.run(storing) })
	committing.Go(func() { g.tick(storing) })
	for _, s := range g.shards {
		shards.Go(func() { s.run(serving) })
	}
	select {
	case <-g.stop:
	case <-ctx.Done():
	}
	// The committer goes first, so that every decision's outcome finds its shard.
	endStoring()
	committing.Wait()
	endServing()
	shards.Wait()
	return ctx.Err()
}

func (g *Groups) tick(ctx context.Context) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			g.health.tick(time.Now())
		}
	}
}

// Load makes shards ours, with what they store. Members start with a full session. What was in memory of these shards
// is forgotten; its requests are answered with ErrNotCoordinator.
func (g *Groups) Load(shards []meta.Shard, rows map[int16]meta.ShardRows) {
	g.committer.open(shards, rows)
	g.gatesLost.Store(false)
	for _, row := range shards {
		s := g.shards[row.Shard]
		s.box.put(func(now time.Time) { s.load(now, row.Term, rows[row.Shard]) })
	}
	for _, row := range shards { // after all groups are loaded
		for _, p := range rows[row.Shard].Pending {
			home := g.shards[meta.ShardOf(p.Group)]
			home.box.put(func(time.Time) { home.entry(p.Group).held.store(p.ID, TopicPartition{p.TopicID, p.Partition}) })
		}
	}
}

// lost ends all shards; the committer has met a newer owner.
func (g *Groups) lost() {
	g.gatesLost.Store(true)
	for _, s := range g.shards {
		s.box.put(func(time.Time) { s.lose() })
	}
	g.opts.Fenced()
}

// SetStoreUp tells whether Postgres answers, as somebody else sees it who asks it all the time. While it is away no
// member expires.
func (g *Groups) SetStoreUp(up bool) { g.health.setUp(time.Now(), up) }

// Release answers requests that wait for members with ErrNotCoordinator, and refuses new ones; heartbeats, commits
// and reads go on. It comes before Close, which would not let the answers of commits under way be written first.
func (g *Groups) Release(ctx context.Context) {
	if g.running.Load() {
		g.stopShards(ctx)
	}
}

// Close answers requests that wait for members with ErrNotCoordinator, lets what is decided reach Postgres and be settled until
// ctx ends, and waits for Run to return. It may be called again.
func (g *Groups) Close(ctx context.Context) {
	if !g.closing.Swap(true) && g.running.Load() {
		g.stopShards(ctx)
		select {
		case <-g.committer.whenSettled():
		case <-ctx.Done():
		case <-g.ran:
		}
	}
	g.stopOnce.Do(func() { close(g.stop) })
	if g.running.Load() {
		<-g.ran
	}
}

// stopShards returns when all shards take nothing new, or ctx has ended.
func (g *Groups) stopShards(ctx context.Context) {
	var stopping sync.WaitGroup
	for _, s := range g.shards {
		stopping.Add(1)
		if !s.box.put(func(time.Time) { s.stop(); stopping.Done() }) {
			stopping.Done()
		}
	}
	stopped := make(chan struct{})
	go func() { stopping.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-ctx.Done():
	}
}

// submit hands a call to its shard.
func (g *Groups) submit(c *call, decide func(s *shard, e *entry, now time.Time)) {
	switch {
	case g.closing.Load():
		c.finish(nil, ErrNotCoordinator)
		return
	case meta.CheckKey(c.group) != nil:
		c.finish(nil, ErrInvalidGroupID)
		return
	}
	c.decide = decide
	s := g.shards[meta.ShardOf(c.group)]
	if err := s.box.offer(func(now time.Time) { s.handle(now, c) }); err != nil {
		c.finish(nil, err)
	}
}

// List shows all groups, by id.
func (g *Groups) List(done func([]GroupListing, error)) {
	all := &gathering[[]GroupListing]{left: len(g.shards), parts: make([][]GroupListing, len(g.shards)), done: func(parts [][]GroupListing, err error) {
		listed := slices.Concat(parts...)
		slices.SortFunc(listed, func(a, b GroupListing) int { return cmp.Compare(a.Group, b.Group) })
		done(listed, err)
	}}
	for i, s := range g.shards {
		if err := s.box.offer(func(time.Time) {
			if !s.ours {
				all.put(i, nil, ErrNotCoordinator)
				return
			}
			all.put(i, s.list(), nil)
		}); err != nil {
			all.put(i, nil, err)
		}
	}
}

// gathering waits for the parts of an answer that several shards give.
type gathering[T any] struct {
	mu    sync.Mutex
	left  int
	parts []T
	err   error
	done  func([]T, error)
}

func (w *gathering[T]) put(i int, part T, err error) {
	w.mu.Lock()
	w.parts[i] = part
	if err != nil {
		w.err = err
	}
	w.left--
	last := w.left == 0
	w.mu.Unlock()
	if last {
		w.done(w.parts, w.err)
	}
}

// TopicsDeleted forgets the offsets of topics that Postgres no longer has.
func (g *Groups) TopicsDeleted(ids []meta.UUID) {
	gone := make(map[meta.UUID]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	for _, s := range g.shards {
		s.box.put(func(time.Time) { s.topicsDeleted(gone) })
	}
}
