package broker

// ListOffsets (key 2), versions 1 to 11. v2 isolation level · v4 leader epochs (KIP-320) · v6 flexible · v7 max
// timestamp -3 (KIP-734) · v8 earliest local -4 (KIP-405) · v9 latest tiered -5 (KIP-1005) · v10 timeout · v11
// earliest pending upload -6.
// There is no tiered storage: -4 is the log start, -5 and -6 find nothing, as on a broker without it.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// Timestamps with a meaning of their own.
const (
	timeLatest        = -1
	timeEarliest      = -2
	timeMaxTimestamp  = -3
	timeEarliestLocal = -4
	timeLatestTiered  = -5
	timePendingUpload = -6
)

func (b *Broker) handleListOffsets(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	cat := b.catalog.Load()
	repeated, told := repeatedPartitions(req), map[fetchKey]bool{}
	for _, rt := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = rt.Topic
		t, err := findTopic(cat, false, rt.Topic, [16]byte{})
		for _, rp := range rt.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition = rp.Partition
			err := err
			if err == nil {
				err = b.listOffset(t, req, rp, &p)
			}
			key := fetchKey{name: rt.Topic, partition: rp.Partition}
			if repeated[key] && told[key] {
				continue
			}
			if told[key] = true; repeated[key] {
				err = errInvalidRequest
			}
			if err != nil {
				p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch = codeOf(err), -1, -1, -1
				b.noteUnmapped("ListOffsets", err)
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	b.release(func(err error) {
		if err != nil {
			failListOffsets(resp, err)
		}
		done(wire.Response{Msg: resp}, nil)
	})
}

func failListOffsets(resp *kmsg.ListOffsetsResponse, err error) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch = codeOf(err), -1, -1, -1
		}
	}
}

// repeatedPartitions finds partitions asked for twice: they get one row, INVALID_REQUEST.
func repeatedPartitions(req *kmsg.ListOffsetsRequest) map[fetchKey]bool {
	seen, repeated := map[fetchKey]bool{}, map[fetchKey]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			k := fetchKey{name: t.Topic, partition: p.Partition}
			if seen[k] {
				repeated[k] = true
			}
			seen[k] = true
		}
	}
	return repeated
}

// listOffset answers one partition.
func (b *Broker) listOffset(t *topic, req *kmsg.ListOffsetsRequest, asked kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) error {
	p, ok := t.partition(asked.Partition)
	if !ok {
		return errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return err
	}
	if req.ReplicaID >= 0 {
		return errNotLeader
	}
	if err := lead.checkTerm(asked.CurrentLeaderEpoch); err != nil {
		return err
	}
	upTo := segstore.BoundHigh
	if req.IsolationLevel == 1 {
		upTo = segstore.BoundStable
	}
	return lookUpOffset(lead, req.Version, asked.Timestamp, upTo, out)
}

// lookUpOffset finds the offset that a timestamp, or a special value, stands for.
func lookUpOffset(lead *leadership, version int16, timestamp int64, upTo segstore.Bound, out *kmsg.ListOffsetsResponseTopicPartition) error {
	log, o := lead.log, lead.log.Offsets()
	var at segstore.TimedOffset
	var found bool
	var err error
	switch {
	case timestamp == timeLatest:
		out.Offset, out.LeaderEpoch = o.High, lead.row.Term
		if upTo == segstore.BoundStable {
			out.Offset = o.Stable
		}
		return nil
	case timestamp == timeEarliest, timestamp == timeEarliestLocal && version >= 8:
		out.Offset, out.LeaderEpoch = o.Start, log.TermAt(o.Start)
		return nil
	case timestamp == timeMaxTimestamp && version >= 7:
		at, found, err = log.MaxTimestamp(upTo)
	case timestamp == timeLatestTiered && version >= 9, timestamp == timePendingUpload && version >= 11:
		return nil
	case timestamp < 0:
		return errUnsupported
	default:
		at, found, err = log.OffsetForTime(timestamp, upTo)
	}
	if err == nil && found {
		out.Offset, out.Timestamp, out.LeaderEpoch = at.Offset, at.TimestampMs, at.Term
	}
	return err
}
