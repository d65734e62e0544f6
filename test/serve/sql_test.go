package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// background are the statements that come by the clock, not by requests: the four of the lease's renewal, twice a second,
// and the writer of the log offsets that operators see.
var background = []string{"renew", "catalog", "own_shards", "server_mark", "log_offsets"}

const statementCount = "pgbroker_postgres_statement_duration_seconds_count"

// statements counts the SQL statements sent since the start, by name.
func statements(n *node) map[string]float64 {
	counts := map[string]float64{}
	for sample, value := range n.metrics() {
		if label, ok := strings.CutPrefix(sample, statementCount+`{statement="`); ok {
			counts[strings.TrimSuffix(label, `"}`)] = value
		}
	}
	return counts
}

// requests counts the requests of an API since the start.
func requests(n *node, api string) (total float64) {
	for sample, value := range n.metrics() {
		if strings.HasPrefix(sample, `kafka_network_requestmetrics_requests_total{request="`+api+`"`) {
			total += value
		}
	}
	return total
}

// inParallel runs f for each number below total, by workers.
func inParallel(workers, total int, f func(worker, i int) error) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < total && errs[w] == nil; i += workers {
				errs[w] = f(w, i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestProduceAndFetchIssueNoSQL: 10,000 produces and 10,000 fetches of an existing topic send nothing to Postgres but what
// comes by the clock. That the count would notice is shown by an OffsetCommit.
func TestProduceAndFetchIssueNoSQL(t *testing.T) {
	const workers, total, partitions = 16, 10_000, 8
	n := serve(t, database(t), "durability=relaxed")
	n.createTopics(partitions, "quiet")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clients := make([]*kgo.Client, workers)
	for i := range clients {
		clients[i] = n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		// The first produce asks for a producer id, which is SQL once in a thousand producers.
		if err := clients[i].ProduceSync(ctx, &kgo.Record{Topic: "quiet", Value: []byte("first")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	topics, err := kadm.NewClient(clients[0]).ListTopics(ctx, "quiet")
	if err != nil {
		t.Fatal(err)
	}
	id := topics["quiet"].ID

	before, began := statements(n), time.Now()
	produced, fetched := requests(n, "Produce"), requests(n, "Fetch")
	if err := inParallel(workers, total, func(w, i int) error {
		return clients[w].ProduceSync(ctx, &kgo.Record{Topic: "quiet", Partition: int32(i % partitions), Value: fmt.Append(nil, i)}).FirstErr()
	}); err != nil {
		t.Fatal(err)
	}
	if err := inParallel(workers, total, func(w, i int) error { return fetchOnce(ctx, clients[w], id, int32(i%partitions)) }); err != nil {
		t.Fatal(err)
	}
	took, after := time.Since(began), statements(n)
	produced, fetched = requests(n, "Produce")-produced, requests(n, "Fetch")-fetched
	if produced < total || fetched < total {
		t.Fatalf("only %.0f produces and %.0f fetches were counted", produced, fetched)
	}
	moved := map[string]float64{}
	for name, count := range after {
		if d := count - before[name]; d > 0 {
			moved[name] = d
		}
	}
	t.Logf("%.0f produces and %.0f fetches in %s; statements meanwhile: %v", produced, fetched, took.Round(time.Millisecond), moved)
	limit := 2*took.Seconds() + 2
	for name, d := range moved {
		if !slices.Contains(background, name) {
			t.Errorf("%.0f statements %q beside produce and fetch", d, name)
		} else if d > limit {
			t.Errorf("%.0f statements %q in %s: more than the clock explains", d, name, took)
		}
	}
	if len(before) == 0 {
		t.Errorf("no statement is counted at all: %v", slices.Sorted(maps.Keys(n.metrics())))
	}

	upserts := statements(n)["offsets_upsert"]
	var commit kadm.Offsets
	commit.Add(kadm.Offset{Topic: "quiet", Partition: 0, At: 1, LeaderEpoch: -1})
	if err := kadm.NewClient(clients[0]).CommitAllOffsets(ctx, "committer", commit); err != nil {
		t.Fatal(err)
	}
	if now := statements(n)["offsets_upsert"]; now != upserts+1 {
		t.Errorf("an OffsetCommit moved the count of its statement from %.0f to %.0f", upserts, now)
	}
}

// fetchOnce reads one partition from its start without waiting.
func fetchOnce(ctx context.Context, c *kgo.Client, topic kadm.TopicID, partition int32) error {
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.PartitionMaxBytes = partition, 1000
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes, req.SessionEpoch = 1, 1000, -1
	req.Topics = []kmsg.FetchRequestTopic{{Topic: "quiet", TopicID: topic, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
	resp, err := req.RequestWith(ctx, c.Broker(1))
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return err
	}
	if len(got.RecordBatches) == 0 {
		return fmt.Errorf("nothing in partition %d", partition)
	}
	return nil
}
