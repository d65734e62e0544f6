package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Store is what the coordinator needs of meta.ShardStore.
type Store interface {
	CommitShards(ctx context.Context, owner int32, changes []meta.ShardChange) error
	CommitShardsRelaxed(ctx context.Context, owner int32, changes []meta.ShardChange) error
	ResolveShards(ctx context.Context, owner int32, shards []meta.Resolve) ([]meta.Resolved, error)
	LoadShards(ctx context.Context, owner int32, shards []meta.Shard) (map[int16]meta.ShardRows, error)
}

const (
	commitsAtOnce = 2      // transactions of a class under way
	rowsPerCommit = 20_000 // of one transaction; what is more waits for the next
	storeCallMax  = 10 * time.Second
	// A few commits go at once. When they keep coming, transactions are spaced out by up to 4 ms so that they share:
	// 2,000 consumers that commit every second need an eighth as many transactions. (Kafka's coordinator waits
	// group.coordinator.append.linger.ms before each write.)
	commitsPerSecond = 250
	commitsBurst     = 100
	shortestBackoff  = 20 * time.Millisecond
	longestBackoff   = 250 * time.Millisecond
)

// durability is the class of a transaction.
type durability int

const (
	durable durability = iota
	relaxed            // a crash of Postgres can take it back until it is settled; see unsettled
	classes
)

// committer writes what all shards have decided, many changes to one transaction. While a transaction is under way
// its shards' next changes gather. It never has two under way for one shard, so a shard's changes stay in order.
type committer struct {
	store   Store
	owner   int32
	relaxed bool // what need not wait for the disk does not
	log     *slog.Logger
	health  *health
	meter   *metrics
	fenced  func() // called once, without a lock
	memory  func(ctx context.Context, shards []int16) (map[int16]meta.ShardRows, error)
	adopt   func(shard int16, rows meta.ShardRows)

	mu        sync.Mutex
	pipes     [meta.Shards]*pipe // nil: not ours
	inFlight  [classes]int
	carried   [classes]int // decisions of the transaction that started last
	repairing bool
	closing   bool // everything is to be settled
	backoff   time.Duration
	notUntil  time.Time // nothing is sent before
	allowed   float64   // transactions that may start at once, as of counted
	counted   time.Time
	lost      bool
	idle      []chan struct{} // closed when nothing is queued or under way
	wake      chan struct{}   // capacity 1
	running   sync.WaitGroup
}

func newCommitter(store Store, owner int32, log *slog.Logger, h *health, m *metrics, fenced func()) *committer {
	return &committer{store: store, owner: owner, log: log, health: h, meter: m, fenced: fenced,
		adopt: func(int16, meta.ShardRows) {}, allowed: commitsBurst, counted: time.Now(), wake: make(chan struct{}, 1)}
}

// open makes shards ours. What an earlier owner's time left is forgotten.
func (c *committer) open(shards []meta.Shard, rows map[int16]meta.ShardRows) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost, c.closing = false, false
	for _, s := range shards {
		p := &pipe{shard: s.Shard, term: s.Term, seq: s.Seq, settled: s.Seq}
		p.version = highestVersion(rows[s.Shard])
		c.pipes[s.Shard] = p
	}
}

// submit queues a decision; false when the shard is not ours.
func (c *committer) submit(o *op) bool {
	c.mu.Lock()
	p := c.pipes[o.shard]
	if p == nil || c.lost {
		c.mu.Unlock()
		return false
	}
	o.durable = !c.relaxed || o.needsDisk()
	p.queue = append(p.queue, o)
	c.mu.Unlock()
	c.signal()
	return true
}

func (c *committer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run sends until ctx ends, then waits for what is under way.
func (c *committer) run(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for ctx.Err() == nil {
		wait := c.sendReady(ctx)
		retry.Reset(wait)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-retry.C:
		}
	}
	c.running.Wait()
	c.drop(ErrNotCoordinator)
}

// sendReady starts transactions while there is something to send and a slot free. It returns after how long to look
// again.
func (c *committer) sendReady(ctx context.Context) time.Duration {
	for {
		now := time.Now()
		c.mu.Lock()
		start, late, wait := c.nextLocked(ctx, now)
		c.noteIdleLocked()
		c.mu.Unlock()
		finish(late, ErrNotAvailable)
		if start == nil {
			return wait
		}
		c.running.Go(start)
	}
}

// nextLocked is what to start now, or after how long to look again. late are decisions whose callers have given up.
func (c *committer) nextLocked(ctx context.Context, now time.Time) (start func(), late []*op, wait time.Duration) {
	if wait := c.notUntil.Sub(now); wait > 0 {
		return nil, nil, wait
	}
	if pipes := c.takeBrokenLocked(); len(pipes) > 0 {
		return func() { c.repair(ctx, pipes) }, nil, 0
	}
	for class := range classes {
		if c.inFlight[class] >= commitsAtOnce || class == relaxed && !c.relaxed {
			continue
		}
		if c.inFlight[class] > 0 && c.waitingLocked(class) < 4*c.carried[class] {
			continue // its end looks again
		}
		if wait := c.paceLocked(now); wait > 0 {
			return nil, late, wait
		}
		parts, tooLate := c.takeLocked(now, class)
		late = append(late, tooLate...)
		if len(parts) > 0 {
			c.inFlight[class]++
			c.allowed--
			c.carried[class] = 0
			for _, s := range parts {
				c.carried[class] += len(s.ops)
			}
			return func() { c.send(ctx, class, parts) }, late, 0
		}
	}
	return nil, late, time.Hour
}

// waitingLocked is how many decisions of a class could go now. A transaction starts beside another one only with four
// times as many: what comes in small numbers at about the same time shares, instead of going one by one.
func (c *committer) waitingLocked(class durability) (n int) {
	all := class == durable && c.fullLocked()
	for _, p := range c.pipes {
		if p != nil && len(p.queue) > 0 && p.ready(class, all) {
			n += len(p.queue)
		}
	}
	return n
}

// paceLocked is how long the next transaction has to wait for company.
func (c *committer) paceLocked(now time.Time) time.Duration {
	c.allowed = min(commitsBurst, c.allowed+now.Sub(c.counted).Seconds()*commitsPerSecond)
	c.counted = now
	if c.allowed >= 1 {
		return 0
	}
	return time.Duration((1-c.allowed)/commitsPerSecond*float64(time.Second)) + time.Microsecond
}

// takeLocked builds the next transaction of all shards that have something of a class and nothing under way. late are
// decisions whose callers have given up. Decisions that span shards choose first: they wait until all of theirs are free.
func (c *committer) takeLocked(now time.Time, class durability) (parts []*sending, late []*op) {
	t := &taking{pipes: &c.pipes, budget: rowsPerCommit, by: map[int16]*sending{}}
	for _, p := range c.pipes {
		if p == nil || p.busy || len(p.queue) == 0 {
			continue
		}
		late = append(late, p.dropLate(now)...)
	}
	all := class == durable && c.fullLocked()
	for _, spanning := range []bool{true, false} {
		for _, p := range c.pipes {
			if p == nil || len(p.queue) == 0 || t.by[p.shard] == nil && !p.ready(class, all) || spanning && len(p.queue[0].also) == 0 {
				continue
			}
			t.take(p)
		}
	}
	for _, p := range c.pipes {
		if c.closing && class == durable && p != nil && !p.busy && !p.broken() && !t.full && len(p.queue) == 0 && p.missing.rows() > 0 {
			t.touch(p)
		}
	}
	for _, s := range t.parts {
		s.seal()
	}
	return t.parts, late
}

// fullLocked says whether no more can be kept for Postgres. The commits that follow are durable, and settle what their
// shards have.
func (c *committer) fullLocked() bool {
	if !c.relaxed {
		return true
	}
	rows := 0
	for _, p := range c.pipes {
		if p != nil {
			rows += p.missing.rows()
		}
	}
	return rows > unsettledRows || c.closing
}

// send commits one transaction and sees to it that its outcome is known.
func (c *committer) send(ctx context.Context, class durability, parts []*sending) {
	changes := make([]meta.ShardChange, len(parts))
	pipes := make([]*pipe, len(parts))
	ops := 0
	for i, s := range parts {
		changes[i], pipes[i] = s.change, s.pipe
		ops += len(s.ops)
	}
	commit := c.store.CommitShards
	if class == relaxed {
		commit = c.store.CommitShardsRelaxed
	}
	err := c.call(ctx, func(ctx context.Context) error { return commit(ctx, c.owner, changes) })
	c.meter.committed(ops, err)
	var resolved map[int16]meta.Resolved
	switch {
	case uncertain(ctx, err):
		resolved, err = c.resolve(ctx, pipes, !errors.Is(err, meta.ErrStale), err)
	case errors.Is(err, meta.ErrRowMoved) && len(parts[0].ops) > 0 && parts[0].ops[0].solo:
		c.readAgain(ctx, pipes)
	}
	c.settle(class, parts, resolved, err)
	c.signal()
}

// uncertain says whether a commit may have been done, or its guard must be read again. A call that our own shutdown
// or time limit cut off is one.
func uncertain(ctx context.Context, err error) bool {
	return errors.Is(err, meta.ErrUnknownOutcome) || errors.Is(err, meta.ErrStale) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || err != nil && ctx.Err() != nil
}

// call is one store call, bounded in time and seen by the health, which may cut it off.
func (c *committer) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeCallMax)
	defer cancel()
	began := time.Now()
	id := c.health.begin(began, cancel)
	err := f(ctx)
	c.health.end(id, time.Now(), errors.Is(err, meta.ErrUnavailable) || errors.Is(err, meta.ErrUnknownOutcome))
	c.meter.storeCall(time.Since(began))
	return err
}

// settle gives every decision of a transaction its outcome: stored, or queued again in front, or failed.
func (c *committer) settle(class durability, parts []*sending, resolved map[int16]meta.Resolved, err error) {
	away := errors.Is(err, meta.ErrUnavailable) || errors.Is(err, meta.ErrForked)
	over := errors.Is(err, meta.ErrFenced) || errors.Is(err, ErrNotCoordinator)
	refused := err != nil && !away && !over
	if refused {
		c.log.Error("postgres refused a change", "err", err)
	}
	var done, failed []*op
	c.mu.Lock()
	again, ours := false, false
	for _, s := range parts {
		p := s.pipe
		ours = ours || c.pipes[p.shard] == p
		r, ok := resolved[p.shard]
		switch {
		case ok && r.TookEffect, err == nil && !ok:
			p.committed(class, s)
			done = append(done, s.ops...)
		case over, refused && s.failsAlone(err):
			failed = append(failed, s.ops...)
		default:
			s.ops = slices.DeleteFunc(s.ops, func(o *op) bool { return o.shadow }) // their decisions are queued again
			for _, o := range s.ops {
				o.solo = o.solo || refused
			}
			p.queue = append(s.ops, p.queue...)
			again = true
		}
	}
	c.waitLocked(again && !refused)
	c.mu.Unlock()
	// A decision that spans shards is told last: whoever hears of it finds it in all of them.
	slices.SortStableFunc(done, func(a, b *op) int { return min(len(a.also), 1) - min(len(b.also), 1) })
	finish(done, nil)
	if over {
		finish(failed, ErrNotCoordinator)
	} else if errors.Is(err, meta.ErrRowMoved) {
		finish(failed, meta.ErrRowMoved)
	} else {
		finish(failed, ErrNotAvailable)
	}
	if errors.Is(err, meta.ErrFenced) && ours {
		c.lose()
	}
	c.mu.Lock()
	for _, s := range parts {
		s.pipe.busy = false // now its shard has heard of it: what it holds is what is stored
	}
	c.inFlight[class]--
	c.noteIdleLocked()
	c.mu.Unlock()
}

// waitLocked spaces out attempts while Postgres is away.
func (c *committer) waitLocked(failing bool) {
	if !failing {
		c.backoff, c.notUntil = 0, time.Time{}
		return
	}
	c.backoff = min(max(2*c.backoff, shortestBackoff), longestBackoff)
	c.notUntil = time.Now().Add(c.backoff)
}

// lose ends everything: a newer owner has the shards.
func (c *committer) lose() {
	c.mu.Lock()
	first := !c.lost
	c.lost = true
	c.mu.Unlock()
	c.drop(ErrNotCoordinator)
	if first {
		c.fenced()
	}
}

// drop fails what is queued.
func (c *committer) drop(err error) {
	var all []*op
	c.mu.Lock()
	for _, p := range c.pipes {
		if p != nil {
			all = append(all, p.queue...)
			p.queue = nil
		}
	}
	c.noteIdleLocked()
	c.mu.Unlock()
	finish(all, err)
}

func finish(ops []*op, err error) {
	for _, o := range ops {
		if err == nil || !o.shadow {
			o.done(err)
		}
	}
}

// whenSettled is closed when everything submitted so far has its outcome, and nothing of it can be taken back.
func (c *committer) whenSettled() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	done := make(chan struct{})
	c.idle = append(c.idle, done)
	c.noteIdleLocked()
	c.signal()
	return done
}

func (c *committer) noteIdleLocked() {
	if len(c.idle) == 0 || c.inFlight != [classes]int{} || c.repairing {
		return
	}
	for _, p := range c.pipes {
		if p != nil && (len(p.queue) > 0 || c.closing && p.missing.rows() > 0) {
			return
		}
	}
	for _, done := range c.idle {
		close(done)
	}
	c.idle = nil
}
