package logtool

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
)

// logCheck verifies one partition's log.
type logCheck struct {
	logState
	v     *verifier
	name  partition
	files partitionFiles

	point     int64 // recovery point: below it everything is durable
	start     int64 // log start, as far as the checkpoint tells
	gapsBelow int64 // compaction may have left gaps below this offset
	row       stateRow
	hasRow    bool

	terms     []termLine // as the batches have them
	producers producerTable
	snapshots []int64       // still to be compared, in order
	gaveUp    bool          // a repair put batches without records in the place of damaged ones
	good      map[int]int64 // by segment: bytes of good batches, of those that were read to their end
	largestID int64         // producer id in a batch, -1 none
	lost      bool          // a fault hides batches: what is recomputed from here on counts no more
}

func newLogCheck(v *verifier, dir string, p partition, files partitionFiles) *logCheck {
	c := &logCheck{logState: logState{dir: dir, lastTerm: -1}, v: v, name: p, files: files, point: v.points[p].offset,
		start: v.starts[p].offset, gapsBelow: v.cleaned[p].offset, snapshots: files.snapshots,
		good: map[int]int64{}, largestID: -1}
	if slices.Contains(v.opts.Compacted, p.topic) {
		c.gapsBelow = math.MaxInt64
	}
	return c
}

// compacted says that batches may be missing, by compaction or a repair, so that what they meant cannot be recomputed.
func (c *logCheck) compacted() bool { return c.gapsBelow > 0 || c.gaveUp }

func (c *logCheck) path(file string) string { return filepath.Join(c.v.dir, file) }

// size is the length of a segment's log file, 0 if it cannot be known.
func (c *logCheck) size(s segmentFiles) int64 {
	info, err := c.v.fs.Stat(c.path(filepath.Join(c.dir, s.stem+logSuffix)))
	if err != nil {
		return 0
	}
	return info.Size()
}

// settled says that segment i must be right with all its files: it lies below the recovery point. A point equal to the
// next segment's base may be older than the indexes.
func (c *logCheck) settled(i int) bool {
	return i+1 < len(c.files.segments) && c.files.segments[i+1].base < c.point
}

// run reads all segments and compares what they amount to.
func (c *logCheck) run(ctx context.Context) error {
	if len(c.files.segments) == 0 {
		c.v.report(c.v.mild(c.point > c.start), c.dir, -1, "has no log file")
		return nil
	}
	c.first = c.files.segments[0].base
	c.end = c.first
	c.start = max(c.start, c.first)
	c.seed()
	for i := range c.files.segments {
		goOn, err := c.segment(ctx, i)
		if err != nil {
			return err
		}
		if !goOn {
			break
		}
	}
	c.known = !c.lost
	c.compareSnapshots(math.MaxInt64, true)
	c.compareTerms()
	return nil
}

// segment reads one segment; false means that the log ends in it.
func (c *logCheck) segment(ctx context.Context, i int) (goOn bool, err error) {
	s := c.files.segments[i]
	file := filepath.Join(c.dir, s.stem+logSuffix)
	r, err := openSegment(c.v.fs, c.path(file))
	if c.v.live && errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
		c.lost = true
		return true, nil
	}
	if err != nil {
		c.v.reportErr(Error, file, err)
		c.damaged(damageUnreadable, i, 0, -1)
		c.lost = true
		return true, nil
	}
	defer r.close()
	defer func() { c.v.summary.Bytes += r.at; c.v.progress() }()
	if i > 0 && !c.joins(i, file) {
		return false, nil
	}
	x := newIndexCheck(c, i, r.size)
	for n := 0; ; n++ {
		if n%256 == 0 {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			c.v.progress()
		}
		b, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errZeros) {
			if i < len(c.files.segments)-1 {
				c.v.report(c.v.mild(c.settled(i)), file, r.at, "%d zero bytes follow the last batch", r.size-r.at)
			}
			break
		}
		var raw []byte
		if err == nil {
			raw, err = r.bytes(&b)
		}
		switch c.accept(i, file, &b, raw, err) {
		case batchGood:
			x.batch(&b)
			continue
		case batchSkipped:
			x.blind = true
			continue
		case batchLast:
			x.blind = true
			return true, nil
		}
		c.good[i] = r.at - int64(b.size)
		x.finish(c.good[i])
		return false, nil
	}
	c.good[i] = r.at
	x.finish(r.at)
	return true, nil
}

// joins checks that segment i begins where the log has come to; false ends the log here.
func (c *logCheck) joins(i int, file string) bool {
	s := c.files.segments[i]
	switch {
	case s.base < c.end:
		c.v.report(Error, file, 0, "begins at offset %d, but the segment before ends at %d", s.base, c.end)
		c.damaged(damageOverlap, i, 0, s.base)
	case s.base > c.end && s.base > c.gapsBelow && !c.lost:
		severity := c.v.mild(s.base <= c.point)
		c.v.report(severity, file, 0, "offsets %d to %d are missing before it", c.end, s.base-1)
		if severity == Warning {
			return false // the next start cuts it off
		}
		c.damaged(damageGap, i, 0, s.base)
		c.lost = true
	}
	c.end = max(c.end, s.base)
	return true
}

// verdict says how to go on after a batch.
type verdict int

const (
	batchGood    verdict = iota
	batchSkipped         // it is broken, the next one may be good
	batchLast            // it is broken, and where the next one begins is not known
	batchCut             // the next start cuts the log here
)

// accept takes a batch that was read, or the error of reading it, into account.
func (c *logCheck) accept(i int, file string, b *batch, raw []byte, err error) verdict {
	var f *fault
	switch {
	case err == nil && !crcGood(raw):
		f = &fault{b.position, "CRC of the batch is wrong"}
	case err == nil && b.base < c.end:
		f = &fault{b.position, "offsets go back"}
	case err == nil:
		c.batch(i, file, b, raw)
		return batchGood
	case !errors.As(err, &f):
		c.v.reportErr(Error, file, err)
		c.damaged(damageUnreadable, i, b.position, -1)
		c.lost = true
		return batchLast
	}
	severity := c.v.mild(c.end < c.point)
	c.v.report(severity, file, f.position, "after offset %d: %s%s", c.end, f.what, c.behind(i, severity))
	if severity == Warning {
		return batchCut
	}
	c.damaged(damageBatch, i, f.position, -1)
	c.lost = true
	if err != nil {
		return batchLast
	}
	c.end = max(c.end, min(b.last()+1, c.limitOf(i))) // its header may be what is wrong
	return batchSkipped
}

func (c *logCheck) behind(i int, severity Severity) string {
	switch {
	case severity == Error:
		return ""
	case i < len(c.files.segments)-1:
		return "; the next start cuts here and drops the segments behind"
	}
	return "; the next start cuts here"
}

// batch checks one batch whose CRC is right and takes it into account.
func (c *logCheck) batch(i int, file string, b *batch, raw []byte) {
	s := c.files.segments[i]
	complain := func(severity Severity, format string, args ...any) {
		c.v.report(severity, file, b.position, format, args...)
	}
	switch {
	case b.base > c.end && b.base > c.gapsBelow && !c.lost && b.position == 0:
		complain(Error, "first batch begins at offset %d, the file's name says %d", b.base, s.base)
		c.damaged(damageGap, i, 0, b.base)
	case b.base > c.end && b.base > c.gapsBelow && !c.lost:
		complain(Error, "offsets %d to %d are missing (right only in a compacted topic)", c.end, b.base-1)
		c.damaged(damageGap, i, b.position, b.base)
	}
	if b.last()-s.base > math.MaxInt32 {
		complain(Error, "last offset %d is too far from the segment's base for its indexes", b.last())
	}
	if b.term < c.lastTerm {
		complain(Error, "term %d follows term %d", b.term, c.lastTerm)
	} else if b.term > c.lastTerm {
		c.lastTerm = b.term
		c.terms = append(c.terms, termLine{term: b.term, start: b.base})
	}
	if b.attributes&^knownAttributes != 0 {
		complain(Warning, "attributes %#x have bits that Kafka does not define", uint16(b.attributes))
	}
	switch {
	case b.transactional() && b.producer < 0:
		complain(Error, "batch of a transaction has no producer id")
	case b.producer >= 0 && !b.control() && (b.epoch < 0 || b.sequence < 0):
		complain(Error, "producer id %d has epoch %d and sequence %d", b.producer, b.epoch, b.sequence)
	}
	ctl, err := c.content(b, raw)
	if b.fillsHole() && b.base >= c.gapsBelow {
		complain(Warning, "offsets %d to %d hold no records: a repair gave them up", b.base, b.last())
		c.gaveUp, c.producers.thinned, err = true, true, nil
	}
	if err != nil {
		complain(Error, "%v", err)
	}
	c.compareSnapshots(b.base, false)
	if len(c.snapshots) > 0 && c.snapshots[0] <= b.last() {
		c.v.report(c.v.mild(c.snapshots[0] < c.point), filepath.Join(c.dir, stem(c.snapshots[0])+snapshotSuffix), -1,
			"its offset lies inside the batch from %d to %d", b.base, b.last())
		c.snapshots = c.snapshots[1:]
	}
	c.largestID = max(c.largestID, b.producer)
	if !c.lost {
		c.producers.apply(b, ctl, complain)
	}
	c.end = b.last() + 1
	c.v.summary.Batches++
	c.v.summary.Records += int64(max(0, b.count))
}
