package broker

// OffsetCommit (key 8), versions 2 to 10. v2 to v4 retention time · v5 none (KIP-211) · v6 leader epoch (KIP-320) · v7
// static members (KIP-345) · v8 flexible · v9 GROUP_ID_NOT_FOUND (KIP-848) · v10 topic ids.
// Pipelined: a commit that waits for Postgres holds no request back.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleOffsetCommit(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	commit := coordinator.CommitRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		Version: req.Version, Retention: -1,
	}
	if req.RetentionTimeMillis >= 0 {
		commit.Retention = millis(req.RetentionTimeMillis)
	}
	var rows []*kmsg.OffsetCommitResponseTopicPartition // of commit.Offsets
	cat := b.catalog.Load()
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = rt.Topic, rt.TopicID
		out.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(rt.Partitions))
		t, err := findTopic(cat, req.Version >= 10, rt.Topic, rt.TopicID)
		for j := range rt.Partitions {
			asked, row := &rt.Partitions[j], &out.Partitions[j]
			row.Default()
			row.Partition = asked.Partition
			if err != nil {
				row.ErrorCode = codeOf(err)
				continue
			}
			if _, ok := t.partition(asked.Partition); !ok {
				row.ErrorCode = codeOf(errUnknownTopic)
				continue
			}
			rows = append(rows, row)
			commit.Offsets = append(commit.Offsets, coordinator.CommitOffset{
				TopicID: t.id, Partition: asked.Partition, Offset: asked.Offset,
				LeaderEpoch: asked.LeaderEpoch, Metadata: orEmpty(asked.Metadata),
			})
		}
	}
	if len(rows) == 0 {
		done(wire.Response{Msg: resp}, nil)
		return
	}
	b.groups.CommitOffsets(commit, func(reply coordinator.CommitReply) {
		b.releaseGroup(reply.Err, func(err error) {
			for i, row := range rows {
				row.ErrorCode = codeOf(err)
				if err == nil {
					row.ErrorCode = codeOf(reply.Offsets[i])
				}
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}
