package broker

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func TestBucketsHoldClientsToTheirRate(t *testing.T) {
	now := time.Unix(1000, 0)
	k := throttle{window: 10 * time.Second}
	key := bucketKey{producerByteRate, clientKey{"", "c"}}
	for _, step := range []struct {
		after  time.Duration
		amount float64
		want   time.Duration
	}{
		{0, 1000, 0},                            // a full bucket: ten seconds of 100 a second
		{0, 100, time.Second},                   // owed
		{time.Second, 0, 0},                     // paid back
		{2 * time.Second, 200, 0},               // what came in meanwhile
		{time.Hour, 1000, 0},                    // full again, not more
		{0, 1, 10 * time.Millisecond},           //
		{0, 1e9, 10 * time.Second},              // never longer than a full bucket
		{10 * time.Second, 50, time.Second / 2}, //
		{time.Second / 2, 100, time.Second},     // the rate in the long run
		{time.Second, 100, time.Second},         //
		{time.Second, 100, time.Second},         //
		{2 * time.Second, 50, 0},                //
	} {
		now = now.Add(step.after)
		if got := k.use(key, step.amount, 100, now); (got - step.want).Abs() > time.Millisecond {
			t.Errorf("%v: %s", step, got)
		}
	}
	if got := k.use(bucketKey{producerByteRate, clientKey{"", "other"}}, 1, 100, now); got != 0 {
		t.Errorf("another client waits %s", got)
	}
}

func TestBucketsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	k := throttle{window: 10 * time.Second}
	for i := range 2 * maxQuotaBuckets {
		k.use(bucketKey{producerByteRate, clientKey{"", fmt.Sprint(i)}}, 1, 100, now)
	}
	if n := len(k.buckets); n > maxQuotaBuckets+1 {
		t.Errorf("%d buckets", n)
	}
	k.use(bucketKey{producerByteRate, clientKey{"", "late"}}, 1, 100, now.Add(time.Minute))
	if n := len(k.buckets); n != 1 {
		t.Errorf("%d buckets after a minute", n)
	}
}

// Kafka's order: ClientQuotaManager.DefaultQuotaCallback.
func TestWhichQuotaHolds(t *testing.T) {
	b := newTestBroker(t)
	steps := []struct {
		entity string
		value  float64
		whose  clientKey
	}{
		{"client-id", 1, clientKey{"", "c"}}, {"client-id=c", 2, clientKey{"", "c"}}, {"user", 3, clientKey{"u", ""}}, {"user client-id", 4, clientKey{"u", "c"}},
		{"user client-id=c", 5, clientKey{"u", "c"}}, {"user=u", 6, clientKey{"u", ""}}, {"user=u client-id", 7, clientKey{"u", "c"}}, {"user=u client-id=c", 8, clientKey{"u", "c"}},
	}
	for _, s := range steps { // from the weakest to the strongest
		alterQuotas(b, 1, false, quotaOp{s.entity, producerByteRate, s.value})
		limit, whose, ok := b.catalog.Load().limits.find(producerByteRate, "u", "c")
		if !ok || limit != s.value || whose != s.whose {
			t.Errorf("with %s: %v of %v, %t; want %v of %v", s.entity, limit, whose, ok, s.value, s.whose)
		}
	}
	limits := b.catalog.Load().limits
	if _, _, ok := limits.find(consumerByteRate, "u", "c"); ok {
		t.Error("a quota of another kind holds")
	}
	if limit, _, _ := limits.find(producerByteRate, "v", "d"); limit != 4 {
		t.Errorf("a client nobody named has %v", limit)
	}
}

// throttledBy sends a request through the list of APIs and returns throttle_time_ms and how long the connection is muted.
func throttledBy(b *testBroker, client string, version int16, body kmsg.Request) (told, muted time.Duration) {
	b.t.Helper()
	told, muted, _ = throttledAnswer(b, client, version, body)
	return told, muted
}

// throttledAnswer is throttledBy with the answer.
func throttledAnswer(b *testBroker, client string, version int16, body kmsg.Request) (told, muted time.Duration, resp kmsg.Response) {
	b.t.Helper()
	for _, a := range b.apis() {
		if a.Key != body.Key() {
			continue
		}
		handle := func(ctx context.Context, r *wire.Request, done wire.Done) {
			r.ClientID = client
			a.Handle(ctx, r, func(resp wire.Response, err error) {
				muted = resp.Throttle
				done(resp, err)
			})
		}
		resp := ask[kmsg.Response](b, handle, version, body)
		ms, _ := resp.(kmsg.ThrottleResponse).Throttle()
		return time.Duration(ms) * time.Millisecond, muted, resp
	}
	b.t.Fatalf("no API %d", body.Key())
	return 0, 0, nil
}

func TestClientsAreThrottled(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	batch := recordBatch(10, strings.Repeat("x", 1000))
	produce, fetch := b.produceRequest(produceTo{"a", 0, batch}), b.fetchRequest(fetchFrom{"a", 0, 0})
	if told, muted := throttledBy(b, "c", 9, produce); told != 0 || muted != 0 {
		t.Fatalf("without a quota: %s, %s", told, muted)
	}
	rate := math.Trunc(float64(len(batch)) / 10) // one batch is what ten seconds give
	alterQuotas(b, 1, false, quotaOp{"client-id=c", producerByteRate, rate}, quotaOp{"client-id=d", consumerByteRate, rate}, quotaOp{"client-id=e", requestPercentage, 1e-9})
	if told, _ := throttledBy(b, "other", 9, produce); told != 0 {
		t.Errorf("a client without quotas waits %s", told)
	}
	throttledBy(b, "c", 9, produce)
	about10s := func(what string, told, muted time.Duration) {
		t.Helper()
		if told < 8*time.Second || told > 11*time.Second || muted != told {
			t.Errorf("%s: told %s, muted for %s, want about 10 s", what, told, muted)
		}
	}
	told, muted := throttledBy(b, "c", 9, produce)
	about10s("produce", told, muted)
	told, muted = throttledBy(b, "d", 11, fetch) // more than two batches at once
	about10s("fetch", told, muted)
	metadata := metadataOf("a")
	throttledBy(b, "e", 9, metadata)
	told, muted = throttledBy(b, "e", 9, metadata)
	about10s("request time", told, muted)
	alterQuotas(b, 1, false, quotaOp{"client-id=c", producerByteRate, removed}, quotaOp{"client-id=d", consumerByteRate, removed}, quotaOp{"client-id=e", requestPercentage, removed})
	if told, muted := throttledBy(b, "c", 9, produce); told != 0 || muted != 0 || b.catalog.Load().limits != nil {
		t.Errorf("after the quotas are gone: %s, %s", told, muted)
	}
}
