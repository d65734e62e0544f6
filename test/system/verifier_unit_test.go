package system

import (
	"encoding/binary"
	"slices"
	"testing"
)

// line is one record of a hand-made log.
type line struct {
	partition int32
	offset    int64
	value     []byte
}

// TestVerifierFindsEachViolation: a checker that cannot fail proves nothing.
func TestVerifierFindsEachViolation(t *testing.T) {
	const size = 64
	flipped := func(at int) []byte {
		v := makeValue(0, 1, size)
		v[at] ^= 1
		return v
	}
	otherFiller := makeValue(0, 1, size)
	otherFiller[40] ^= 1
	binary.BigEndian.PutUint32(otherFiller[12:], checksum(otherFiller))
	for name, c := range map[string]struct {
		change func([]line) []line
		want   []string
	}{
		"nothing": {func(l []line) []line { return l }, nil},
		// The last record of the log has no acknowledgement: it may be missing.
		"an unacknowledged one is missing": {func(l []line) []line { return l[:3] }, nil},
		"a lost end":                       {func(l []line) []line { return l[:2] }, []string{"lost"}},
		"a lost middle":                    {func(l []line) []line { return slices.Delete(l, 1, 2) }, []string{"gap", "lost"}},
		"a duplicate at the end":           {func(l []line) []line { return append(l, line{0, 4, l[1].value}) }, []string{"duplicate"}},
		"an unacknowledged duplicate":      {func(l []line) []line { return append(l, line{0, 4, l[3].value}) }, []string{"duplicate"}},
		"two change places": {func(l []line) []line { l[1].value, l[2].value = l[2].value, l[1].value; return l },
			[]string{"reordered", "wrong offset", "wrong offset"}},
		"unacknowledged before acknowledged": {func(l []line) []line { l[2].value, l[3].value = l[3].value, l[2].value; return l },
			[]string{"reordered", "wrong offset"}},
		"one offset late": {func(l []line) []line {
			for i := range l {
				l[i].offset++
			}
			return l
		}, []string{"gap", "wrong offset", "wrong offset", "wrong offset"}},
		"a flipped bit in the filler":     {func(l []line) []line { l[1].value = flipped(40); return l }, []string{"corrupt", "lost"}},
		"a flipped bit in the number":     {func(l []line) []line { l[1].value = flipped(11); return l }, []string{"corrupt", "lost"}},
		"a short value":                   {func(l []line) []line { l[1].value = l[1].value[:size-1]; return l }, []string{"corrupt", "lost"}},
		"an empty value":                  {func(l []line) []line { l[1].value = nil; return l }, []string{"corrupt", "lost"}},
		"other bytes, checksum made anew": {func(l []line) []line { l[1].value = otherFiller; return l }, []string{"corrupt"}},
		"a record nobody sent":            {func(l []line) []line { return append(l, line{0, 4, makeValue(0, 4, size)}) }, []string{"unknown"}},
		"a producer nobody knows":         {func(l []line) []line { return append(l, line{0, 4, makeValue(7, 0, size)}) }, []string{"unknown"}},
		"another partition": {func(l []line) []line { l[3].partition, l[3].offset = 1, 0; return l },
			[]string{"wrong partition"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1, 2, size)
			var log []line
			for offset := range int64(4) {
				number := l.next(0)
				log = append(log, line{l.partitionOf(0, number), offset, makeValue(0, number, size)})
				if number < 3 {
					l.ack(0, number, offset)
				}
			}
			v := newVerifier(l)
			for _, r := range c.change(log) {
				v.read(r.partition, r.offset, r.value)
			}
			var got []string
			for _, b := range v.finish() {
				got = append(got, b.kind)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v: %v", got, c.want, v.broken)
			}
		})
	}
}
