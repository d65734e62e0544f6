package broker

// DescribeTopicPartitions (key 75, KIP-966), version 0: topics by name, a page at a time.
// Left out: eligible leader replicas. With one replica there are none, and the lists are empty.

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// maxPartitionPage is max.request.partition.size.limit of a stock Kafka: the most partitions of one answer.
const maxPartitionPage = 2000

func (b *Broker) handleDescribeTopicPartitions(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	cat := b.catalog.Load()
	names, err := b.topicsFrom(cat, req)
	if err != nil {
		for _, asked := range req.Topics {
			row := kmsg.NewDescribeTopicPartitionsResponseTopic()
			row.Topic, row.ErrorCode = kmsg.StringPtr(asked.Topic), codeOf(err)
			resp.Topics = append(resp.Topics, row)
		}
		done(wire.Response{Msg: resp}, nil)
		return
	}
	left := min(max(int(req.ResponsePartitionLimit), 1), maxPartitionPage)
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = nextPartition(name, 0)
			break
		}
		first := 0
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = int(req.Cursor.Partition)
		}
		row, described, all := describePartitions(cat, name, first, left)
		resp.Topics = append(resp.Topics, row)
		left -= described
		if !all {
			resp.NextCursor = nextPartition(name, first+described)
			break
		}
	}
	done(wire.Response{Msg: resp}, nil)
}

func nextPartition(topic string, partition int) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, int32(partition)
	return &c
}

// topicsFrom lists the names that are asked for, sorted and once each, from the cursor on. Without names all topics are
// meant. A cursor must name a topic that is asked for, or, where all are meant, may name one that is gone.
func (b *Broker) topicsFrom(cat *catalog, req *kmsg.DescribeTopicPartitionsRequest) ([]string, error) {
	var names []string
	for _, asked := range req.Topics {
		names = append(names, asked.Topic)
	}
	if len(req.Topics) == 0 {
		for _, t := range cat.topics {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor == nil {
		return names, nil
	}
	if req.Cursor.Partition < 0 {
		return nil, fmt.Errorf("%w: partition %d of the cursor", errInvalidRequest, req.Cursor.Partition)
	}
	at, found := slices.BinarySearchFunc(names, req.Cursor.Topic, cmp.Compare[string])
	if !found && len(req.Topics) > 0 {
		return nil, fmt.Errorf("%w: the cursor's topic %q is not asked for", errInvalidRequest, req.Cursor.Topic)
	}
	return names[at:], nil
}

// describePartitions describes at most limit partitions of a topic from one on; all says that none is left.
func describePartitions(cat *catalog, name string, first, limit int) (row kmsg.DescribeTopicPartitionsResponseTopic, described int, all bool) {
	row = kmsg.NewDescribeTopicPartitionsResponseTopic()
	row.Topic, row.AuthorizedOperations = &name, topicOperations
	t, ok := cat.topicByName(name)
	if !ok {
		err := validTopicName(name)
		if err == nil {
			err = errUnknownTopic
		}
		row.ErrorCode = codeOf(err)
		return row, 0, true
	}
	row.TopicID = t.id
	described = max(0, min(limit, len(t.partitions)-first))
	for i := first; i < first+described; i++ {
		p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		l := t.partitions[i].lead.Load()
		p.Partition, p.LeaderID, p.LeaderEpoch = int32(i), l.row.Leader, l.row.Term
		p.Replicas, p.ISR = l.row.Replicas, l.row.ISR
		p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
		if l.log == nil {
			p.ErrorCode, p.LeaderID, p.OfflineReplicas = leaderNotAvailable, -1, p.Replicas
		}
		row.Partitions = append(row.Partitions, p)
	}
	return row, described, first+described >= len(t.partitions)
}
