package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// benchFetch is a fetch session over many partitions.
type benchFetch struct {
	*testBroker
	session *fetchSession
}

// newBenchFetch opens a session over partitions of as many topics, each holding one batch of so many records.
func newBenchFetch(tb testing.TB, partitions, records int) *benchFetch {
	f := &benchFetch{testBroker: newTestBroker(tb)}
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	req.MaxBytes, req.SessionEpoch = 50<<20, sessionEpochInitial
	for i := range partitions {
		name := fmt.Sprintf("topic-%03d", i)
		f.create(name, 1, nil)
		if records > 0 {
			f.append(name, 0, records)
		}
		t, _ := f.catalog.Load().topicByName(name)
		part := kmsg.NewFetchRequestTopicPartition()
		part.PartitionMaxBytes = 1 << 20
		req.Topics = append(req.Topics, kmsg.FetchRequestTopic{TopicID: t.id, Partitions: []kmsg.FetchRequestTopicPartition{part}})
	}
	f.fetch(req, 0)
	for _, s := range f.sessions.byID {
		f.session = s
	}
	return f
}

// fetch runs one request to its answer. One that waits is ended, as by its time, once it is parked.
func (f *benchFetch) fetch(req *kmsg.FetchRequest, wait time.Duration) {
	answered := make(chan struct{})
	f.handleFetch(context.Background(), &wire.Request{Conn: &wire.Conn{}, Key: 1, Version: 17, Body: req, Received: time.Now().Add(wait)},
		func(r wire.Response, _ error) {
			for _, part := range r.Body {
				if part.Payload != nil {
					part.Payload.Release()
				}
			}
			close(answered)
		})
	if wait > 0 {
		f.releaseParked()
		f.parked.stopped = false
	}
	<-answered
}

// again fetches the whole session once more, from the same offsets.
func (f *benchFetch) again(wait time.Duration) {
	next := kmsg.NewPtrFetchRequest()
	next.SetVersion(17)
	next.MaxBytes, next.SessionID, next.SessionEpoch = 50<<20, f.session.id, f.session.epoch
	if wait > 0 {
		next.MinBytes = 1
	}
	f.fetch(next, wait)
}

// BenchmarkIdleFetch is a long poll of a session with 100 partitions that ends by its time with nothing to read.
func BenchmarkIdleFetch(b *testing.B) {
	f := newBenchFetch(b, 100, 0)
	b.ReportAllocs()
	for b.Loop() {
		f.again(time.Hour)
	}
}

// BenchmarkFetch is a fetch of a session with 100 partitions that have a batch of 50 small records each.
func BenchmarkFetch(b *testing.B) {
	f := newBenchFetch(b, 100, 50)
	b.ReportAllocs()
	for b.Loop() {
		f.again(0)
	}
}

// TestFetchAllocations: a poll that waits for nothing allocates by the request and not by the partition; one that reads,
// at most twice for each partition.
func TestFetchAllocations(t *testing.T) {
	const partitions = 100
	idle, full := newBenchFetch(t, partitions, 0), newBenchFetch(t, partitions, 50)
	if n := testing.AllocsPerRun(100, func() { idle.again(time.Hour) }); n > partitions/2 {
		t.Errorf("an idle poll of %d partitions makes %v allocations", partitions, n)
	}
	if n := testing.AllocsPerRun(100, func() { full.again(0) }); n > 2*partitions {
		t.Errorf("a fetch from %d partitions makes %v allocations", partitions, n)
	} else {
		t.Logf("a fetch from %d partitions makes %v allocations", partitions, n)
	}
}
