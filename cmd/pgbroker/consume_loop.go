package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchWait is how long a broker may park a fetch that finds nothing (fetch.max.wait.ms).
	fetchWait = 500 * time.Millisecond
	// assignWait is how long a group may take to assign partitions: its other members have the
	// rebalance timeout to join again, a minute in this client.
	assignWait = time.Minute
	// pollWait is how often the loop looks whether it is done while nothing arrives.
	pollWait = 250 * time.Millisecond
	pollMax  = 10_000 // records taken at once
)

// loop prints records until the end, the limit or a signal.
func (run *consumption) loop() error {
	silentSince := time.Now()
	for !run.parts.done() && !run.full() {
		limit := int64(pollMax)
		if run.f.limit > 0 {
			limit = min(limit, run.f.limit-run.printed)
		}
		ctx, cancel := context.WithTimeout(run.c.run, pollWait)
		fetches := run.c.PollRecords(ctx, int(limit))
		cancel()
		if run.c.run.Err() != nil {
			return context.Cause(run.c.run)
		}
		if err := fetchError(fetches); err != nil {
			return err
		}
		n, err := run.print(fetches)
		if run.f.group != "" {
			run.c.AllowRebalance()
		}
		if err != nil {
			return err
		}
		if n > 0 {
			silentSince = time.Now()
			continue
		}
		run.progress.tick()
		if last := run.watch.lastAnswer(); last.After(silentSince) {
			silentSince = last
		}
		if run.f.follow {
			run.noteSilence(time.Since(silentSince))
			continue
		}
		if err := run.silence(time.Since(silentSince)); err != nil {
			return err
		}
		atEnd, err := run.allParked()
		if err != nil || atEnd {
			return err
		}
	}
	return nil
}

// silence is an error when nothing was heard for so long that the end will not be reached.
func (run *consumption) silence(silent time.Duration) error {
	if _, assigned := run.parts.pending(); !assigned {
		if silent > assignWait+run.c.g.timeout {
			return unreachablef("group %q assigned no partitions within %s; see pgbroker group describe %s", run.f.group, silent.Round(time.Second), run.f.group)
		}
		return nil
	}
	if silent > run.c.g.timeout {
		return unreachablef("no answer to a fetch for %s; records are missing after the last one printed", silent.Round(time.Second))
	}
	return nil
}

// noteSilence tells whoever follows a log when the brokers fall silent, and when they are back.
func (run *consumption) noteSilence(silent time.Duration) {
	switch {
	case silent > run.c.g.timeout && !run.silent:
		run.silent = true
		run.c.g.printNote(run.progress.w, "note: no answer from the brokers for %s; still trying", silent.Round(time.Second))
	case silent < run.c.g.timeout && run.silent:
		run.silent = false
		run.c.g.printNote(run.progress.w, "note: the brokers answer again")
	}
}

// wanted leaves out what comes before an offset that did not exist yet when following began.
func (run *consumption) wanted(r *kgo.Record) bool {
	return run.rng.from.kind != exact || r.Offset >= run.rng.from.n
}

func (run *consumption) full() bool { return run.f.limit > 0 && run.printed >= run.f.limit }

// fetchError returns the first error that the client does not repair itself.
func fetchError(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, context.DeadlineExceeded) {
			continue // of the poll
		}
		if e.Topic == "" {
			return e.Err
		}
		return kafkaError(fmt.Sprintf("fetch %s-%d", e.Topic, e.Partition), e.Err, "")
	}
	return nil
}

// print writes the records of one poll and returns how many arrived, markers included.
func (run *consumption) print(fetches kgo.Fetches) (int, error) {
	arrived := 0
	var done []*kgo.Record
	var written, size int64
	for it := fetches.RecordIter(); !it.Done(); {
		r := it.Next()
		arrived++
		inside := run.parts.reached(r.Topic, r.Partition, r.Offset)
		if inside && !r.Attrs.IsControl() && run.wanted(r) {
			var err error
			if run.buf, err = run.format(run.buf[:0], r); err != nil {
				return arrived, err
			}
			if _, err := run.out.Write(run.buf); err != nil {
				return arrived, fmt.Errorf("write: %w", err)
			}
			written++
			size += int64(len(r.Key) + len(r.Value))
		}
		if inside {
			done = append(done, r)
		}
	}
	if arrived == 0 {
		return 0, nil
	}
	run.watch.reset()
	if err := run.out.Flush(); err != nil {
		return arrived, fmt.Errorf("write: %w", err)
	}
	if run.f.group != "" {
		run.c.MarkCommitRecords(done...)
	}
	run.printed += written
	run.progress.add(written, size)
	return arrived, nil
}

// allParked reports whether the leaders of all partitions that are not done have parked two
// fetches for their full time since the last record. Then nothing is left to read, although the
// last offsets were not seen: compaction or a broken transaction left no record there.
func (run *consumption) allParked() (bool, error) {
	parked := run.watch.parkedBrokers(2)
	pending, known := run.parts.pending()
	if len(parked) == 0 || len(pending) == 0 || !known {
		return false, nil
	}
	var topics []string
	for _, tp := range pending {
		topics = append(topics, tp.topic)
	}
	ctx, cancel := run.c.bounded()
	defer cancel()
	details, err := run.c.adm.ListTopicsWithInternal(ctx, unique(topics)...)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(pending, func(tp topicPartition) bool {
		return !slices.Contains(parked, details[tp.topic].Partitions[tp.partition].Leader)
	}), nil
}

// fetchWatch counts, per broker, the fetches that found nothing for as long as they may wait.
type fetchWatch struct {
	mu     sync.Mutex
	parked map[int32]int
	last   time.Time // of any answer to a fetch
}

func newFetchWatch() *fetchWatch { return &fetchWatch{parked: map[int32]int{}} }

// OnBrokerE2E is called by kgo after each request.
func (w *fetchWatch) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key != int16(kmsg.Fetch) || e2e.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	if e2e.DurationE2E() >= fetchWait*9/10 {
		w.parked[meta.NodeID]++
	}
}

func (w *fetchWatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.parked)
}

func (w *fetchWatch) lastAnswer() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *fetchWatch) parkedBrokers(times int) []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []int32
	for id, n := range w.parked {
		if n >= times {
			ids = append(ids, id)
		}
	}
	return ids
}

// partitionProgress knows for each partition where reading stops and how far it has come. In a
// group it follows what the group assigns, which may begin before the ends are known.
type partitionProgress struct {
	mu      sync.Mutex
	follow  bool
	ends    map[topicPartition]int64 // nil until they are known
	active  map[topicPartition]int64 // partitions to be read → next offset, -1 when unknown
	started bool                     // the partitions are known; in a group after the first assignment
}

type topicPartition struct {
	topic     string
	partition int32
}

func newPartitionProgress() *partitionProgress {
	return &partitionProgress{active: map[topicPartition]int64{}}
}

// setEnds sets where reading stops, which is nowhere when it follows the log.
func (p *partitionProgress) setEnds(ends kadm.ListedOffsets, follow bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follow, p.ends = follow, map[topicPartition]int64{}
	ends.Each(func(o kadm.ListedOffset) { p.ends[topicPartition{o.Topic, o.Partition}] = o.Offset })
}

// start says that the partitions which are read are known.
func (p *partitionProgress) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
}

// begin adds a partition and reports whether it has anything to read.
func (p *partitionProgress) begin(topic string, partition int32, offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	tp := topicPartition{topic, partition}
	if !p.follow && offset >= p.ends[tp] {
		return false
	}
	p.active[tp] = offset
	return true
}

// assigned is called by the client when the group assigns partitions to this member.
func (p *partitionProgress) assigned(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	for t, ps := range parts {
		for _, n := range ps {
			p.active[topicPartition{t, n}] = -1
		}
	}
}

// lost is called by the client when partitions go to another member.
func (p *partitionProgress) lost(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, ps := range parts {
		for _, n := range ps {
			delete(p.active, topicPartition{t, n})
		}
	}
}

// reached notes a record and reports whether it lies before the end.
func (p *partitionProgress) reached(topic string, partition int32, offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow {
		return true
	}
	tp := topicPartition{topic, partition}
	end := p.ends[tp]
	if offset+1 >= end {
		delete(p.active, tp)
	} else if _, ok := p.active[tp]; ok {
		p.active[tp] = offset + 1
	}
	return offset < end
}

func (p *partitionProgress) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started && p.ends != nil && !p.follow && len(p.openLocked()) == 0
}

// pending returns the partitions that have not reached their end, and whether that is all there
// is to know: before the first assignment it is not.
func (p *partitionProgress) pending() ([]topicPartition, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.openLocked(), p.started
}

func (p *partitionProgress) openLocked() []topicPartition {
	var open []topicPartition
	for tp, next := range p.active {
		if next < p.ends[tp] {
			open = append(open, tp)
		}
	}
	return open
}

// remaining counts the offsets between the next one and the end, 0 when following.
func (p *partitionProgress) remaining() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n int64
	for tp, next := range p.active {
		if !p.follow {
			n += max(p.ends[tp]-max(next, 0), 0)
		}
	}
	return n
}
