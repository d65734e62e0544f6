package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produce sends the records from all clients, each to every partition in turn, and waits for every acknowledgement. The
// topic must be empty.
func produce(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	hook := newRequests()
	var sent, acked atomic.Int64
	failed := newErrorBox()
	clients := make([]*kgo.Client, s.Clients)
	for i := range clients {
		client, err := producer(s, hook)
		if err != nil {
			return Outcome{}, err
		}
		defer client.Close()
		if err := client.Ping(ctx); err != nil {
			return Outcome{}, err
		}
		clients[i] = client
	}
	took, err := timed(w, func() error {
		hook.start()
		var group sync.WaitGroup
		for c, client := range clients {
			group.Go(func() {
				value := payload(s.RecordSize, uint64(c))
				done := func(_ *kgo.Record, err error) {
					if err != nil {
						failed.put(err)
						return
					}
					acked.Add(1)
				}
				for i := int64(c); i < s.Records; i += int64(s.Clients) {
					sent.Add(1)
					client.Produce(ctx, &kgo.Record{Value: value, Partition: int32(i/int64(s.Clients)) % s.Partitions}, done)
				}
				failed.put(client.Flush(ctx))
			})
		}
		group.Wait()
		return failed.first()
	})
	if err != nil {
		return Outcome{}, err
	}
	if sent.Load() != s.Records || acked.Load() != s.Records {
		return Outcome{}, fmt.Errorf("%d records wanted, %d sent, %d acknowledged", s.Records, sent.Load(), acked.Load())
	}
	return produced(s, hook, took, s.Records), Ends(ctx, s, s.Records)
}

// produced are the figures of records that were acknowledged in a time.
func produced(s Spec, hook *requests, took time.Duration, records int64) Outcome {
	bytes := records * int64(s.RecordSize)
	h := hook.key(keyProduce)
	out := Outcome{Values: map[string]float64{
		"mib_s": float64(bytes) / (1 << 20) / took.Seconds(), "records_s": float64(records) / took.Seconds(),
		"requests_s": float64(h.Count()) / took.Seconds(), "seconds": took.Seconds(),
	}, Bytes: bytes, Requests: h.Count(), Records: records}
	h.into(out.Values, "")
	return out
}

// synchronous sends the records with one in flight: the next when the last is acknowledged.
func synchronous(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	hook := newRequests()
	client, err := producer(s, hook)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	value := payload(s.RecordSize, 1)
	const first = 20 // unmeasured: they connect and get the producer id
	send := func(n int64, h *Histogram) error {
		for range n {
			began := time.Now()
			if err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
				return err
			}
			h.Add(time.Since(began))
		}
		return nil
	}
	if err := send(first, NewHistogram()); err != nil {
		return Outcome{}, err
	}
	whole := NewHistogram()
	took, err := timed(w, func() error {
		hook.start()
		return send(s.Records, whole)
	})
	if err != nil {
		return Outcome{}, err
	}
	out := produced(s, hook, took, s.Records)
	whole.into(out.Values, "call_")
	return out, verify(ctx, s, s.Records+first, false)
}

// paced sends records at a fixed rate and checks that all were acknowledged. Its latency is that of the requests.
func paced(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	hook := newRequests()
	client, err := producer(s, hook)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return Outcome{}, err
	}
	var acked atomic.Int64
	failed := newErrorBox()
	value := payload(s.RecordSize, 1)
	total := int64(s.Rate * s.Seconds)
	took, err := timed(w, func() error {
		hook.start()
		// A tick sends all that is due, so that high rates need no timer for each record.
		const tick = 2 * time.Millisecond
		began := time.Now()
		for sent := int64(0); sent < total && ctx.Err() == nil; {
			due := min(int64(time.Since(began).Seconds()*s.Rate), total)
			for ; sent < due; sent++ {
				client.Produce(ctx, &kgo.Record{Value: value, Partition: int32(sent) % s.Partitions}, func(_ *kgo.Record, err error) {
					failed.put(err)
					if err == nil {
						acked.Add(1)
					}
				})
			}
			time.Sleep(tick)
		}
		failed.put(client.Flush(ctx))
		return failed.first()
	})
	if err != nil {
		return Outcome{}, err
	}
	if acked.Load() != total {
		return Outcome{}, fmt.Errorf("%d records sent, %d acknowledged", total, acked.Load())
	}
	out := produced(s, hook, took, total)
	// The broker, or its client, did not keep up: then this was another rate than the one that was asked for.
	out.Late = took.Seconds() > s.Seconds*1.05+0.5
	return out, Ends(ctx, s, total)
}
