package broker

// DescribeProducers (key 61), version 0 (KIP-664): what the leader's log knows of producers.

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDescribeProducers(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	cat := b.catalog.Load()
	b.release(func(err error) {
		for _, asked := range req.Topics {
			topic := kmsg.NewDescribeProducersResponseTopic()
			topic.Topic = asked.Topic
			for _, n := range asked.Partitions {
				row := kmsg.NewDescribeProducersResponseTopicPartition()
				row.Partition = n
				states, perr := producersOf(cat, asked.Topic, n)
				if err != nil {
					states, perr = nil, err
				}
				row.ErrorCode, row.ErrorMessage, row.ActiveProducers = codeOf(perr), messageOf(perr), states
				topic.Partitions = append(topic.Partitions, row)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		done(wire.Response{Msg: resp}, nil)
	})
}

func producersOf(cat *catalog, name string, n int32) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	if err := validTopicName(name); err != nil {
		return nil, err
	}
	t, ok := cat.topicByName(name)
	if !ok {
		return nil, errUnknownTopic
	}
	p, ok := t.partition(n)
	if !ok {
		return nil, errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return nil, err
	}
	states := lead.log.Producers()
	slices.SortFunc(states, func(a, b segstore.ProducerState) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, 0, len(states))
	for _, s := range states {
		row := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		row.ProducerID, row.ProducerEpoch, row.LastSequence = s.ProducerID, int32(s.Epoch), s.LastSequence
		row.LastTimestamp, row.CoordinatorEpoch, row.CurrentTxnStartOffset = s.LastTimestampMs, s.CoordinatorTerm, s.TxnFirstOffset
		out = append(out, row)
	}
	return out, nil
}
