package broker

// OffsetForLeaderEpoch (key 23), versions 2 to 4. v2 current leader epoch (KIP-320) · v3 replica id · v4 flexible.
// Consumers ask it to find out whether the log they read was truncated.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleOffsetForLeaderEpoch(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	cat := b.catalog.Load()
	for _, rt := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = rt.Topic
		t, err := findTopic(cat, false, rt.Topic, [16]byte{})
		for _, rp := range rt.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = rp.Partition, -1, -1
			err := err
			if err == nil {
				err = endOfTerm(t, rp, &p)
			}
			p.ErrorCode = codeOf(err)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	b.release(func(err error) {
		if err != nil {
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					p := &resp.Topics[i].Partitions[j]
					p.ErrorCode, p.LeaderEpoch, p.EndOffset = codeOf(err), -1, -1
				}
			}
		}
		done(wire.Response{Msg: resp}, nil)
	})
}

// endOfTerm fills in the largest term at or below the asked one and where it ends; -1, -1 for a future term. The
// offset is never below the log start.
func endOfTerm(t *topic, asked kmsg.OffsetForLeaderEpochRequestTopicPartition, out *kmsg.OffsetForLeaderEpochResponseTopicPartition) error {
	p, ok := t.partition(asked.Partition)
	if !ok {
		return errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return err
	}
	if err := lead.checkTerm(asked.CurrentLeaderEpoch); err != nil {
		return err
	}
	if asked.LeaderEpoch > lead.row.Term {
		return nil
	}
	found, end := lead.log.EndOfTerm(asked.LeaderEpoch)
	if found < 0 {
		return nil
	}
	out.LeaderEpoch, out.EndOffset = found, max(end, lead.log.Offsets().Start)
	return nil
}
