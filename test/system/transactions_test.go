package system

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TestTransactionsUnderKillNine copies records from one topic to another in transactions while the broker is killed again
// and again. An application that meets an error begins anew. Each record arrives exactly once, with both protocols of
// transactions and in both modes.
func TestTransactionsUnderKillNine(t *testing.T) {
	t.Parallel()
	old := kversion.Stable()
	for key, max := range map[kmsg.Key]int16{kmsg.Produce: 11, kmsg.EndTxn: 4, kmsg.TxnOffsetCommit: 4, kmsg.AddPartitionsToTxn: 3} {
		old.SetMaxKeyVersion(key.Int16(), max)
	}
	for name, opts := range map[string][]kgo.Opt{"strict": nil, "relaxed": nil, "strict-old-protocol": {kgo.MaxVersions(old)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			durability, _, _ := strings.Cut(name, "-")
			n := startNode(t, nodeOptions{set: []string{"durability=" + durability, "group.initial.rebalance.delay.ms=100", "group.min.session.timeout.ms=1000"}})
			n.createTopic("in", 2, nil)
			n.createTopic("out", 2, nil)
			const records = 2000
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			p := n.client()
			var want []string
			for i := range records {
				want = append(want, fmt.Sprintf("%05d", i))
				p.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte(want[i])}, nil)
			}
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			copied := make(chan int, 10_000)
			done := make(chan error, 1)
			go func() { done <- copyAll(ctx, n, opts, records, copied) }()
			kills, sum := 0, 0
			for over := false; !over; {
				select {
				case c := <-copied:
					if sum += c; kills < 4 && sum > (kills+1)*records/6 {
						n.kill()
						n.start()
						kills++
					}
				case err := <-done:
					if err != nil {
						t.Fatalf("%v after %d records and %d kills", err, sum, kills)
					}
					over = true
				}
			}
			if kills < 3 {
				t.Errorf("only %d kills", kills)
			}
			got := readCommitted(t, ctx, n, "out", 2)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%d records arrived, want each of %d once", len(got), len(want))
			}
			t.Logf("%d records, %d kills", len(got), kills)
			n.verifyStopped()
		})
	}
}

// copyAll copies until the group's committed offsets cover all records.
func copyAll(ctx context.Context, n *node, opts []kgo.Opt, records int, copied chan<- int) error {
	for ctx.Err() == nil {
		s, err := kgo.NewGroupTransactSession(append(slices.Clone(opts), kgo.SeedBrokers(n.bootstrap), kgo.AlwaysRetryEOF(), kgo.TransactionalID("copier"), kgo.ConsumerGroup("copiers"),
			kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.SessionTimeout(2*time.Second),
			kgo.HeartbeatInterval(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			if n.lag(ctx, "copiers", "in", 2, records) {
				s.Close()
				return nil
			}
			poll, cancel := context.WithTimeout(ctx, 2*time.Second)
			f := s.PollRecords(poll, 50)
			cancel()
			if f.NumRecords() == 0 {
				continue
			}
			if s.Begin() != nil {
				break
			}
			f.EachRecord(func(r *kgo.Record) { s.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}, nil) })
			committed, err := s.End(ctx, kgo.TryCommit)
			if err != nil {
				break
			}
			if committed {
				copied <- f.NumRecords()
			}
		}
		s.Close()
	}
	return ctx.Err()
}

// lag says whether the group's stable offsets cover all records.
func (n *node) lag(ctx context.Context, group, topic string, partitions int32, records int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group, r.RequireStable = group, true
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic = topic
	for p := range partitions {
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = topic, t.Partitions
	g.Topics = append(g.Topics, gt)
	r.Groups = append(r.Groups, g)
	client, err := kgo.NewClient(kgo.SeedBrokers(n.bootstrap), kgo.AlwaysRetryEOF(), kgo.MaxVersions(kversion.V3_0_0()))
	if err != nil {
		return false
	}
	defer client.Close()
	resp, err := r.RequestWith(ctx, client)
	if err != nil {
		return false
	}
	sum := int64(0)
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				sum += max(p.Offset, 0)
			}
		}
	}
	return sum >= int64(records)
}

// readCommitted reads a topic to its end.
func readCommitted(t testing.TB, ctx context.Context, n *node, topic string, partitions int32) []string {
	t.Helper()
	p := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range partitions {
		if err := p.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: i, Value: []byte("end")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c := n.client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for ends := int32(0); ends < partitions && ctx.Err() == nil; {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if string(r.Value) == "end" {
				ends++
				return
			}
			got = append(got, string(r.Value))
		})
	}
	return got
}
