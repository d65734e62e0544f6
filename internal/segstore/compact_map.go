package segstore

import (
	"math/bits"
	"math/rand/v2"
)

// keySlotSize is the memory of one slot of an offsetMap, in bytes.
const keySlotSize = 24

// keySlot is one key by its 128-bit hash; next is its newest offset + 1, 0 in
// a free slot.
type keySlot struct {
	lo, hi uint64
	next   int64
}

// offsetMap maps the keys of a log's dirty part to their newest offsets, in a
// table of fixed size (the place of Kafka's SkimpyOffsetMap). It keeps hashes
// in place of keys: two keys of one hash would be taken for one, with a
// probability of 2^-128 a pair under a key drawn for each table. Probing is
// linear and the table at most three quarters full.
type offsetMap struct {
	key    sipKey
	slots  []keySlot
	n, max int
	latest int64 // all keys up to this offset are in
}

// reset empties the table and sizes it for keys entries, within maxBytes. It
// uses its memory again where that fits.
func (m *offsetMap) reset(keys, maxBytes int64) {
	slots := int(max(16, min(keys+keys/3+2, maxBytes/keySlotSize)))
	if cap(m.slots) >= slots {
		m.slots = m.slots[:slots]
		clear(m.slots)
	} else {
		m.slots = nil // before the new one: only one counts
		m.slots = make([]keySlot, slots)
	}
	m.key = sipKey{rand.Uint64(), rand.Uint64()}
	m.n, m.max, m.latest = 0, slots*3/4, -1
}

// slot is where the key is, or the free place for it.
func (m *offsetMap) slot(lo, hi uint64) *keySlot {
	i, _ := bits.Mul64(lo, uint64(len(m.slots)))
	for {
		s := &m.slots[i]
		if s.next == 0 || (s.lo == lo && s.hi == hi) {
			return s
		}
		if i++; i == uint64(len(m.slots)) {
			i = 0
		}
	}
}

// put notes that key is at offset, above all it was at before; false if the
// table is full and the key is new.
func (m *offsetMap) put(key []byte, offset int64) bool {
	lo, hi := m.key.sum(key)
	s := m.slot(lo, hi)
	if s.next == 0 {
		if m.n == m.max {
			return false
		}
		m.n++
		s.lo, s.hi = lo, hi
	}
	s.next = offset + 1
	return true
}

// get is the newest offset of key, -1 if it is not in the table.
func (m *offsetMap) get(key []byte) int64 { return m.slot(m.key.sum(key)).next - 1 }
