package broker

// WriteTxnMarkers (key 27), versions 1 to 2, for operators who end a hanging transaction (KIP-664). v2 transaction
// version. A marker is written where the log allows it; the second one of a transaction is harmless.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleWriteTxnMarkers(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.WriteTxnMarkersRequest)
	if err := b.mayChange(ctx); err != nil {
		done(wire.Response{}, err)
		return
	}
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for i := range req.Markers {
		m := &req.Markers[i]
		marker := kmsg.NewWriteTxnMarkersResponseMarker()
		marker.ProducerID = m.ProducerID
		for _, asked := range m.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = asked.Topic
			for _, n := range asked.Partitions {
				row := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				row.Partition = n
				row.ErrorCode = codeOf(b.writeMarker(m, asked.Topic, n))
				topic.Partitions = append(topic.Partitions, row)
			}
			marker.Topics = append(marker.Topics, topic)
		}
		resp.Markers = append(resp.Markers, marker)
	}
	b.release(func(err error) {
		if err != nil {
			done(wire.Response{}, err)
			return
		}
		done(wire.Response{Msg: resp}, nil)
	})
}

func (b *Broker) writeMarker(m *kmsg.WriteTxnMarkersRequestMarker, name string, n int32) error {
	t, ok := b.catalog.Load().topicByName(name)
	if !ok {
		return errUnknownTopic
	}
	p, ok := t.partition(n)
	if !ok {
		return errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return err
	}
	_, err = lead.log.AppendMarker(m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, lead.row.Term)
	return err
}
