package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lateLimit is how late, at the 99th percentile, the generator may be before its run is thrown away.
const lateLimit = 2 * time.Millisecond

// endToEnd produces at a fixed rate and consumes beside it. A record's latency runs from the time at which it was due,
// which the record carries, to the consumer's poll that returned it.
func endToEnd(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	// The generator's thread needs one of the runtime's processors when it wakes up, also while the client uses all it had.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
	hook := newRequests()
	client, err := producer(s, hook)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap), kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return Outcome{}, err
	}
	defer consumer.Close()

	// The first second warms up: its records are checked, but their latency does not count.
	warm, total := int64(s.Rate), int64(s.Rate*(s.Seconds+1))
	e2e, lag := NewHistogram(), NewHistogram()
	epoch := time.Now()
	received := make(chan error, 1)
	ctx, cancel := context.WithTimeout(ctx, s.duration()+time.Minute)
	defer cancel()
	go func() { received <- receive(ctx, consumer, epoch, warm, total, e2e) }()

	failed := newErrorBox()
	acked := make(chan struct{}, total)
	begin := time.Now().Add(50 * time.Millisecond)
	var measured time.Time
	err = pace(ctx, begin, s.Rate, total, func(i int64, due time.Time) error {
		if i == warm {
			if err := w.Begin(); err != nil {
				return err
			}
			hook.start()
			measured = time.Now()
		}
		if i > warm+100 { // not the records that waited for Begin
			lag.Add(time.Since(due))
		}
		value := payload(s.RecordSize, uint64(i))
		binary.LittleEndian.PutUint64(value, uint64(due.Sub(epoch)))
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			failed.put(err)
			acked <- struct{}{}
		})
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	if err := client.Flush(ctx); err != nil {
		return Outcome{}, err
	}
	if err := <-received; err != nil {
		return Outcome{}, err
	}
	took := time.Since(measured)
	if err := w.End(); err != nil {
		return Outcome{}, err
	}
	if err := failed.first(); err != nil {
		return Outcome{}, err
	}
	if len(acked) != int(total) {
		return Outcome{}, fmt.Errorf("%d records sent, %d acknowledged", total, len(acked))
	}
	out := produced(s, hook, took, total-warm)
	values := map[string]float64{"records_s": out.Values["records_s"], "lag_p99_ms": lag.Ms(99)}
	e2e.into(values, "")
	hook.key(keyProduce).into(values, "ack_")
	out.Values, out.Late = values, lag.Ms(99) > float64(lateLimit)/float64(time.Millisecond)
	return out, Ends(ctx, s, total)
}

// receive reads total records in order and adds the latency of those from warm on.
func receive(ctx context.Context, consumer *kgo.Client, epoch time.Time, warm, total int64, e2e *Histogram) error {
	for next := int64(0); next < total; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d of %d records received: %w", next, total, err)
		}
		now := time.Since(epoch)
		var wrong error
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != next && wrong == nil {
				wrong = fmt.Errorf("offset %d where %d was due", r.Offset, next)
			}
			next++
			if r.Offset >= warm+100 {
				e2e.Add(now - time.Duration(binary.LittleEndian.Uint64(r.Value)))
			}
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// pace calls send at begin, begin + 1/rate, ... It sleeps on a thread of its own. When it is late it
// catches up without a pause.
func pace(ctx context.Context, begin time.Time, rate float64, total int64, send func(i int64, due time.Time) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exactTimers()
	for i := range total {
		due := begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			sleep(wait)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := send(i, due); err != nil {
			return err
		}
	}
	return nil
}
