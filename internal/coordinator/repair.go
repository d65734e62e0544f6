package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/seededbug"
)

// committed notes that a part of a transaction is stored. What a crash could take back is kept before anybody hears of it.
func (p *pipe) committed(class durability, s *sending) {
	p.seq, p.version = s.change.Seq+1, max(p.version, s.version)
	if class == durable {
		p.settle(p.seq)
	} else if p.seq > p.settled {
		p.missing.add(&s.change, p.seq)
	}
}

// failsAlone says whether a refused part is given up. One that met somebody else's row is tried again, above that row; what
// belongs to a transactional id is judged anew by its shard.
func (s *sending) failsAlone(err error) bool {
	if len(s.ops) == 0 || !s.ops[0].solo {
		return false
	}
	return !errors.Is(err, meta.ErrRowMoved) || s.ops[0].ofTxn() || s.ops[0].shadow
}

// takeBrokenLocked makes shards busy of which Postgres may have lost something; one repair at a time.
func (c *committer) takeBrokenLocked() (pipes []*pipe) {
	if c.repairing || c.lost {
		return nil
	}
	for _, p := range c.pipes {
		if p != nil && !p.busy && p.broken() {
			p.busy = true
			pipes = append(pipes, p)
		}
	}
	c.repairing = len(pipes) > 0
	return pipes
}

// repair compares shards with Postgres and puts back what it has lost.
func (c *committer) repair(ctx context.Context, pipes []*pipe) {
	_, err := c.resolve(ctx, pipes, false, nil)
	if errors.Is(err, meta.ErrFenced) {
		c.lose()
	}
	c.mu.Lock()
	for _, p := range pipes {
		p.busy = false
	}
	c.repairing = false
	c.noteIdleLocked()
	c.mu.Unlock()
	c.signal()
}

// resolve finds out what became of the shards' commits, however long Postgres is away, and puts back what is missing.
// Nothing of these shards goes on before that. unknown says that each has a commit under way whose outcome is not known.
func (c *committer) resolve(ctx context.Context, pipes []*pipe, unknown bool, cause error) (map[int16]meta.Resolved, error) {
	if cause != nil {
		c.log.Warn("outcome of a commit is not known yet", "shards", len(pipes), "err", cause)
	}
	backoff := shortestBackoff
	var said time.Time
	for {
		asked, err := c.askFor(ctx, pipes, unknown)
		var resolved []meta.Resolved
		if err == nil {
			err = c.call(ctx, func(ctx context.Context) (err error) {
				resolved, err = c.store.ResolveShards(ctx, c.owner, asked)
				return err
			})
		}
		switch {
		case err == nil && len(resolved) == len(pipes):
			if out, all := c.resolved(pipes, asked, resolved); all {
				return out, nil
			}
			continue // asked again, with everything that the shard holds
		case errors.Is(err, meta.ErrFenced), errors.Is(err, ErrNotCoordinator):
			return nil, err
		case ctx.Err() != nil:
			return nil, ErrNotCoordinator
		case !errors.Is(err, meta.ErrUnavailable) && !errors.Is(err, meta.ErrUnknownOutcome) && time.Since(said) > time.Minute:
			said = time.Now()
			c.log.Error("shards cannot be compared with what Postgres has; they wait until they can", "shards", len(pipes), "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, longestBackoff)
	}
}

// askFor is what to ask of Postgres about shards, as they are known now.
func (c *committer) askFor(ctx context.Context, pipes []*pipe, unknown bool) ([]meta.Resolve, error) {
	asked := make([]meta.Resolve, len(pipes))
	var full []int16
	c.mu.Lock()
	for i, p := range pipes {
		asked[i] = meta.Resolve{Shard: p.shard, Term: p.term, Seq: p.seq, Unknown: unknown, Settled: p.settled,
			Missing: p.missing.change(), Highest: max(p.version, p.seq)}
		if p.full {
			full = append(full, p.shard)
		}
	}
	c.mu.Unlock()
	if len(full) == 0 {
		return asked, nil
	}
	memory, err := c.memory(ctx, full)
	if err != nil {
		return nil, err
	}
	for i := range asked {
		if rows, ok := memory[asked[i].Shard]; ok {
			asked[i].All = &rows
		}
	}
	return asked, nil
}

// resolved takes note of the outcomes; all is false while a shard must be asked again.
func (c *committer) resolved(pipes []*pipe, asked []meta.Resolve, got []meta.Resolved) (out map[int16]meta.Resolved, all bool) {
	out, all = make(map[int16]meta.Resolved, len(got)), true
	c.mu.Lock()
	for i, r := range got {
		p := pipes[i]
		out[r.Shard] = r
		switch {
		case r.NeedAll:
			p.full, all = true, false
		case r.TookEffect: // the rest, if it is wanted, after this commit has been told
		default:
			p.recheck = false
			p.full = p.full && asked[i].All == nil
			if r.Seq > asked[i].Seq { // a durable commit, with everything in it
				p.seq = r.Seq
				p.settle(r.Seq)
			}
		}
		for _, o := range r.Found.Offsets {
			p.version = max(p.version, o.Version)
		}
	}
	c.mu.Unlock()
	for _, r := range got {
		if r.PutBack+r.Removed > 0 {
			c.log.Warn("Postgres had lost changes; they are put back", "shard", r.Shard, "rows", r.PutBack, "deleted", r.Removed, "seq", r.Seq)
			c.meter.putBack.Add(float64(r.PutBack + r.Removed))
		}
		c.adopt(r.Shard, r.Found)
	}
	return out, all
}

// readAgain takes over what somebody else has written in shards, so that the next attempt comes after it.
func (c *committer) readAgain(ctx context.Context, pipes []*pipe) {
	shards := make([]meta.Shard, len(pipes))
	for i, p := range pipes {
		shards[i] = meta.Shard{Shard: p.shard, Term: p.term}
	}
	var rows map[int16]meta.ShardRows
	err := c.call(ctx, func(ctx context.Context) (err error) {
		rows, err = c.store.LoadShards(ctx, c.owner, shards)
		return err
	})
	if err != nil {
		return // the next attempt meets the row again
	}
	c.mu.Lock()
	for _, p := range pipes {
		p.version = max(p.version, highestVersion(rows[p.shard]))
	}
	c.mu.Unlock()
	for shard, r := range rows {
		c.adopt(shard, r)
	}
}

// highestVersion is that of a shard's rows.
func highestVersion(r meta.ShardRows) (highest int64) {
	for i := range r.Groups {
		highest = max(highest, r.Groups[i].Version)
	}
	for i := range r.Members {
		highest = max(highest, r.Members[i].Version)
	}
	for i := range r.Offsets {
		highest = max(highest, r.Offsets[i].Version)
	}
	for i := range r.Transactions {
		highest = max(highest, r.Transactions[i].Version)
	}
	for i := range r.Pending {
		highest = max(highest, r.Pending[i].Version)
	}
	return highest
}

func (c *committer) standing() (s Standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, p := range c.pipes {
		if p != nil {
			s.seq[n], s.settled[n] = p.seq, p.settled
		}
	}
	return s
}

// renewed compares what a renewal has read with what was known when it was sent.
func (c *committer) renewed(sent Standing, seqs map[int16]int64) {
	c.mu.Lock()
	for n, p := range c.pipes {
		seq, ok := seqs[int16(n)]
		switch {
		case p == nil || !ok:
		case seq < sent.settled[n]:
			p.full = true
		case seq < sent.seq[n]:
			p.recheck = true
		default:
			if seededbug.On(seededbug.SettleUnseen) {
				seq = p.seq
			}
			p.settle(seq)
		}
	}
	c.noteIdleLocked()
	c.mu.Unlock()
	c.signal()
}

// retake goes on under terms that were won after the database went back.
func (c *committer) retake(shards []meta.Shard) {
	c.mu.Lock()
	for _, s := range shards {
		if p := c.pipes[s.Shard]; p != nil {
			p.term, p.full = max(p.term, s.Term), true
		}
	}
	c.mu.Unlock()
	c.signal()
}
