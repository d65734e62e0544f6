package broker

import (
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// A fetch that is woken, and waits again, while it still registers with other partitions forgets none of its watches: each
// would keep the whole request in memory for as long as its partition is idle.
func TestFetchWokenWhileItRegisters(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.append("a", 0, 1)
	log := b.leader("a", 0).log
	req := b.fetchRequest(fetchFrom{"a", 0, 1})
	for range 20 {
		c := &fetchCall{broker: b.Broker, request: req, done: func(wire.Response, error) {}, ctx: t.Context(), upTo: segstore.BoundHigh,
			parts: partsOf(req), deadline: time.Now().Add(time.Minute), minBytes: 1 << 20, maxBytes: 1 << 20, parked: true, parks: 1}
		results := make([]fetchResult, 20_000)
		for i := range results {
			results[i] = fetchResult{watch: log, offsets: segstore.Offsets{High: log.Offsets().High}}
		}
		results[0].offsets.High = 0 // has moved already: wakes at once
		c.watch(results, 1)
		eventually(t, "the fetch to wait again", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.parked && c.waiters != nil
		})
		c.mu.Lock()
		watches := len(c.waiters)
		c.mu.Unlock()
		if watches != 1 {
			t.Errorf("the fetch of one partition holds %d watches", watches)
		}
		c.expire()
	}
}
