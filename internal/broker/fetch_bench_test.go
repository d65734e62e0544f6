package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// BenchmarkIdleFetch is a long poll of a session with 100 partitions that ends by its time with nothing to read.
func BenchmarkIdleFetch(b *testing.B) {
	tb := newTestBroker(b)
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	req.MinBytes, req.MaxBytes, req.SessionEpoch = 1, 1<<20, sessionEpochInitial
	for i := range 100 {
		name := fmt.Sprintf("topic-%03d", i)
		tb.create(name, 1, nil)
		t, _ := tb.catalog.Load().topicByName(name)
		part := kmsg.NewFetchRequestTopicPartition()
		part.PartitionMaxBytes = 1 << 20
		req.Topics = append(req.Topics, kmsg.FetchRequestTopic{TopicID: t.id, Partitions: []kmsg.FetchRequestTopicPartition{part}})
	}
	fetch := func(req *kmsg.FetchRequest, wait time.Duration) {
		answered := make(chan struct{})
		tb.handleFetch(context.Background(), &wire.Request{Conn: &wire.Conn{}, Key: 1, Version: 17, Body: req, Received: time.Now().Add(wait)},
			func(wire.Response, error) { close(answered) })
		if wait > 0 {
			tb.releaseParked()
			tb.parked.stopped = false
		}
		<-answered
	}
	fetch(req, 0)
	var session *fetchSession
	for _, s := range tb.sessions.byID {
		session = s
	}
	b.ReportAllocs()
	for b.Loop() {
		next := kmsg.NewPtrFetchRequest()
		next.SetVersion(17)
		next.MinBytes, next.MaxBytes, next.SessionID, next.SessionEpoch = 1, 1<<20, session.id, session.epoch
		fetch(next, time.Hour)
	}
}
