package broker

// OffsetDelete (key 47), version 0 (KIP-496).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleOffsetDelete(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if req.Group == "" { // which has no members and may have offsets all the same
		resp.ErrorCode = codeOf(coordinator.ErrInvalidGroupID)
		done(wire.Response{Msg: resp}, nil)
		return
	}
	remove := coordinator.DeleteOffsetsRequest{Group: req.Group}
	var rows []*kmsg.OffsetDeleteResponseTopicPartition // of remove.Partitions
	topics := make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	cat := b.catalog.Load()
	for i := range req.Topics {
		rt, out := &req.Topics[i], &topics[i]
		out.Default()
		out.Topic = rt.Topic
		out.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(rt.Partitions))
		t, known := cat.topicByName(rt.Topic)
		for j := range rt.Partitions {
			row := &out.Partitions[j]
			row.Default()
			row.Partition = rt.Partitions[j].Partition
			exists := known
			if known {
				_, exists = t.partition(row.Partition)
			}
			if !exists {
				row.ErrorCode = codeOf(errUnknownTopic)
				continue
			}
			rows = append(rows, row)
			remove.Partitions = append(remove.Partitions, coordinator.NamedPartition{
				TopicPartition: coordinator.TopicPartition{TopicID: t.id, Partition: row.Partition}, Topic: t.name,
			})
		}
	}
	b.groups.DeleteOffsets(remove, func(reply coordinator.DeleteOffsetsReply) {
		b.releaseGroup(reply.Err, func(err error) {
			if resp.ErrorCode = codeOf(err); err == nil {
				for i, row := range rows {
					row.ErrorCode = codeOf(reply.Partitions[i])
				}
				resp.Topics = topics
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}
