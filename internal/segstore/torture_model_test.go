package segstore

import (
	"bytes"
	"errors"
	"fmt"
)

// errLost and errWrong tell the two ways in which a recovered log can break the promise.
var (
	errLost  = errors.New("acknowledged records are lost")
	errWrong = errors.New("the log is not what was written")
)

// storedBatch is a batch of the model. raw is nil for a marker whose append failed: its bytes are not known.
type storedBatch struct {
	base, end int64
	raw       []byte
}

// timeline is what a log held since it began at base: a truncation or a restart begins another one.
type timeline struct {
	base    int64
	batches []storedBatch
}

func (t *timeline) end() int64 {
	if n := len(t.batches); n > 0 {
		return t.batches[n-1].end
	}
	return t.base
}

// upTo is the timeline without what lies at or above an offset, whole batches only.
func (t *timeline) upTo(offset int64) *timeline {
	cut := &timeline{base: t.base}
	for _, b := range t.batches {
		if b.end <= offset {
			cut.batches = append(cut.batches, b)
		}
	}
	return cut
}

// explains says whether data is what the timeline holds from the batch with o.Start up to o.End.
func (t *timeline) explains(o Offsets, data []byte) bool {
	whole := o.End == t.base
	for _, b := range t.batches {
		whole = whole || b.end == o.End
		if b.end <= o.Start || b.base >= o.End {
			continue
		}
		n := len(b.raw)
		if b.raw == nil && len(data) >= batchOverhead {
			h := decodeHeader(data)
			n = h.Size()
			if !h.Control() || len(data) < n || !crcGood(data[:n]) {
				return false
			}
		}
		if len(data) < n || b.raw != nil && !bytes.Equal(data[:n], b.raw) {
			return false
		}
		data = data[n:]
	}
	return whole && len(data) == 0
}

// modelLog is what one log must hold. A power cut in the middle of a change may leave either side of it.
type modelLog struct {
	id        int
	cfg       LogConfig
	timelines []*timeline // the last one is now
	first     int         // the oldest timeline that a power cut may leave: an older one than the last if a change failed
	acked     int64       // everything below is acknowledged, in the last timeline; -1 while a restart runs
	startLow  int64       // the log starts at least here,
	startHigh int64       // and at most here
	dead      bool        // an error was final
	keyed     map[int64]kv
}

func (m *modelLog) topicID() TopicID { return TopicID{byte(m.id + 1)} }

func (m *modelLog) now() *timeline { return m.timelines[len(m.timelines)-1] }

// bounds of a log at a power cut: any timeline from first to last may be there.
type bounds struct {
	first, last         int
	acked               int64
	startLow, startHigh int64
}

// recoveredLog is what was found of a log.
type recoveredLog struct {
	timeline *timeline
	Offsets
}

// adopt makes the model what was found.
func (m *modelLog) adopt(r recoveredLog) {
	m.timelines, m.first = []*timeline{r.timeline.upTo(r.End)}, 0
	m.acked, m.startLow, m.startHigh, m.dead = r.End, r.Start, r.Start, false
	for off := range m.keyed {
		if off >= r.End {
			delete(m.keyed, off)
		}
	}
}

// check compares a recovered log with the model and returns the timeline that it holds.
func (m *modelLog) check(l *Log, b bounds) (*timeline, error) {
	if err := l.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errWrong, err)
	}
	o := l.Offsets()
	switch {
	case o.End < b.acked:
		return nil, fmt.Errorf("%w: the log ends at %d, %d was acknowledged", errLost, o.End, b.acked)
	case o.Durable != o.End:
		return nil, fmt.Errorf("%w: offsets %+v after recovery", errWrong, o)
	case o.Start < b.startLow || o.Start > b.startHigh:
		return nil, fmt.Errorf("%w: the log starts at %d, not within [%d, %d]", errWrong, o.Start, b.startLow, b.startHigh)
	}
	var data []byte
	if o.Start < o.End {
		r, err := l.Read(o.Start, 1<<30, BoundEnd, true)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errWrong, err)
		}
		defer r.Release()
		if data, err = r.AppendTo(nil); err != nil {
			return nil, fmt.Errorf("%w: %w", errWrong, err)
		}
	}
	if m.keyed != nil {
		return m.now(), m.checkKeyed(o, data)
	}
	for i := b.last; i >= b.first; i-- {
		if t := m.timelines[i]; t.explains(o, data) {
			if o.Start > 0 || o.End == 0 || t.base > 0 {
				return t, nil
			}
			if err := sameAsReplay(l, data); err != nil {
				return nil, fmt.Errorf("%w: offsets %+v, acknowledged %d, start from %d to %d: %w:%s", errWrong, o, b.acked, b.startLow, b.startHigh, err, m.difference(data))
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: %d bytes with offsets %+v, acknowledged %d, timelines %d to %d:%s", errWrong, len(data), o, b.acked, b.first, b.last, m.difference(data))
}

// difference lists the batches of the last timeline and those found.
func (m *modelLog) difference(data []byte) (text string) {
	text = fmt.Sprintf(" the model begins at %d", m.now().base)
	for _, b := range m.now().batches {
		text += fmt.Sprintf(" %d-%d", b.base, b.end-1)
		if b.raw != nil {
			h := decodeHeader(b.raw)
			text += fmt.Sprintf("/%d/%x", h.Term, h.CRC>>16)
		}
	}
	text += "; found"
	for len(data) > 0 {
		h := decodeHeader(data)
		text += fmt.Sprintf(" %d-%d/%d/%x", h.BaseOffset, h.LastOffset(), h.Term, h.CRC>>16)
		data = data[min(h.Size(), len(data)):]
	}
	return text
}

// checkKeyed wants of a compacted log that each record is as it was written, and that the newest record of each key is
// there, unless it is a tombstone.
func (m *modelLog) checkKeyed(o Offsets, data []byte) error {
	found := map[int64]bool{}
	for next := int64(0); len(data) > 0; {
		h := decodeHeader(data)
		raw := data[:h.Size()]
		data = data[h.Size():]
		if !crcGood(raw) || h.BaseOffset < next {
			return fmt.Errorf("%w: batch at %d after %d, CRC %v", errWrong, h.BaseOffset, next-1, crcGood(raw))
		}
		next = h.LastOffset() + 1
		it := recordIter{buf: raw[batchOverhead:], left: h.Records}
		for it.next() {
			off := h.BaseOffset + int64(it.offsetDelta)
			if want, ok := m.keyed[off]; !ok || want != (kv{string(it.key), orDash(it.value)}) {
				return fmt.Errorf("%w: offset %d is %q=%q, was %v", errWrong, off, it.key, orDash(it.value), want)
			}
			found[off] = true
		}
		if it.fault != "" {
			return fmt.Errorf("%w: %s", errWrong, it.fault)
		}
	}
	newest := map[string]int64{}
	for off, r := range m.keyed {
		if off < o.End {
			newest[r.key] = max(newest[r.key], off)
		}
	}
	for key, off := range newest {
		if !found[off] && m.keyed[off].value != "-" {
			return fmt.Errorf("%w: the newest record of %s, at %d of %d", errLost, key, off, o.End)
		}
	}
	return nil
}
