package logtool

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

// indexCheck follows a segment's batches with its indexes.
type indexCheck struct {
	c        *logCheck
	segment  segmentFiles
	severity Severity
	growing  bool // the indexes of this segment need not be there yet: it is written to, or was when the broker was killed

	offsets []offsetEntry
	times   []timeEntry
	nextOff int // entry to come
	nextTim int
	blind   bool // a batch of this segment is broken

	// Compaction leaves batches without records. Kafka's index counts their timestamps, ours does not, as no record has
	// them: an entry may follow either.
	all, filled largestTime
}

// largestTime is the largest timestamp so far, -1 none.
type largestTime struct {
	timestamp int64
	offset    int64 // last one of the first batch that has it
	fresh     bool  // the present batch brought it
}

func (l *largestTime) take(timestamp, last int64) {
	l.fresh = timestamp > l.timestamp
	if l.fresh {
		l.timestamp, l.offset = timestamp, last
	}
}

// maxUnindexed is how many bytes of a segment may go without an entry: more than index.interval.bytes and one batch
// usually are.
const maxUnindexed = 16 << 20

func newIndexCheck(c *logCheck, i int, size int64) *indexCheck {
	settled := c.settled(i) || c.v.clean
	x := &indexCheck{c: c, segment: c.files.segments[i], severity: c.v.mild(settled), growing: !settled}
	x.all.timestamp, x.filled.timestamp = -1, -1
	clear(c.producers.ended)
	data, err := x.read(indexSuffix, offsetEntrySize, size)
	if err == nil {
		x.offsets, err = parseOffsetIndex(data, x.segment.base)
	}
	x.complain(indexSuffix, err)
	data, err = x.read(timeSuffix, timeEntrySize, size)
	if err == nil {
		x.times, err = parseTimeIndex(data, x.segment.base)
	}
	x.complain(timeSuffix, err)
	x.checkOrder(size)
	return x
}

func (x *indexCheck) file(suffix string) string {
	return filepath.Join(x.c.dir, x.segment.stem+suffix)
}

func (x *indexCheck) complain(suffix string, err error) {
	if err != nil && !(x.c.v.live && errors.Is(err, fs.ErrNotExist)) {
		x.c.v.reportErr(x.severity, x.file(suffix), err)
	}
}

// read gives an index file; one that is missing is empty.
func (x *indexCheck) read(suffix string, entrySize int, logSize int64) ([]byte, error) {
	if !x.segment.indexes[suffix] {
		if logSize > 0 && !x.growing {
			x.c.v.report(Warning, x.file(suffix), -1, "is missing; the next start makes it anew")
			x.growing = true
		}
		return nil, nil
	}
	data, err := readWhole(x.c.v.fs, x.c.path(x.file(suffix)))
	if err != nil {
		return nil, err
	}
	cut := withoutPadding(data, entrySize)
	if len(cut) < len(data) && !x.growing {
		x.c.v.report(x.severity, x.file(suffix), int64(len(cut)), "%d zero bytes follow the last entry", len(data)-len(cut))
	}
	return cut, nil
}

// checkOrder checks what needs no batches (the sanityCheck of OffsetIndex and TimeIndex, and more).
func (x *indexCheck) checkOrder(size int64) {
	v := x.c.v
	for i, e := range x.offsets {
		if i > 0 && (e.offset <= x.offsets[i-1].offset || e.position <= x.offsets[i-1].position) {
			v.report(x.severity, x.file(indexSuffix), int64(i*offsetEntrySize), "offset %d at %d does not rise above offset %d at %d",
				e.offset, e.position, x.offsets[i-1].offset, x.offsets[i-1].position)
		}
	}
	if len(x.offsets) == 0 && size > maxUnindexed && !x.growing {
		v.report(x.severity, x.file(indexSuffix), -1, "no entry for %d bytes of log", size)
	}
	for i, e := range x.times {
		if i > 0 && (e.timestamp <= x.times[i-1].timestamp || e.offset < x.times[i-1].offset) {
			v.report(x.severity, x.file(timeSuffix), int64(i*timeEntrySize), "timestamp %d at offset %d does not rise above %d at offset %d",
				e.timestamp, e.offset, x.times[i-1].timestamp, x.times[i-1].offset)
		}
	}
}

// batch compares the entries that speak of the next batch.
func (x *indexCheck) batch(b *batch) {
	if x.blind {
		return
	}
	for ; x.nextOff < len(x.offsets) && x.offsets[x.nextOff].position <= b.position; x.nextOff++ {
		e, at := x.offsets[x.nextOff], int64(x.nextOff*offsetEntrySize)
		switch {
		case e.position < b.position:
			x.c.v.report(x.severity, x.file(indexSuffix), at, "position %d of offset %d is not the start of a batch", e.position, e.offset)
		case e.offset < b.base:
			x.c.v.report(x.severity, x.file(indexSuffix), at, "offset %d is before the batch at %d, which begins with %d", e.offset, e.position, b.base)
		case e.offset != b.last():
			x.c.v.report(Warning, x.file(indexSuffix), at, "offset %d is not the last one of the batch at %d, which is %d", e.offset, e.position, b.last())
		}
	}
	x.all.take(b.maxTime, b.last())
	if b.count > 0 {
		x.filled.take(b.maxTime, b.last())
	} else {
		x.filled.take(-1, b.last())
	}
	for ; x.nextTim < len(x.times) && x.times[x.nextTim].offset <= b.last(); x.nextTim++ {
		e, at := x.times[x.nextTim], int64(x.nextTim*timeEntrySize)
		switch {
		case e.offset < b.base && x.c.gapsBelow <= e.offset:
			x.c.v.report(x.severity, x.file(timeSuffix), at, "offset %d is in no batch", e.offset)
		case e.timestamp != x.all.timestamp && e.timestamp != x.filled.timestamp:
			x.c.v.report(x.severity, x.file(timeSuffix), at, "timestamp %d at offset %d, but the largest one up to there is %d", e.timestamp, e.offset, x.all.timestamp)
		case !(x.all.fresh && e.timestamp == x.all.timestamp) && !(x.filled.fresh && e.timestamp == x.filled.timestamp):
			x.c.v.report(x.severity, x.file(timeSuffix), at, "timestamp %d came up before offset %d", e.timestamp, e.offset)
		}
	}
}

// finish checks what is left when the segment's batches end at a byte.
func (x *indexCheck) finish(end int64) {
	if x.blind {
		return
	}
	v := x.c.v
	for ; x.nextOff < len(x.offsets); x.nextOff++ {
		e := x.offsets[x.nextOff]
		v.report(x.severity, x.file(indexSuffix), int64(x.nextOff*offsetEntrySize), "position %d of offset %d: the last batch ends at %d", e.position, e.offset, end)
	}
	for ; x.nextTim < len(x.times); x.nextTim++ {
		e := x.times[x.nextTim]
		v.report(x.severity, x.file(timeSuffix), int64(x.nextTim*timeEntrySize), "timestamp %d at offset %d: the log ends at %d", e.timestamp, e.offset, x.c.end)
	}
	if n := len(x.times); !x.growing && x.filled.timestamp >= 0 && (n == 0 || x.times[n-1].timestamp < x.filled.timestamp) {
		v.report(x.severity, x.file(timeSuffix), -1, "the largest timestamp %d at offset %d is missing", x.filled.timestamp, x.filled.offset)
	}
	if !x.c.compacted() && !x.c.lost {
		x.aborts()
	}
}

// aborts compares the .txnindex with the abort markers of the segment.
func (x *indexCheck) aborts() {
	v, t, start := x.c.v, &x.c.producers, x.c.start
	hidden := start > x.c.first // what lies before the start may be left out
	var list []abortEntry
	if x.segment.indexes[abortSuffix] {
		data, err := readWhole(v.fs, x.c.path(x.file(abortSuffix)))
		if err == nil {
			list, err = parseAbortIndex(data)
		}
		x.complain(abortSuffix, err)
	}
	last := int64(-1)
	for i, e := range list {
		at := int64(i * abortEntrySize)
		want, ok := t.ended[e.last]
		switch {
		case e.last <= last:
			v.report(x.severity, x.file(abortSuffix), at, "marker at offset %d follows the one at %d", e.last, last)
		case !ok || want.producer != e.producer:
			v.report(x.severity, x.file(abortSuffix), at, "there is no abort marker of producer id %d at offset %d", e.producer, e.last)
		case !t.exact || hidden && want.first < start && e.first >= want.first:
		case want.first < 0:
			v.report(x.severity, x.file(abortSuffix), at, "producer id %d had no open transaction at offset %d", e.producer, e.last)
		case e.first != want.first:
			v.report(x.severity, x.file(abortSuffix), at, "transaction of producer id %d from %d to %d, the batches say from %d", e.producer, e.first, e.last, want.first)
		case e.lastStable != want.lastStable && !(hidden && want.lastStable < start):
			v.report(x.severity, x.file(abortSuffix), at, "last stable offset %d behind the marker at %d, the batches say %d", e.lastStable, e.last, want.lastStable)
		}
		last = e.last
		delete(t.ended, e.last)
	}
	if x.growing {
		return
	}
	var missing []abortEntry
	for _, want := range t.ended {
		if want.first >= start {
			missing = append(missing, want)
		}
	}
	slices.SortFunc(missing, func(a, b abortEntry) int { return cmp.Compare(a.last, b.last) })
	for _, want := range missing {
		v.report(x.severity, x.file(abortSuffix), -1, "aborted transaction of producer id %d from %d to %d is missing", want.producer, want.first, want.last)
	}
}
