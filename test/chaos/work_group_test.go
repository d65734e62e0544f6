package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/test/history"
)

// consume is one member of a group that works on records and commits its offsets. It ends its life at random and begins
// anew, so that the group rebalances.
func (r *run) consume(ctx context.Context, group, protocol, topic string, instance int) {
	name := fmt.Sprintf("%s-%d", group, instance)
	random := r.random(name)
	for ctx.Err() == nil {
		r.consumeLife(ctx, pipeline{in: topic, group: group, protocol: protocol}, r.recorder.Process(name), random)
		pause(ctx, random, 300*time.Millisecond)
	}
}

func (r *run) consumeLife(ctx context.Context, p pipeline, process *history.Process, random *rand.Rand) {
	assignment := 0 // rebalances are blocked while records are at work, so no lock
	changed := func(context.Context, *kgo.Client, map[string][]int32) { assignment++ }
	client := r.client(append(p.groupOpts(), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.OnPartitionsRevoked(changed), kgo.OnPartitionsLost(changed),
		kgo.OnPartitionsAssigned(func(_ context.Context, c *kgo.Client, got map[string][]int32) {
			assignment++
			member, generation := c.GroupMetadata()
			op := history.Op{Kind: history.Assign, Group: p.group, Member: member, Generation: generation}
			for topic, partitions := range got {
				for _, n := range partitions {
					op.Partitions = append(op.Partitions, history.Place{Topic: topic, Partition: n})
				}
			}
			process.Note(op)
		}))...)
	defer client.CloseAllowingRebalance()
	ends := time.Now().Add(3*time.Second + time.Duration(random.IntN(10_000))*time.Millisecond)
	for ctx.Err() == nil && time.Now().Before(ends) {
		polling, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		poll := process.Invoke(history.Op{Kind: history.Poll, Committed: true})
		fetches := client.PollRecords(polling, 1+random.IntN(100))
		cancel()
		records := fetches.Records()
		poll.Done(history.OK, func(o *history.Op) { o.Records, o.Assignment = recordsOf(records), assignment })
		if len(records) > 0 {
			r.workAndCommit(client, p, process, fetches)
		}
		client.AllowRebalance()
	}
}

func (r *run) workAndCommit(client *kgo.Client, p pipeline, process *history.Process, fetches kgo.Fetches) {
	member, _ := client.GroupMetadata() // which franz-go also writes as metadata
	asked := map[string]map[int32]kgo.EpochOffset{}
	pending := map[history.Place]*history.Pending{}
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		n := len(f.Records)
		if n == 0 {
			return
		}
		work := history.Op{Kind: history.Work, Group: p.group, Topic: f.Topic, Partition: f.Partition}
		for _, rec := range f.Records {
			work.Offsets = append(work.Offsets, rec.Offset)
		}
		process.Note(work)
		last := f.Records[n-1]
		if asked[f.Topic] == nil {
			asked[f.Topic] = map[int32]kgo.EpochOffset{}
		}
		asked[f.Topic][f.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
		pending[history.Place{Topic: f.Topic, Partition: f.Partition}] = process.Invoke(history.Op{Kind: history.CommitOffset, Group: p.group, Topic: f.Topic,
			Partition: f.Partition, Offset: last.Offset + 1, Metadata: member, Protocol: p.protocol})
	})
	committing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client.CommitOffsetsSync(committing, asked, func(_ *kgo.Client, request *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			for _, c := range pending {
				c.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
			}
			return
		}
		for _, t := range response.Topics {
			for _, part := range t.Partitions {
				if c := pending[history.Place{Topic: t.Topic, Partition: part.Partition}]; c != nil {
					c.Done(history.CommitOutcome(part.ErrorCode, 0), func(o *history.Op) {
						noteCode(part.ErrorCode)(o)
						o.Member, o.Generation = request.MemberID, request.Generation
					})
				}
			}
		}
	})
}
