package broker

// WriteTxnMarkers (key 27), versions 1 to 2, for operators who end a hanging transaction (KIP-664). v2 transaction
// version. A marker is written where the log allows it; the second one of a transaction is harmless. The answer waits until the
// markers are durable, as Kafka's waits for its replicas.

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleWriteTxnMarkers(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.WriteTxnMarkersRequest)
	if err := b.mayChange(ctx); err != nil {
		done(wire.Response{}, err)
		return
	}
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	var written []meta.TransactionPartition
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
				part, err := b.writeMarker(m, asked.Topic, n)
				if err == nil {
					written = append(written, part)
				}
				row.ErrorCode = codeOf(err)
				topic.Partitions = append(topic.Partitions, row)
			}
			marker.Topics = append(marker.Topics, topic)
		}
		resp.Markers = append(resp.Markers, marker)
	}
	b.txns.Flush(written, func(failed error) {
		b.release(func(err error) {
			if err = cmp.Or(failed, err); err != nil {
				done(wire.Response{}, err)
				return
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

// writeMarker appends a marker and says in which partition it is; it may not be durable yet.
func (b *Broker) writeMarker(m *kmsg.WriteTxnMarkersRequestMarker, name string, n int32) (at meta.TransactionPartition, err error) {
	t, ok := b.catalog.Load().topicByName(name)
	if !ok {
		return at, errUnknownTopic
	}
	p, ok := t.partition(n)
	if !ok {
		return at, errUnknownTopic
	}
	lead, err := p.leader()
	if err != nil {
		return at, err
	}
	at.TopicID, at.Partition = lead.log.ID(), n
	_, err = lead.log.AppendMarker(m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, lead.row.Term)
	return at, err
}
