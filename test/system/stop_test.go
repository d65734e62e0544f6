package system

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
)

// TestGracefulStop sends SIGTERM while fetches and a join wait and records are produced.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			gracefulStop(t, durability)
		})
	}
}

func gracefulStop(t *testing.T, durability string) {
	const carrying, asking, quiet, partitions = "carrying-on", "asking-once", "quiet", 3
	// The group waits for more members until long after the test.
	n := startNode(t, nodeOptions{set: []string{"durability=" + durability, "group.initial.rebalance.delay.ms=120000"}})
	for _, topic := range []string{carrying, asking, quiet} {
		n.createTopic(topic, partitions, nil)
	}
	parked := parkFetches(t, n, quiet, 5)
	join := parkJoin(t, n)

	// Producers that retry until they have an answer, and others that ask once: what those have no answer for must not be
	// in the log, since every append is acknowledged before the broker ends.
	patient := newLedger(2, partitions, 500)
	p := startProducers(t, n, patient, carrying, time.Millisecond)
	hasty := newLedger(2, partitions, 500)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{}, len(hasty.sent))
	for producer := range hasty.sent {
		client := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.DisableIdempotentWrite(),
			kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordRetries(0), kgo.MaxProduceRequestsInflightPerBroker(20))
		go func() {
			hasty.produce(ctx, client, asking, producer, 500*time.Microsecond, 0)
			ended <- struct{}{}
		}()
	}
	patient.awaitAcks(t, 500, 20*time.Second)
	hasty.awaitAcks(t, 500, 20*time.Second)

	took, err := n.stop()
	if err != nil || took > 5*time.Second {
		t.Errorf("SIGTERM: %v after %s; nothing is left to wait for", err, took)
	}
	cancel()
	for range hasty.sent {
		<-ended
	}
	for range 5 {
		if r := <-parked; r != nil {
			t.Errorf("a parked fetch was not answered: %v", r)
		}
	}
	if code, err := join(); err != nil || code != kerr.NotCoordinator.Code && code != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("a waiting join: code %d, %v; want NOT_COORDINATOR, with which clients try again", code, err)
	}

	n.start()
	patient.awaitAcks(t, 500, 20*time.Second)
	p.finish(t)
	v := patient.verify(t, n, carrying)
	h := hasty.verify(t, n, asking)
	if unacked := h.unackedFound(); unacked > 0 {
		t.Errorf("%d records were appended and not acknowledged", unacked)
	}
	t.Logf("stopped after %s; %d and %d acknowledged, %d and %d found, %d refused", took, patient.ackedCount(), hasty.ackedCount(),
		v.found, h.found, len(hasty.failures()))
}

// TestGracefulStopWithoutPostgres: SIGTERM while all processes of Postgres stand still. Metadata cannot be finished, but
// everything else is, in time.
func TestGracefulStopWithoutPostgres(t *testing.T) {
	t.Parallel()
	const topic, partitions = "carrying-on", 3
	pg := pgtest.Server(t)
	n := startNode(t, nodeOptions{url: pg.URL("postgres"), set: []string{"group.initial.rebalance.delay.ms=300"}})
	n.createTopic(topic, partitions, nil)
	n.createTopic("quiet", 1, nil)
	l := newLedger(2, partitions, 500)
	p := startProducers(t, n, l, topic, time.Millisecond)
	g := startGroup(t, n, "readers", topic, partitions, 2, 30*time.Second)
	g.awaitProgress(20 * time.Second)
	parked := parkFetches(t, n, "quiet", 2)
	if err := pg.Pause(); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, 500, 20*time.Second)
	took, err := n.stop()
	if err != nil || took > 10*time.Second {
		t.Errorf("SIGTERM: %v after %s", err, took)
	}
	for range 2 {
		if r := <-parked; r != nil {
			t.Errorf("a parked fetch was not answered: %v", r)
		}
	}
	if err := pg.Resume(); err != nil {
		t.Fatal(err)
	}
	n.start()
	l.awaitAcks(t, 500, 20*time.Second)
	p.finish(t)
	// The members may have given up their session meanwhile, but what was acknowledged to them is there.
	g.end()
	g.wrong = nil
	if !g.checkCommitted(context.Background(), kadm.NewClient(n.client())) || len(g.wrong) > 0 {
		t.Errorf("offsets after the restart: %v", g.wrong)
	}
	v := l.verify(t, n, topic)
	t.Logf("stopped after %s; %d acknowledged, %d found", took, l.ackedCount(), v.found)
}

// parkFetches sends long polls, each on a connection of its own, that nothing but the stop can end. The channel gets an
// error, or nil, for each.
func parkFetches(t testing.TB, n *node, topic string, polls int) <-chan error {
	t.Helper()
	id := topicID(t, n, topic)
	results := make(chan error, polls)
	sent := make(chan struct{}, polls)
	for range polls {
		client := n.client(kgo.WithHooks(&writeHook{kmsg.Fetch.Int16(), sent}))
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			resp, err := fetchRequest(topic, id, 55*time.Second).RequestWith(ctx, brokerOne{client})
			if err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			}
			if err == nil && len(resp.Topics) > 0 {
				err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
			}
			results <- err
		}()
	}
	for range polls {
		<-sent
	}
	return results
}

// parkJoin joins a group that waits for more members; the function returns the answer.
func parkJoin(t testing.TB, n *node) func() (int16, error) {
	t.Helper()
	sent := make(chan struct{}, 2)
	client := n.client(kgo.WithHooks(&writeHook{kmsg.JoinGroup.Int16(), sent}))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	join := joinRequest("waiting", 20*time.Second)
	join.RebalanceTimeoutMillis = 300_000
	resp, err := join.RequestWith(ctx, brokerOne{client})
	if err != nil || resp.ErrorCode != kerr.MemberIDRequired.Code {
		t.Fatalf("join without a member id: %+v, %v", resp, err)
	}
	<-sent
	join.MemberID = resp.MemberID
	type answer struct {
		code int16
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		resp, err := join.RequestWith(ctx, brokerOne{client})
		if err != nil {
			answers <- answer{err: err}
			return
		}
		answers <- answer{code: resp.ErrorCode}
	}()
	<-sent
	return func() (int16, error) {
		a := <-answers
		return a.code, a.err
	}
}

// fetchRequest asks for the first partition of a topic from its start.
func fetchRequest(topic string, id [16]byte, wait time.Duration) *kmsg.FetchRequest {
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.PartitionMaxBytes, partition.CurrentLeaderEpoch = 1<<20, -1
	asked := kmsg.NewFetchRequestTopic()
	asked.Topic, asked.TopicID, asked.Partitions = topic, id, append(asked.Partitions, partition)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes = int32(wait.Milliseconds()), 1, 1<<20
	fetch.SessionEpoch = -1
	fetch.Topics = append(fetch.Topics, asked)
	return fetch
}

func topicID(t testing.TB, n *node, topic string) [16]byte {
	t.Helper()
	client := n.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, client)
	if err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("metadata of %s: %+v, %v", topic, resp, err)
	}
	return resp.Topics[0].TopicID
}
