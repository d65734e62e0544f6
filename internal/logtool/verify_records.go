package logtool

import (
	"errors"
	"fmt"
)

// content walks the records of a batch: their number, offsets and times, and what a control record says (nil for a batch
// of data).
func (c *logCheck) content(b *batch, raw []byte) (ctl *control, err error) {
	compacted := b.last() < c.gapsBelow
	switch {
	case b.count < 0 || int64(b.count) > int64(b.lastDelta)+1:
		return nil, fmt.Errorf("%d records do not fit offsets %d to %d", b.count, b.base, b.last())
	case !compacted && int64(b.count) != int64(b.lastDelta)+1:
		return nil, fmt.Errorf("%d records, but offsets %d to %d", b.count, b.base, b.last())
	case b.control() && b.codec() != 0:
		return nil, errors.New("control batch is compressed")
	case b.count == 0 && len(raw) == headerSize:
		return nil, nil // compaction keeps it for its sequence
	}
	before, largest := int64(-1), int64(-1)
	err = c.v.records.each(b, raw, false, func(r *record) error {
		if r.delta <= before || (!compacted && r.delta != before+1) {
			return fmt.Errorf("offset %d follows %d", r.offset, b.base+before)
		}
		before, largest = r.delta, max(largest, r.timestamp)
		if b.control() && ctl == nil {
			parsed, err := parseControl(r)
			if err != nil {
				return err
			}
			ctl = &parsed
		}
		return nil
	})
	switch {
	case err != nil:
		return ctl, err
	case b.control() && b.count != 1 && ctl != nil && ctl.kind <= controlCommit:
		return ctl, fmt.Errorf("transaction marker with %d records", b.count)
	case b.count > 0 && !compacted && largest != b.maxTime:
		return ctl, fmt.Errorf("largest timestamp is %d, the header says %d", largest, b.maxTime)
	}
	return ctl, nil
}
