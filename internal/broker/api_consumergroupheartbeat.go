package broker

// ConsumerGroupHeartbeat (key 68), versions 0 to 1 (KIP-848). v1 regular expressions, member ids made by clients
// (KIP-1082). What changes is in Postgres before it is answered; a heartbeat that tells nothing never waits for it.

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleConsumerGroupHeartbeat(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ConsumerGroupHeartbeatRequest)
	beat := coordinator.ConsumerHeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, MemberEpoch: req.MemberEpoch, InstanceID: req.InstanceID, RackID: req.RackID,
		ClientID: r.ClientID, ClientHost: clientHost(r.Conn), RebalanceTimeout: millis(int64(req.RebalanceTimeoutMillis)),
		Topics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor,
		NamesItself: req.Version >= 1,
	}
	if req.Topics != nil {
		beat.Owned = make([]coordinator.TopicPartitions, len(req.Topics))
		for i, t := range req.Topics {
			beat.Owned[i] = coordinator.TopicPartitions{TopicID: t.TopicID, Partitions: t.Partitions}
		}
	}
	b.groups.ConsumerHeartbeat(beat, func(reply coordinator.ConsumerHeartbeatReply) {
		b.releaseGroup(reply.Err, func(err error) {
			resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
			if err == nil {
				fillConsumerReply(resp, reply)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

func fillConsumerReply(resp *kmsg.ConsumerGroupHeartbeatResponse, reply coordinator.ConsumerHeartbeatReply) {
	resp.MemberID, resp.MemberEpoch = &reply.MemberID, reply.MemberEpoch
	resp.HeartbeatIntervalMillis = int32(reply.Interval.Milliseconds())
	if reply.Assignment == nil {
		return
	}
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = make([]kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic, len(reply.Assignment))
	for i, t := range reply.Assignment {
		a.Topics[i].TopicID, a.Topics[i].Partitions = t.TopicID, t.Partitions
	}
	resp.Assignment = &a
}

// topicViews gives consumer groups the topics of the present catalog; the same view until the catalog changes.
func topicViews(load func() *catalog) func() *coordinator.TopicView {
	type viewed struct {
		catalog *catalog
		view    *coordinator.TopicView
	}
	var last atomic.Pointer[viewed]
	return func() *coordinator.TopicView {
		cat := load()
		if v := last.Load(); v != nil && v.catalog == cat {
			return v.view
		}
		view := &coordinator.TopicView{
			ByName: make(map[string]meta.UUID, len(cat.topics)), Partitions: make(map[meta.UUID]int32, len(cat.topics)),
		}
		for _, t := range cat.topics {
			view.ByName[t.name], view.Partitions[t.id] = t.id, int32(len(t.partitions))
		}
		last.Store(&viewed{cat, view})
		return view
	}
}
