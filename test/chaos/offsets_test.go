package chaos

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/test/history"
)

// offsetClient commits and fetches offsets of groups by raw requests, each sent once.
type offsetClient struct {
	line
	process *history.Process
}

// commitOp is the commit of one partition; Group, Topic, Partition, Offset, Metadata, Member and Generation are used.
func (c *offsetClient) commit(op history.Op) (code int16, err error) {
	op.Kind = history.CommitOffset
	pending := c.process.Invoke(op)
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 8, op.Group, op.Member, op.Generation
	if op.Protocol == history.Consumer {
		r.Version = 9
	}
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = op.Partition, op.Offset, &op.Metadata
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = op.Topic
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	answer, err := c.ask(r)
	if err != nil {
		pending.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
		return 0, err
	}
	code = answer.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	pending.Done(history.CommitOutcome(code, 1), noteCode(code))
	return code, nil
}

// fetchOffset reads a group's offset, and waits for transactions that may still change it to end (KIP-447).
func (c *offsetClient) fetchOffset(group, topic string, partition int32, last bool) (offset int64, err error) {
	pending := c.process.Invoke(history.Op{Kind: history.FetchOffset, Group: group, Topic: topic, Partition: partition, Final: last})
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.RequireStable = 8, true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: []int32{partition}})
	r.Groups = append(r.Groups, g)
	answer, err := c.ask(r)
	if err == nil {
		err = offsetError(answer.(*kmsg.OffsetFetchResponse))
	}
	if err != nil {
		pending.Done(history.Info, func(o *history.Op) { o.Note = err.Error() })
		return 0, err
	}
	got := answer.(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0]
	pending.Done(history.OK, func(o *history.Op) {
		if o.Offset = got.Offset; got.Metadata != nil {
			o.Metadata = *got.Metadata
		}
	})
	return got.Offset, nil
}

func offsetError(r *kmsg.OffsetFetchResponse) error {
	if len(r.Groups) != 1 {
		return fmt.Errorf("fetch offsets: %d groups", len(r.Groups))
	}
	g := r.Groups[0]
	if g.ErrorCode != 0 {
		return fmt.Errorf("fetch offsets of %s: code %d", g.Group, g.ErrorCode)
	}
	if len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 {
		return fmt.Errorf("fetch offsets of %s: no answer for the partition", g.Group)
	}
	if code := g.Topics[0].Partitions[0].ErrorCode; code != 0 {
		return fmt.Errorf("fetch offsets of %s: code %d", g.Group, code)
	}
	return nil
}

// noteCode keeps an error code in the history.
func noteCode(code int16) func(*history.Op) {
	return func(o *history.Op) { o.Code = code }
}
