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
	ResolveShards(ctx context.Context, owner int32, changes []meta.ShardChange) ([]meta.Resolved, error)
	LoadShards(ctx context.Context, owner int32, shards []meta.Shard) (map[int16]meta.ShardRows, error)
}

const (
	commitsAtOnce = 2      // transactions under way
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

// committer writes what all shards have decided, many changes to one transaction. While a transaction is under way
// its shards' next changes gather. It never has two under way for one shard, so a shard's changes stay in order.
type committer struct {
	store  Store
	owner  int32
	log    *slog.Logger
	health *health
	meter  *metrics
	fenced func() // called once, without a lock

	mu       sync.Mutex
	pipes    [meta.Shards]*pipe // nil: not ours
	inFlight int
	backoff  time.Duration
	notUntil time.Time // nothing is sent before
	allowed  float64   // transactions that may start at once, as of counted
	counted  time.Time
	lost     bool
	idle     []chan struct{} // closed when nothing is queued or under way
	wake     chan struct{}   // capacity 1
	running  sync.WaitGroup
}

func newCommitter(store Store, owner int32, log *slog.Logger, h *health, m *metrics, fenced func()) *committer {
	return &committer{store: store, owner: owner, log: log, health: h, meter: m, fenced: fenced,
		allowed: commitsBurst, counted: time.Now(), wake: make(chan struct{}, 1)}
}

// open makes shards ours. What an earlier owner's time left is forgotten.
func (c *committer) open(shards []meta.Shard, rows map[int16]meta.ShardRows) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = false
	for _, s := range shards {
		p := &pipe{shard: s.Shard, term: s.Term, seq: s.Seq}
		r := rows[s.Shard]
		for i := range r.Groups {
			p.version = max(p.version, r.Groups[i].Version)
		}
		for i := range r.Members {
			p.version = max(p.version, r.Members[i].Version)
		}
		for i := range r.Offsets {
			p.version = max(p.version, r.Offsets[i].Version)
		}
		for i := range r.Transactions {
			p.version = max(p.version, r.Transactions[i].Version)
		}
		for i := range r.Pending {
			p.version = max(p.version, r.Pending[i].Version)
		}
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
		if wait := c.notUntil.Sub(now); wait > 0 {
			c.mu.Unlock()
			return wait
		}
		if c.inFlight >= commitsAtOnce {
			c.mu.Unlock()
			return time.Hour
		}
		if wait := c.paceLocked(now); wait > 0 {
			c.mu.Unlock()
			return wait
		}
		parts, late := c.takeLocked(now)
		if len(parts) > 0 {
			c.inFlight++
			c.allowed--
		}
		c.noteIdleLocked()
		c.mu.Unlock()
		finish(late, ErrNotAvailable)
		if len(parts) == 0 {
			return time.Hour
		}
		c.running.Add(1)
		go c.send(ctx, parts)
	}
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

// takeLocked builds the next transaction of all shards that have something and nothing under way. late are decisions
// whose callers have given up. Decisions that span shards choose first: they wait until all of theirs are free.
func (c *committer) takeLocked(now time.Time) (parts []*sending, late []*op) {
	t := &taking{pipes: &c.pipes, budget: rowsPerCommit, by: map[int16]*sending{}}
	for _, p := range c.pipes {
		if p == nil || p.busy || len(p.queue) == 0 {
			continue
		}
		late = append(late, p.dropLate(now)...)
	}
	for _, spanning := range []bool{true, false} {
		for _, p := range c.pipes {
			if p == nil || len(p.queue) == 0 || p.busy && t.by[p.shard] == nil || spanning && len(p.queue[0].also) == 0 {
				continue
			}
			t.take(p)
		}
	}
	for _, s := range t.parts {
		s.seal()
	}
	return t.parts, late
}

// send commits one transaction and sees to it that its outcome is known.
func (c *committer) send(ctx context.Context, parts []*sending) {
	defer c.running.Done()
	changes := make([]meta.ShardChange, len(parts))
	ops := 0
	for i, s := range parts {
		changes[i] = s.change
		ops += len(s.ops)
	}
	err := c.call(ctx, func(ctx context.Context) error { return c.store.CommitShards(ctx, c.owner, changes) })
	c.meter.committed(ops, err)
	var resolved []meta.Resolved
	if uncertain(ctx, err) {
		resolved, err = c.resolve(ctx, changes, err)
	}
	c.settle(parts, resolved, err)
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

// resolve finds out what became of a transaction, however long Postgres is away. Nothing of these shards goes on
// before that.
func (c *committer) resolve(ctx context.Context, changes []meta.ShardChange, cause error) ([]meta.Resolved, error) {
	c.log.Warn("outcome of a commit is not known yet", "shards", len(changes), "err", cause)
	backoff := shortestBackoff
	for {
		var resolved []meta.Resolved
		err := c.call(ctx, func(ctx context.Context) (err error) {
			resolved, err = c.store.ResolveShards(ctx, c.owner, changes)
			return err
		})
		switch {
		case err == nil && len(resolved) == len(changes):
			return resolved, nil
		case errors.Is(err, meta.ErrFenced):
			return nil, err
		case ctx.Err() != nil:
			return nil, ErrNotCoordinator
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, longestBackoff)
	}
}

// settle gives every decision of a transaction its outcome: stored, or queued again in front, or failed.
func (c *committer) settle(parts []*sending, resolved []meta.Resolved, err error) {
	bySeq := map[int16]meta.Resolved{}
	for _, r := range resolved {
		bySeq[r.Shard] = r
	}
	refused := err != nil && !errors.Is(err, meta.ErrUnavailable) && !errors.Is(err, meta.ErrFenced) && !errors.Is(err, ErrNotCoordinator)
	if refused {
		c.log.Error("postgres refused a change", "err", err)
	}
	var done, failed []*op
	c.mu.Lock()
	again, ours := false, false
	for _, s := range parts {
		p := s.pipe
		p.busy = false
		ours = ours || c.pipes[p.shard] == p
		r, ok := bySeq[p.shard]
		switch {
		case ok && r.TookEffect, err == nil && !ok:
			p.seq, p.version = s.change.Seq+1, s.version
			if ok {
				p.seq = r.Seq
			}
			done = append(done, s.ops...)
		case errors.Is(err, meta.ErrFenced), errors.Is(err, ErrNotCoordinator):
			failed = append(failed, s.ops...)
		case refused && s.ops[0].solo:
			failed = append(failed, s.ops...)
		default:
			if ok {
				p.seq = r.Seq
			}
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
	if errors.Is(err, meta.ErrFenced) || errors.Is(err, ErrNotCoordinator) {
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
	c.inFlight--
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

// whenIdle is closed when everything submitted so far has its outcome.
func (c *committer) whenIdle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	c.idle = append(c.idle, done)
	c.noteIdleLocked()
	return done
}

func (c *committer) noteIdleLocked() {
	if len(c.idle) == 0 || c.inFlight > 0 {
		return
	}
	for _, p := range c.pipes {
		if p != nil && len(p.queue) > 0 {
			return
		}
	}
	for _, done := range c.idle {
		close(done)
	}
	c.idle = nil
}
