package broker

import (
	"net/netip"
	"time"
)

// connectionCreationRate limits the connections that one address makes in a second (KIP-612, Kafka's ConnectionQuotas).
const connectionCreationRate = "connection_creation_rate"

// addressKey is whose bucket an address uses. Quotas are stored with addresses as they were written, which are not always as
// they print.
func addressKey(name string) clientKey {
	if a, err := netip.ParseAddr(name); err == nil {
		name = a.Unmap().String()
	}
	return clientKey{client: name}
}

// throttleConnection counts a new connection. Above the quota it is not counted, and to be closed after the time that is
// returned: one window at most.
func (b *Broker) throttleConnection(from netip.Addr) time.Duration {
	cat := b.catalog.Load()
	if cat == nil || cat.limits[connectionCreationRate] == nil {
		return 0
	}
	whose := addressKey(from.String())
	rates := cat.limits[connectionCreationRate]
	rate, ok := rates[whose]
	if !ok {
		rate, ok = rates[clientKey{client: anyName}]
	}
	if !ok {
		return 0
	}
	window := span(1, b.cfg.Int("quota.window.size.seconds"))
	return min(b.connects.admit(bucketKey{connectionCreationRate, whose}, rate, time.Now()), window)
}

// admit takes one from a bucket if it holds that much, or returns after how long it will.
func (t *throttle) admit(key bucketKey, perSecond float64, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, left, full := t.openLocked(key, perSecond, now)
	if left < 1 {
		return owed(left-1, perSecond)
	}
	t.keepLocked(key, left-1, full, perSecond, now)
	return 0
}
