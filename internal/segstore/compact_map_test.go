package segstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

func TestSipHash(t *testing.T) {
	// The first vectors of the reference implementation's vectors_sip128.
	want := []string{"a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45", "8177228da4a45dc7fca38bdef60affe4"}
	key := sipKey{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	for n, text := range want {
		var in []byte
		for i := range n {
			in = append(in, byte(i))
		}
		lo, hi := key.sum(in)
		out := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, lo), hi)
		if hex.EncodeToString(out) != text {
			t.Errorf("%d bytes: %x, want %s", n, out, text)
		}
	}
	seen := map[[2]uint64]bool{}
	for n := range 1000 {
		lo, hi := key.sum(bytes.Repeat([]byte{7}, n))
		if seen[[2]uint64{lo, hi}] {
			t.Fatalf("%d bytes collide", n)
		}
		seen[[2]uint64{lo, hi}] = true
	}
}

func TestOffsetMap(t *testing.T) {
	var m offsetMap
	m.reset(1<<40, 100*keySlotSize)
	for i := range m.max {
		for _, off := range []int64{int64(i), int64(i) + 1000} {
			if !m.put(fmt.Append(nil, i), off) {
				t.Fatalf("key %d does not fit", i)
			}
		}
	}
	if m.max != 75 || m.put([]byte("one more"), 1) || !m.put([]byte("0"), 5000) {
		t.Errorf("%d keys of 24 bytes in 2,400", m.max)
	}
	for i := 1; i < m.max; i++ {
		if got := m.get(fmt.Append(nil, i)); got != int64(i)+1000 {
			t.Fatalf("key %d is at %d", i, got)
		}
	}
	if m.get([]byte("one more")) != -1 || m.get([]byte("0")) != 5000 {
		t.Error("wrong place")
	}
	before := &m.slots[0]
	m.reset(20, 100*keySlotSize)
	if m.n != 0 || m.max < 20 || m.get([]byte("1")) != -1 || &m.slots[0] != before {
		t.Errorf("after reset: %d of %d", m.n, m.max)
	}
}

// TestSmallTableTakesSeveralRounds: with room for few keys each round makes
// progress, and the outcome is the same.
func TestSmallTableTakesSeveralRounds(t *testing.T) {
	c := newCompactLog(t, vfs.NewMem(), compactConfig())
	c.s.cleaner.opts.BufferBytes = 16 * keySlotSize // 12 keys
	for i := range 100 {
		c.put(noProducer, kv{fmt.Sprint("k", i%50), fmt.Sprint(i)}, kv{fmt.Sprint("l", i%50), fmt.Sprint(i)})
		if i%7 == 6 {
			c.roll()
		}
	}
	c.roll()
	c.compact()
	var records int
	for _, line := range c.story() {
		records += strings.Count(line, "=")
		if n, text := 0, strings.Fields(line); len(text) > 1 {
			fmt.Sscanf(strings.SplitN(text[1], "=", 2)[1], "%d", &n)
			if n < 50 {
				t.Errorf("old: %s", line)
			}
		}
	}
	if records != 100 {
		t.Errorf("%d records, want the newest 100", records)
	}
	big := make([]kv, 20)
	for i := range big {
		big[i] = kv{fmt.Sprint("big", i), "v"}
	}
	c.put(noProducer, big...)
	c.roll()
	if c.s.cleaner.once(context.Background()) || c.s.cleaner.gaveUp() != 1 {
		t.Error("a batch that does not fit into the table must end compaction of the log")
	}
	c.put(noProducer, kv{"a", "1"}) // and nothing else
}
