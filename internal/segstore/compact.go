package segstore

import (
	"context"
	"errors"
	"math"
	"time"
)

// cleaner compacts the logs of a store, one after the other, the dirtiest
// first (Kafka's LogCleaner and LogCleanerManager). It is one goroutine: it
// never holds a lock of a log while it reads or writes records, yields between
// chunks, and only takes sealed segments below the stable, durable part.
type cleaner struct {
	store *Store
	opts  CleanerOptions
	keys  offsetMap
	pace  pace
	chunk []byte
	buf   []byte

	rest map[*Log]time.Time // logs that are let alone until then
}

// cleanRetry is how long a log rests after a fault that passes, as a full disk.
const cleanRetry = time.Minute

func newCleaner(s *Store) *cleaner {
	return &cleaner{store: s, opts: s.opts.Cleaner, rest: map[*Log]time.Time{}, pace: pace{rate: s.opts.Cleaner.BytesPerSecond}}
}

// run compacts until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for c.once(ctx) {
		}
		c.keys.slots, c.chunk, c.buf = nil, nil, nil
		timer.Reset(max(c.opts.Backoff, time.Millisecond))
	}
}

// dirtiness is what there is to compact in a log.
type dirtiness struct {
	log          *Log
	segs         []*segment // from the first one to the last one that may be rewritten
	from, to     int64      // the dirty offsets
	clean, dirty int64      // bytes
	due          bool       // max.compaction.lag.ms has passed
	rebuilds     int        // of the log
}

func (d *dirtiness) ratio() float64 {
	if d.dirty == 0 {
		return 0
	}
	return float64(d.dirty) / float64(d.clean+d.dirty)
}

// once compacts the dirtiest log; false if none is dirty enough.
func (c *cleaner) once(ctx context.Context) bool {
	now := c.store.now()
	var best *dirtiness
	var worst float64
	live := map[*Log]time.Time{}
	for _, l := range c.store.Logs() {
		if until, resting := c.rest[l]; resting {
			live[l] = until
			if now.Before(until) {
				continue
			}
		}
		cfg := l.cfg.Load()
		if !cfg.Compact || l.usable() != nil {
			continue
		}
		d := l.dirtiness(cfg, now)
		ratio := d.ratio()
		worst = max(worst, ratio)
		enough := d.dirty > 0 && (d.due || ratio > cfg.MinDirtyRatio)
		if enough && (best == nil || ratio > best.ratio()) {
			best = &d
		}
	}
	c.rest = live
	if o := c.store.observer; o != nil {
		o.Dirtiest(worst, c.gaveUp())
	}
	if best == nil || ctx.Err() != nil {
		return false
	}
	return c.clean(ctx, best) == nil
}

// never is when a log is looked at again that cannot be compacted.
var never = time.Unix(math.MaxInt32*1000, 0)

func (c *cleaner) gaveUp() (n int) {
	for _, until := range c.rest {
		if until.Equal(never) {
			n++
		}
	}
	return n
}

// clean compacts one log and notes how far. A fault is the log's own matter:
// it is let alone until it may have passed, or for good, with one line.
func (c *cleaner) clean(ctx context.Context, d *dirtiness) error {
	l, began := d.log, time.Now()
	r := round{cleaner: c, log: l, dirty: *d, chunk: c.chunk, buf: c.buf}
	r.result = CleanResult{Topic: l.topic, Partition: l.partition, From: d.from, To: d.from}
	to, err := r.run(ctx)
	c.chunk, c.buf = r.chunk, r.buf
	if err == nil {
		err = l.setCleaned(to, d.rebuilds)
	}
	if errors.Is(err, errAborted) || errors.Is(err, ErrClosed) || ctx.Err() != nil || l.usable() != nil {
		return errAborted
	}
	log := c.store.log.With("topic", l.topic, "partition", l.partition)
	switch {
	case err == nil:
		r.result.To = to
		log.Debug("compacted", "offset", to, "read", r.result.Read, "written", r.result.Written)
	case isFull(err), errors.Is(err, ErrFull), isShort(err):
		c.rest[l] = c.store.now().Add(cleanRetry)
		log.Warn("not compacted for now", "err", err)
	default:
		c.rest[l] = never
		log.Error("not compacted any more until the next start", "err", err)
	}
	if r.filter.keyless > 0 {
		log.Warn("records without a key were dropped from a compacted topic", "records", r.filter.keyless)
	}
	r.result.Records, r.result.Kept = r.filter.read, r.filter.kept
	r.result.Took, r.result.Err = time.Since(began), err
	if o := c.store.observer; o != nil {
		o.Cleaned(r.result)
	}
	return err
}

// dirtiness looks at which sealed segments may be compacted: those below the
// first open transaction, the high watermark, the durable part and
// min.compaction.lag.ms (Kafka's LogCleanerManager.cleanableOffsets).
func (l *Log) dirtiness(cfg *LogConfig, now time.Time) dirtiness {
	l.saveNow()
	cleaned := l.store.cleanedTo(l)
	l.pos.Lock()
	segs, start, end, rebuilds := l.segments, l.start, l.end, l.rebuilds
	limit := min(l.stable, l.high, l.durable)
	l.pos.Unlock()
	if cleaned < start || cleaned > end {
		cleaned = start
	}
	d := dirtiness{log: l, from: cleaned, to: cleaned, rebuilds: rebuilds}
	for i, s := range segs[:len(segs)-1] {
		s.mu.RLock()
		size, end, sealed := s.size, s.end, s.sealed
		s.mu.RUnlock()
		isDirty := end > cleaned
		young := isDirty && cfg.MinCompactionLag > 0 && s.newest() > subTime(now.UnixMilli(), cfg.MinCompactionLag)
		if end > limit || !sealed || young {
			break
		}
		if isDirty {
			d.dirty += size
			d.to = end
			d.due = d.due || l.overdue(s, cfg, now)
		} else {
			d.clean += size
		}
		d.segs = segs[:i+1]
	}
	return d
}

// overdue says whether the first batch of a segment is older than
// max.compaction.lag.ms.
func (l *Log) overdue(s *segment, cfg *LogConfig, now time.Time) bool {
	if cfg.MaxCompactionLag <= 0 || cfg.MaxCompactionLag == math.MaxInt64 {
		return false
	}
	s.mu.RLock()
	first, size := s.firstTime, s.size
	s.mu.RUnlock()
	if first == noTimestamp && size > 0 {
		f, err := l.store.handles.acquire(&s.file)
		if err != nil {
			return false // whoever reads it will say so
		}
		defer l.store.handles.release(&s.file)
		sc := newScan(f, size)
		defer sc.close()
		h, err := sc.header(0)
		if err != nil {
			return false
		}
		first = h.MaxTimestamp
		s.mu.Lock()
		s.firstTime = first
		s.mu.Unlock()
	}
	return first > 0 && first < subTime(now.UnixMilli(), cfg.MaxCompactionLag)
}

// cleanedTo is the first offset that compaction has not seen, 0 if unknown.
func (s *Store) cleanedTo(l *Log) int64 {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	return s.cleaned[l.name()]
}

// setCleaned notes durably how far the log is compacted, unless it was
// truncated meanwhile.
func (l *Log) setCleaned(to int64, rebuilds int) error {
	l.tidyMu.Lock() // so that the name is not another log's by now
	defer l.tidyMu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	l.pos.Lock()
	truncated := l.rebuilds != rebuilds
	l.pos.Unlock()
	if truncated {
		return errAborted
	}
	s := l.store
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	s.cleaned[l.name()] = to
	return s.replaceLocked(cleanerFile, encodeOffsets(s.cleaned))
}

// pace spreads bytes over time.
type pace struct {
	rate float64 // bytes a second, 0 without limit
	next time.Time
}

// wait blocks until n more bytes may be read or written, or ctx ends.
func (p *pace) wait(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil || p.rate <= 0 {
		return err
	}
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	d := p.next.Sub(now)
	if d < 10*time.Millisecond {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
