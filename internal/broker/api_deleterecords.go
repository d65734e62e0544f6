package broker

// DeleteRecords (key 21), versions 0 to 2. v2 flexible.
// Left out: nothing. The new log start is durable when it is answered.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// toHighWatermark asks to delete all that consumers can see.
const toHighWatermark = -1

func (b *Broker) handleDeleteRecords(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	cat := b.catalog.Load()
	mayNot := b.mayChange(ctx)
	for _, rt := range req.Topics {
		row := kmsg.NewDeleteRecordsResponseTopic()
		row.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			out := kmsg.NewDeleteRecordsResponseTopicPartition()
			low, err := int64(-1), mayNot
			if err == nil {
				low, err = deleteRecords(cat, rt.Topic, rp.Partition, rp.Offset)
			}
			b.noteUnmapped("DeleteRecords", err)
			out.Partition, out.LowWatermark, out.ErrorCode = rp.Partition, low, codeOf(err)
			row.Partitions = append(row.Partitions, out)
		}
		resp.Topics = append(resp.Topics, row)
	}
	b.release(func(err error) {
		if err != nil {
			failDeleteRecords(resp, err)
		}
		done(wire.Response{Msg: resp}, nil)
	})
}

// deleteRecords returns the partition's new start, -1 with an error.
func deleteRecords(cat *catalog, name string, id int32, offset int64) (low int64, err error) {
	if isInternalTopic(name) {
		return -1, fmt.Errorf("%w: records of %s cannot be deleted", errInvalidTopic, name)
	}
	t, ok := cat.topicByName(name)
	if !ok {
		return -1, errUnknownTopic
	}
	p, ok := t.partition(id)
	if !ok {
		return -1, errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return -1, err
	}
	switch {
	case offset == toHighWatermark:
		offset = lead.log.Offsets().High
	case offset < 0:
		return -1, segstore.ErrOffsetOutOfRange
	}
	if low, err = lead.log.DeleteTo(offset); err != nil {
		return -1, err
	}
	return low, nil
}

// failDeleteRecords takes back answers that this broker may not give any more.
func failDeleteRecords(resp *kmsg.DeleteRecordsResponse, err error) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			out := &resp.Topics[i].Partitions[j]
			out.LowWatermark, out.ErrorCode = -1, codeOf(err)
		}
	}
}
