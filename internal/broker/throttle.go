package broker

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// A client that exceeds a quota is answered at once, told how long to keep quiet (throttle_time_ms), and its connection is
// not read for that long (KIP-219). How much it may use is a bucket that fills by the quota and holds what the quota
// gives in quota.window.num less one windows, as Kafka's rate over that time allows; what is used beyond that is owed.

// maxQuotaBuckets bounds the memory of clients that are told apart; further ones share a bucket.
const maxQuotaBuckets = 10_000

// maxDebt bounds what a number on the wire can say.
const maxDebt = 365 * 24 * time.Hour

// Quotas of clients, besides controllerMutationRate and connectionCreationRate. The time of requests is that of the goroutine
// which runs their handler: 100 percent is one core.
const (
	producerByteRate  = "producer_byte_rate"
	consumerByteRate  = "consumer_byte_rate"
	requestPercentage = "request_percentage"
)

// clientKey is whom a quota is for: a name, anyName for the default of all names, or empty where the type does not count.
type clientKey struct{ user, client string }

// anyName stands for the default of a type in a clientKey; no client can send it (a name has no NUL first).
const anyName = "\x00default"

// quotaTable finds quotas by key: which clients they are for, and how much. Empty where none is set.
type quotaTable map[string]map[clientKey]float64

// newQuotaTable reads a catalog's quotas; nil when none has to be enforced.
func newQuotaTable(c *catalog) quotaTable {
	var t quotaTable
	for _, q := range c.quotas() {
		key := clientKey{quotaName(q.entity, quotaUser), quotaName(q.entity, quotaClientID)}
		if _, ofIP := q.entity.part(quotaIP); ofIP {
			key = addressKey(quotaName(q.entity, quotaIP))
		}
		for name, value := range q.values {
			if t == nil {
				t = quotaTable{}
			}
			if t[name] == nil {
				t[name] = map[clientKey]float64{}
			}
			t[name][key] = value
		}
	}
	return t
}

func quotaName(e quotaEntity, kind string) string {
	p, ok := e.part(kind)
	switch {
	case !ok:
		return ""
	case p.name == nil:
		return anyName
	}
	return *p.name
}

// find returns the quota that holds for a client, in Kafka's order of precedence (ClientQuotaManager), and whose share of
// it the client uses: a quota on users is one for all their clients.
func (t quotaTable) find(quota, user, client string) (limit float64, whose clientKey, ok bool) {
	rows := t[quota]
	if rows == nil {
		return 0, clientKey{}, false
	}
	for _, c := range [...]struct{ row, whose clientKey }{
		{clientKey{user, client}, clientKey{user, client}},
		{clientKey{user, anyName}, clientKey{user, client}},
		{clientKey{user, ""}, clientKey{user, ""}},
		{clientKey{anyName, client}, clientKey{user, client}},
		{clientKey{anyName, anyName}, clientKey{user, client}},
		{clientKey{anyName, ""}, clientKey{user, ""}},
		{clientKey{"", client}, clientKey{"", client}},
		{clientKey{"", anyName}, clientKey{"", client}},
	} {
		if c.row.client == "" && c.row.user == "" {
			continue // a client without a client id has no quota of its own
		}
		if limit, ok := rows[c.row]; ok {
			return limit, c.whose, true
		}
	}
	return 0, clientKey{}, false
}

type bucketKey struct {
	quota string
	whose clientKey
}

// bucket is what a client may still use, at a time; negative is owed.
type bucket struct {
	left float64
	at   time.Time
	full time.Time // when nothing of it is used any more
}

// throttle keeps the buckets of clients that quotas are set for.
type throttle struct {
	window time.Duration // that a full bucket lasts

	mu      sync.Mutex
	buckets map[bucketKey]bucket
}

// use takes an amount from a client's bucket and returns how long the client has to keep quiet, the window at most.
func (t *throttle) use(key bucketKey, amount, perSecond float64, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, left, full := t.openLocked(key, perSecond, now)
	left = max(left-amount, -full)
	t.keepLocked(key, left, full, perSecond, now)
	return min(owed(left, perSecond), t.window)
}

// borrow takes an amount of any size unless something is owed already, or also then if it is lenient. It returns after how
// long nothing is owed, as far as the client has to hear of it: what a strict client may borrow costs it no wait.
func (t *throttle) borrow(key bucketKey, amount, perSecond float64, lenient bool, now time.Time) (wait time.Duration, taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, left, full := t.openLocked(key, perSecond, now)
	if left < 0 && !lenient {
		return owed(left, perSecond), false
	}
	left -= amount
	t.keepLocked(key, left, full, perSecond, now)
	if !lenient {
		return 0, true
	}
	return owed(left, perSecond), true
}

// openLocked fills a bucket up to now. A client that has none of its own any more gets the shared one's key.
func (t *throttle) openLocked(key bucketKey, perSecond float64, now time.Time) (_ bucketKey, left, full float64) {
	full = perSecond * t.window.Seconds()
	b, known := t.buckets[key]
	if !known && len(t.buckets) >= maxQuotaBuckets {
		if t.forgetFull(now); len(t.buckets) >= maxQuotaBuckets {
			key.whose = clientKey{}
			b, known = t.buckets[key]
		}
	}
	if !known {
		return key, full, full
	}
	return key, min(full, b.left+perSecond*now.Sub(b.at).Seconds()), full
}

func (t *throttle) keepLocked(key bucketKey, left, full, perSecond float64, now time.Time) {
	if t.buckets == nil {
		t.buckets = map[bucketKey]bucket{}
	}
	t.buckets[key] = bucket{left: left, at: now, full: now.Add(owed(left-full, perSecond))}
}

// owed is how long it takes to pay back what is below nothing, a year at most.
func owed(left, perSecond float64) time.Duration {
	if left >= 0 {
		return 0
	}
	return time.Duration(min(-left/perSecond, maxDebt.Seconds()) * float64(time.Second))
}

// forgetFull drops buckets that are full again.
func (t *throttle) forgetFull(now time.Time) {
	for key, b := range t.buckets {
		if !b.full.After(now) {
			delete(t.buckets, key)
		}
	}
}

// throttled is a handler whose clients are held to their quotas. Without quotas it costs one look at the catalog.
func (b *Broker) throttled(handle wire.Handler) wire.Handler {
	return func(ctx context.Context, r *wire.Request, done wire.Done) {
		cat := b.catalog.Load()
		if cat == nil || cat.limits == nil {
			handle(ctx, r, done)
			return
		}
		began := time.Now()
		produced := requestBytes(r.Body)
		spent := make(chan time.Duration, 1) // the handler may answer before it returns
		handle(ctx, r, func(resp wire.Response, err error) {
			if err == nil {
				var busy time.Duration
				select {
				case busy = <-spent:
				default:
					busy = time.Since(began)
				}
				b.limit(cat.limits, r, &resp, produced, busy)
			}
			done(resp, err)
		})
		spent <- time.Since(began)
	}
}

// limit takes what a request used from its client's buckets, and mutes the client for the longest wait.
func (b *Broker) limit(limits quotaTable, r *wire.Request, resp *wire.Response, produced int, busy time.Duration) {
	now := time.Now()
	wait := resp.Throttle // of the handler: what it has changed
	use := func(quota string, amount, unit float64) {
		if amount <= 0 {
			return
		}
		if limit, whose, ok := limits.find(quota, anonymous, r.ClientID); ok {
			wait = max(wait, b.throttle.use(bucketKey{quota, whose}, amount, limit*unit, now))
		}
	}
	use(requestPercentage, busy.Seconds(), 0.01) // seconds of one core a second
	switch r.Key {
	case kmsg.Produce.Int16():
		use(producerByteRate, float64(produced), 1)
	case kmsg.Fetch.Int16():
		use(consumerByteRate, float64(answerBytes(resp)), 1)
	}
	if wait <= 0 {
		return
	}
	wait = wait.Round(time.Millisecond) + time.Millisecond
	resp.Throttle = wait
	setThrottle(r, resp, int32(min(wait.Milliseconds(), math.MaxInt32)))
}

// requestBytes are the record bytes of a Produce.
func requestBytes(body kmsg.Request) int {
	n := 0
	if p, ok := body.(*kmsg.ProduceRequest); ok {
		for i := range p.Topics {
			for j := range p.Topics[i].Partitions {
				n += len(p.Topics[i].Partitions[j].Records)
			}
		}
	}
	return n
}

// answerBytes is the size of an answer that is encoded already, as Fetch's is.
func answerBytes(resp *wire.Response) int {
	n := 0
	for _, p := range resp.Body {
		if p.Bytes == nil {
			n += p.Payload.Len()
		} else {
			n += len(p.Bytes)
		}
	}
	return n
}

// setThrottle writes throttle_time_ms. Fetch has it first in its body, from version 1 on.
func setThrottle(r *wire.Request, resp *wire.Response, ms int32) {
	if m, ok := resp.Msg.(kmsg.SetThrottleResponse); ok {
		m.SetThrottle(ms)
	}
	if r.Key == kmsg.Fetch.Int16() && len(resp.Body) > 0 && len(resp.Body[0].Bytes) >= 4 {
		binary.BigEndian.PutUint32(resp.Body[0].Bytes, uint32(ms))
	}
}

// quotaWindow is how long a client may use more than its quota: Kafka's windows but the one that is being filled.
func quotaWindow(windows, seconds int) time.Duration { return span(max(windows-1, 1), seconds) }

// span is the length of some windows, maxDebt at most.
func span(windows, seconds int) time.Duration {
	return time.Duration(min(windows*seconds, int(maxDebt/time.Second))) * time.Second
}
