package broker

// TxnOffsetCommit (key 28), versions 0 to 6. v2 leader epoch · v3 member, generation, instance (KIP-447), flexible · v4
// TRANSACTION_ABORTABLE · v5 no AddOffsetsToTxn before (KIP-890) · v6 topic ids.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleTxnOffsetCommit(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.TxnOffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	commit := coordinator.TxnCommitRequest{TxnID: txnID(r, req.TransactionalID, req.ProducerID, req.ProducerEpoch), Group: req.Group,
		MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation, Version: req.Version}
	var rows []*kmsg.TxnOffsetCommitResponseTopicPartition // of commit.Offsets
	cat := b.catalog.Load()
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		rt, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic, out.TopicID = rt.Topic, rt.TopicID
		out.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(rt.Partitions))
		t, err := findTopic(cat, req.Version >= 6, rt.Topic, rt.TopicID)
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
			commit.Offsets = append(commit.Offsets, coordinator.CommitOffset{TopicID: t.id, Partition: asked.Partition, Offset: asked.Offset,
				LeaderEpoch: asked.LeaderEpoch, Metadata: orEmpty(asked.Metadata)})
		}
	}
	if len(rows) == 0 {
		done(wire.Response{Msg: resp}, nil)
		return
	}
	b.groups.CommitTxnOffsets(commit, func(reply coordinator.CommitReply) {
		b.releaseGroup(reply.Err, func(err error) {
			for i, row := range rows {
				row.ErrorCode = codeOf(err)
				if err == nil {
					row.ErrorCode = codeOf(reply.Offsets[i])
				}
			}
			doneUnlessStale(done, resp, err)
		})
	})
}
