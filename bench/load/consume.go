package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readLimit bounds a read of what a case wrote.
const readLimit = 5 * time.Minute

// consume reads the topic from its start to its end, as often as asked, the partitions divided among the clients.
func consume(ctx context.Context, s Spec, w Stopwatch) (Outcome, error) {
	hook := newRequests()
	took, err := timed(w, func() error {
		hook.start()
		for range max(s.Passes, 1) {
			if err := readAll(ctx, s, s.Clients, s.Records, hook); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	records := s.Records * int64(max(s.Passes, 1))
	bytes := records * int64(s.RecordSize)
	h := hook.key(keyFetch)
	out := Outcome{Values: map[string]float64{
		"mib_s": float64(bytes) / (1 << 20) / took.Seconds(), "records_s": float64(records) / took.Seconds(),
		"requests_s": float64(h.Count()) / took.Seconds(), "seconds": took.Seconds(),
	}, Bytes: bytes, Requests: h.Count(), Records: records}
	h.into(out.Values, "")
	return out, nil
}

// readAll reads every partition from offset 0 with so many clients, until count records were read in all.
func readAll(ctx context.Context, s Spec, clients int, count int64, hook *requests) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	end, err := endOffsets(ctx, s)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	failed := newErrorBox()
	readers := make([]*reader, clients)
	for c := range readers {
		r := &reader{next: map[int32]int64{}, end: map[int32]int64{}, bytes: s.RecordSize, gaps: s.ReadCommitted}
		for p := int32(c); p < s.Partitions; p += int32(clients) {
			r.next[p], r.end[p] = 0, end[p]
		}
		readers[c] = r
		group.Go(func() { failed.put(r.run(ctx, s, hook)) })
	}
	group.Wait()
	if err := failed.first(); err != nil {
		return err
	}
	var read int64
	for _, r := range readers {
		read += r.records
	}
	if read != count {
		return fmt.Errorf("%d records written, %d read back", count, read)
	}
	return nil
}

// reader reads some partitions and checks each record.
type reader struct {
	next, end map[int32]int64 // by partition: the offset expected next, and where reading ends
	bytes     int             // size of each record's value
	gaps      bool            // offsets may have gaps: aborted records are not shown
	records   int64
}

func (r *reader) run(ctx context.Context, s Spec, hook *requests) error {
	from := map[int32]kgo.Offset{}
	for p := range r.next {
		from[p] = kgo.NewOffset().At(0)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(s.Bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.Topic: from}), kgo.FetchMaxBytes(32 << 20),
		kgo.FetchMaxPartitionBytes(1 << 20), kgo.WithHooks(hook), kgo.KeepControlRecords(), // markers have offsets, too
	}
	if s.ReadCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	for !r.done() {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records, at %v of %v: %w", r.records, r.next, r.end, err)
		}
		var wrong error
		fetches.EachRecord(func(rec *kgo.Record) {
			if err := r.check(rec); err != nil && wrong == nil {
				wrong = err
			}
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

func (r *reader) done() bool {
	for p, next := range r.next {
		if next < r.end[p] {
			return false
		}
	}
	return true
}

// check counts a record; an offset that is not the next one is an error.
func (r *reader) check(rec *kgo.Record) error {
	next := r.next[rec.Partition]
	if rec.Offset < next || (rec.Offset > next && !r.gaps) {
		return fmt.Errorf("partition %d: offset %d where %d was due", rec.Partition, rec.Offset, next)
	}
	r.next[rec.Partition] = rec.Offset + 1
	if rec.Attrs.IsControl() {
		return nil
	}
	if len(rec.Value) != r.bytes {
		return fmt.Errorf("partition %d: the record at %d has %d bytes, not %d", rec.Partition, rec.Offset, len(rec.Value), r.bytes)
	}
	r.records++
	return nil
}

// verify reads everything back: count records with no gap between their offsets, or so many committed ones.
func verify(ctx context.Context, s Spec, count int64, committed bool) error {
	s.ReadCommitted = committed
	if err := readAll(ctx, s, 1, count, newRequests()); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}

// Ends checks that the logs of the topic end where count records from 0 end.
func Ends(ctx context.Context, s Spec, count int64) error {
	end, err := endOffsets(ctx, s)
	if err != nil {
		return err
	}
	var sum int64
	for _, e := range end {
		sum += e
	}
	if sum != count {
		return fmt.Errorf("%d records acknowledged, the logs hold %d", count, sum)
	}
	return nil
}

// endOffsets returns the end of each partition, for everybody (read_uncommitted).
func endOffsets(ctx context.Context, s Spec) (map[int32]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, s.Topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", s.Topic, err)
	}
	end := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { end[o.Partition] = o.Offset })
	if len(end) != int(s.Partitions) {
		return nil, fmt.Errorf("%s has %d partitions, not %d", s.Topic, len(end), s.Partitions)
	}
	return end, nil
}
