package system

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestHalfMillion sends 500,000 records of 1,000 bytes as fast as the client can, and finds each at the offset it was
// acknowledged with.
func TestHalfMillion(t *testing.T) {
	for _, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			const topic, partitions, senders, each = "volume", 4, 4, 125_000
			n := startNode(t, nodeOptions{set: []string{"durability=" + durability}})
			n.createTopic(topic, partitions, map[string]string{"segment.bytes": "67108864"})
			l := newLedger(senders, partitions, 1000)
			l.run = 500 // a batch's worth, so that batches are as large as a busy client's
			began := time.Now()
			var running sync.WaitGroup
			for producer := range senders {
				client := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
					kgo.MaxBufferedRecords(5000), kgo.ProducerLinger(5*time.Millisecond))
				running.Go(func() { l.produce(context.Background(), client, topic, producer, 0, each) })
			}
			running.Wait()
			produced := time.Since(began)
			for _, err := range l.failures() {
				t.Fatal(err)
			}
			v := l.verify(t, n, topic)
			if v.found != senders*each {
				t.Errorf("%d records found, %d sent", v.found, senders*each)
			}
			t.Logf("produced in %s, read and verified in %s", produced, time.Since(began)-produced)
		})
	}
}
