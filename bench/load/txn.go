package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions runs one transaction after the other in every client, each under its own transactional id: begin, Batch
// records to one partition, wait for them, commit.
func transactions(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	hook, seen := newRequests(), &sniffer{}
	clients := make([]*kgo.Client, s.Clients)
	var committed atomic.Int64 // transactions, those of the warm-up too
	one := func(c int) error {
		if err := transaction(ctx, clients[c], s, int32(c)%s.Partitions); err != nil {
			return fmt.Errorf("producer %d: %w", c, err)
		}
		committed.Add(1)
		return nil
	}
	for c := range clients {
		client, err := producer(s, hook, kgo.TransactionalID(fmt.Sprintf("%s-%d", s.Topic, c)), kgo.Dialer(seen.dial))
		if err != nil {
			return Outcome{}, err
		}
		defer client.Close()
		clients[c] = client
	}
	each := func(run func(c int) error) error {
		failed := newErrorBox()
		var group sync.WaitGroup
		for c := range clients {
			group.Go(func() { failed.put(run(c)) })
		}
		group.Wait()
		return failed.first()
	}
	quota := s.Records / int64(s.Batch*s.Clients) // transactions of each client; 0: as many as there is time for
	if quota == 0 {
		// Unmeasured: they connect and get the producer id.
		if err := each(func(c int) error { return errors.Join(one(c), one(c), one(c)) }); err != nil {
			return Outcome{}, err
		}
	}
	whole := NewHistogram()
	before := committed.Load()
	seen.concurrent.Store(0)
	took, err := timed(w, func() error {
		hook.start()
		until := time.Now().Add(s.duration())
		return each(func(c int) error {
			for n := int64(0); n < quota || (quota == 0 && time.Now().Before(until)); n++ {
				began := time.Now()
				if err := one(c); err != nil {
					return err
				}
				whole.Add(time.Since(began))
			}
			return nil
		})
	})
	if err != nil {
		return Outcome{}, err
	}
	done := committed.Load() - before
	records := done * int64(s.Batch)
	out := Outcome{Values: map[string]float64{
		"commits_s": float64(done) / took.Seconds(), "records_s": float64(records) / took.Seconds(),
		"mib_s": float64(records) * float64(s.RecordSize) / (1 << 20) / took.Seconds(),
		// Answers of any request that carried the code, whatever the client then did about it.
		"concurrent_transactions": float64(seen.concurrent.Load()),
	}, Bytes: records * int64(s.RecordSize), Requests: done, Records: records}
	whole.into(out.Values, "")
	hook.key(keyProduce).into(out.Values, "produce_")
	hook.key(keyEndTxn).into(out.Values, "endtxn_")
	// A wait that no answer shows is in the whole but in neither part: this is above 1 then.
	if parts := out.Values["produce_p99_ms"] + out.Values["endtxn_p99_ms"]; parts > 0 {
		out.Values["hidden_wait"] = out.Values["p99_ms"] / parts
	}
	if err := seen.broken(); err != nil {
		return Outcome{}, err
	}
	return out, verify(ctx, s, committed.Load()*int64(s.Batch), true)
}

func transaction(ctx context.Context, client *kgo.Client, s Spec, partition int32) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	records := make([]*kgo.Record, s.Batch)
	for i := range records {
		records[i] = &kgo.Record{Value: payload(s.RecordSize, uint64(i)), Partition: partition}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
