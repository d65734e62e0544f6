package wire

import (
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Percentiles come from the last windowSlots*slotTime, as Kafka's come from a decaying reservoir.
const (
	windowSlots = 6
	slotTime    = 10 * time.Second
)

// Buckets are powers of two of microseconds, each cut in four: an error of at most an eighth, from 1 µs to 71
// minutes, in 128 counters.
const (
	subBits = 2
	buckets = 32 << subBits
)

// window counts durations by size: all ever seen in number and sum, and the last minute in buckets.
type window struct {
	mu    sync.Mutex
	count uint64
	sum   time.Duration
	slots [windowSlots]*[buckets]uint32 // nil until something falls into it
	slot  int64                         // number of the current one since the start
}

// bucketOf is the bucket of a duration.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < 1<<subBits {
		return int(us)
	}
	exp := bits.Len64(us) - 1 - subBits
	return min(exp<<subBits+int(us>>exp), buckets-1)
}

// bucketMiddle is the duration that stands for a bucket.
func bucketMiddle(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i) * time.Microsecond
	}
	exp := i>>subBits - 1
	low := uint64(1<<subBits+i&(1<<subBits-1)) << exp
	return time.Duration(low)*time.Microsecond + time.Duration(1)<<exp*time.Microsecond/2
}

// add counts d, seen at age since the start.
func (w *window) add(d, age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	w.sum += d
	w.turnLocked(age)
	s := &w.slots[w.slot%windowSlots]
	if *s == nil {
		*s = new([buckets]uint32)
	}
	(*s)[bucketOf(d)]++
}

// turnLocked empties the slots that are too old.
func (w *window) turnLocked(age time.Duration) {
	now := int64(age / slotTime)
	if now-w.slot >= windowSlots {
		w.slots = [windowSlots]*[buckets]uint32{}
		w.slot = now
	}
	for w.slot < now {
		w.slot++
		if s := w.slots[w.slot%windowSlots]; s != nil {
			*s = [buckets]uint32{}
		}
	}
}

// snapshot is what a scrape sees of a window.
type snapshot struct {
	count     uint64
	sum       time.Duration
	quantiles []time.Duration // as asked; zero when the window is empty
}

// read returns the totals and the quantiles of the window that ends at age.
func (w *window) read(age time.Duration, quantiles []float64) snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turnLocked(age)
	var all [buckets]uint64
	var n uint64
	for _, s := range w.slots {
		if s == nil {
			continue
		}
		for i, c := range s {
			all[i] += uint64(c)
			n += uint64(c)
		}
	}
	s := snapshot{count: w.count, sum: w.sum, quantiles: make([]time.Duration, len(quantiles))}
	for i, q := range quantiles {
		if n == 0 {
			break
		}
		rank, seen := uint64(q*float64(n-1)), uint64(0)
		at := slices.IndexFunc(all[:], func(c uint64) bool { seen += c; return seen > rank })
		s.quantiles[i] = bucketMiddle(at)
	}
	return s
}
