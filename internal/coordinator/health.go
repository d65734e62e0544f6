package coordinator

import (
	"context"
	"sync"
	"time"
)

const (
	// callHangs is how long a store call may take before Postgres counts as away: stopped processes do not fail calls,
	// they leave them hanging.
	callHangs = time.Second
	// tickEvery is how often the health is looked at; a gap of pauseGap between two looks means that this process was
	// stopped and could not hear heartbeats.
	tickEvery = 500 * time.Millisecond
	pauseGap  = 2 * time.Second
	// failureHolds is how long a failed call alone is taken for an outage: without another call nobody would find out
	// that it is over.
	failureHolds = 10 * time.Second
)

// health knows whether members may be judged by their silence. They may not while Postgres is away, or when this
// process itself stood still. Each time that ends, epoch rises and every timeout starts again.
type health struct {
	mu       sync.Mutex
	calls    map[uint64]storeCall
	lastCall uint64
	down     bool      // the lease says so
	failedAt time.Time // when our last finished call failed, zero when it did not
	away     bool
	epoch    uint64
	lastTick time.Time
}

// storeCall is a call under way.
type storeCall struct {
	began  time.Time
	cancel context.CancelFunc
}

func newHealth(now time.Time) *health {
	return &health{calls: map[uint64]storeCall{}, lastTick: now}
}

// begin notes a store call, which cancel cuts off; end takes its id.
func (h *health) begin(now time.Time, cancel context.CancelFunc) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastCall++
	h.calls[h.lastCall] = storeCall{now, cancel}
	return h.lastCall
}

// end notes how a store call ended: unreachable is true when Postgres could not be reached.
func (h *health) end(id uint64, now time.Time, unreachable bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observeLocked(now)
	delete(h.calls, id)
	h.failedAt = time.Time{}
	if unreachable {
		h.failedAt = now
	}
	h.observeLocked(now)
}

// setUp is what somebody else knows: the lease loop renews twice a second. When Postgres comes back, maybe on another
// server, calls that still hang are cut off, since their connections may lead to one that is gone.
func (h *health) setUp(now time.Time, up bool) {
	h.mu.Lock()
	var stuck []context.CancelFunc
	if up && h.down {
		for _, c := range h.calls {
			if now.Sub(c.began) > callHangs {
				stuck = append(stuck, c.cancel)
			}
		}
	}
	h.down = !up
	if up {
		h.failedAt = time.Time{}
	}
	h.observeLocked(now)
	h.mu.Unlock()
	for _, cancel := range stuck {
		cancel()
	}
}

// tick is called every tickEvery.
func (h *health) tick(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.lastTick) > pauseGap {
		h.epoch++
	}
	h.lastTick = now
	h.observeLocked(now)
}

// judge says whether deadlines count now, and the epoch they must have been set in.
func (h *health) judge(now time.Time) (frozen bool, epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observeLocked(now)
	return h.away || now.Sub(h.lastTick) > pauseGap, h.epoch
}

func (h *health) observeLocked(now time.Time) {
	away := h.down || !h.failedAt.IsZero() && now.Sub(h.failedAt) < failureHolds
	for _, c := range h.calls {
		away = away || now.Sub(c.began) > callHangs
	}
	if h.away && !away {
		h.epoch++
	}
	h.away = away
}
