package logtool

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// producerTable is what the batches so far say of producers and transactions.
type producerTable struct {
	byID map[int64]*producerTrack
	// exact says that nothing is unknown: the log begins at offset 0, or a snapshot at its first offset was taken over.
	exact bool
	// thinned says that compaction may have taken batches: gaps and transactions mean nothing then.
	thinned bool
	last    map[int64]endedTxn   // by producer id, its last marker
	open    map[int64]int64      // first offset of the open transaction of a producer id
	ended   map[int64]abortEntry // by offset, the abort markers of the present segment; first -1: no transaction was open
}

// producerTrack is a producerEntry and how much of it is known.
type producerTrack struct {
	producerEntry
	sequenced bool // a batch of data of this epoch was seen, or its absence is certain
}

func newProducerTable() producerTable {
	return producerTable{byID: map[int64]*producerTrack{}, open: map[int64]int64{}, ended: map[int64]abortEntry{},
		last: map[int64]endedTxn{}}
}

// seed takes over what the snapshot at the first offset says of the batches that are gone.
func (c *logCheck) seed() {
	c.producers = newProducerTable()
	c.producers.exact, c.producers.thinned = c.first == 0, c.compacted()
	for len(c.snapshots) > 0 && c.snapshots[0] <= c.first {
		offset := c.snapshots[0]
		if offset < c.first || offset == 0 {
			if offset < c.first {
				c.snapshots = c.snapshots[1:] // of records that are gone
				continue
			}
			return
		}
		file := filepath.Join(c.dir, stem(offset)+snapshotSuffix)
		data, err := readWhole(c.v.fs, c.path(file))
		var list []producerEntry
		if err == nil {
			list, err = parseSnapshot(data)
		}
		c.snapshots = c.snapshots[1:]
		if err != nil {
			c.v.reportErr(c.v.mild(offset < c.point), file, err)
			return
		}
		c.producers.exact = true
		for _, e := range list {
			c.producers.byID[e.producer] = &producerTrack{e, true}
			if e.txnFirst >= 0 {
				c.producers.open[e.producer] = e.txnFirst
			}
		}
	}
}

// apply takes a batch into the table (Kafka's ProducerAppendInfo) and complains where no producer could have written it.
func (t *producerTable) apply(b *batch, ctl *control, complain func(Severity, string, ...any)) {
	if b.producer < 0 || b.control() && (ctl == nil || ctl.kind != controlAbort && ctl.kind != controlCommit) {
		return
	}
	p, known := t.byID[b.producer]
	if !known {
		p = &producerTrack{producerEntry: producerEntry{producer: b.producer, epoch: -1, lastSequence: -1, lastOffset: -1,
			timestamp: -1, coordinatorTerm: -1, txnFirst: -1}}
		t.byID[b.producer] = p
	}
	if b.epoch < p.epoch {
		complain(Error, "producer id %d writes with epoch %d after epoch %d", b.producer, b.epoch, p.epoch)
	}
	if b.epoch != p.epoch {
		p.sequenced = known && b.epoch > p.epoch
		p.epoch, p.lastSequence, p.lastOffset, p.offsetDelta = b.epoch, -1, -1, 0
	}
	if b.control() {
		t.end(p, b, ctl)
	} else {
		if p.sequenced {
			t.checkSequence(p, b, complain)
		}
		p.lastSequence, p.lastOffset, p.offsetDelta, p.sequenced = b.lastSequence(), b.last(), b.lastDelta, true
		if _, open := t.open[b.producer]; b.transactional() && !open {
			t.open[b.producer], p.txnFirst = b.base, b.base
		} else if open && !b.transactional() && !t.thinned {
			complain(Error, "producer id %d writes outside of its open transaction", b.producer)
		}
	}
	p.timestamp = b.maxTime
}

// end takes a transaction marker.
func (t *producerTable) end(p *producerTrack, b *batch, ctl *control) {
	first, open := t.open[b.producer]
	delete(t.open, b.producer)
	p.coordinatorTerm, p.txnFirst = ctl.coordinatorTerm, -1
	t.last[b.producer] = endedTxn{offset: b.base, first: firstOr(first, open), kind: ctl.kind, epoch: b.epoch}
	if ctl.kind != controlAbort {
		return
	}
	e := abortEntry{producer: b.producer, first: firstOr(first, open), last: b.base, lastStable: b.base + 1}
	oldest := int64(-1)
	for _, other := range t.open {
		if oldest < 0 || other < oldest {
			oldest = other
		}
	}
	if oldest >= 0 {
		e.lastStable = oldest
	}
	t.ended[b.base] = e
}

// firstOr is the first offset of a transaction, -1 if none was open.
func firstOr(first int64, open bool) int64 {
	if !open {
		return -1
	}
	return first
}

// checkSequence: a producer's batches have rising sequences without gaps within one epoch; the first one of an epoch is 0.
func (t *producerTable) checkSequence(p *producerTrack, b *batch, complain func(Severity, string, ...any)) {
	want := int32((int64(p.lastSequence) + 1) % (1 << 31))
	if b.sequence == want {
		return
	}
	if ahead := uint32(b.sequence-want) & 0x7fffffff; ahead >= 1<<30 {
		complain(Error, "producer id %d epoch %d repeats sequence %d after %d", b.producer, b.epoch, b.sequence, p.lastSequence)
		return
	}
	if t.thinned {
		return
	}
	complain(Warning, "producer id %d epoch %d leaves out sequences %d to %d (right only if its state had expired)", b.producer, b.epoch, want, b.sequence-1)
}

// compareSnapshots compares the snapshots up to an offset with the table, which stands there; final says that no batch
// follows.
func (c *logCheck) compareSnapshots(upTo int64, final bool) {
	for len(c.snapshots) > 0 && c.snapshots[0] <= upTo {
		offset := c.snapshots[0]
		c.snapshots = c.snapshots[1:]
		file := filepath.Join(c.dir, stem(offset)+snapshotSuffix)
		severity := c.v.mild(offset < c.point)
		if final && offset > c.end {
			if !c.lost {
				c.v.report(severity, file, -1, "is behind the end of the log at %d", c.end)
			}
			continue
		}
		data, err := readWhole(c.v.fs, c.path(file))
		if c.v.live && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var list []producerEntry
		if err == nil {
			list, err = parseSnapshot(data)
		}
		if err != nil {
			c.v.reportErr(severity, file, err)
			continue
		}
		if !c.lost && !c.compacted() {
			c.compareProducers(severity, file, list)
		}
	}
}

// compareProducers compares one snapshot. Kafka forgets a producer that is silent for long, and one that comes back begins
// anew; a start moved up by DeleteRecords hides what was before. Both may leave out something, but claim nothing wrong.
func (c *logCheck) compareProducers(severity Severity, file string, list []producerEntry) {
	t := &c.producers
	listed := make(map[int64]bool, len(list))
	for i, e := range list {
		position := int64(snapshotHeaderSize + i*producerEntrySize)
		if listed[e.producer] {
			c.v.report(severity, file, position, "producer id %d is there twice", e.producer)
		}
		listed[e.producer] = true
		p, ok := t.byID[e.producer]
		if !ok {
			if t.exact || e.lastOffset >= c.first {
				c.v.report(severity, file, position, "producer id %d wrote nothing", e.producer)
			}
			continue
		}
		if p.lastOffset < c.start && c.start > c.first || !t.exact && !p.sequenced {
			continue
		}
		if e.epoch != p.epoch || e.lastSequence != p.lastSequence || e.lastOffset != p.lastOffset || e.offsetDelta != p.offsetDelta || e.timestamp != p.timestamp {
			c.v.report(severity, file, position, "producer id %d: epoch %d, sequence %d, offset %d+%d, time %d; the batches say epoch %d, sequence %d, offset %d+%d, time %d",
				e.producer, e.epoch, e.lastSequence, e.lastOffset, e.offsetDelta, e.timestamp,
				p.epoch, p.lastSequence, p.lastOffset, p.offsetDelta, p.timestamp)
		}
		if t.exact && e.coordinatorTerm != p.coordinatorTerm && e.coordinatorTerm != -1 {
			c.v.report(severity, file, position, "producer id %d: coordinator epoch %d, the batches say %d", e.producer, e.coordinatorTerm, p.coordinatorTerm)
		}
		if t.exact && e.txnFirst != p.txnFirst && (p.txnFirst < 0 || p.txnFirst >= c.start || e.txnFirst < p.txnFirst) {
			c.v.report(severity, file, position, "producer id %d: open transaction from %d, the batches say %d (-1 none)", e.producer, e.txnFirst, p.txnFirst)
		}
	}
	c.missingProducers(severity, file, listed)
}

// missingProducers looks for producers that a snapshot should have: with an open transaction, or heard of lately.
func (c *logCheck) missingProducers(severity Severity, file string, listed map[int64]bool) {
	info, err := c.v.fs.Stat(c.path(file))
	if err != nil {
		return
	}
	written := info.ModTime().UnixMilli()
	for id, p := range c.producers.byID {
		if listed[id] || p.lastOffset < c.start {
			continue
		}
		recent := p.timestamp > written-c.v.opts.ProducerExpiry.Milliseconds() && p.timestamp <= written
		if recent || p.txnFirst >= c.start {
			c.v.report(severity, file, -1, "producer id %d is missing, which wrote up to offset %d", id, p.lastOffset)
		}
	}
}
