package broker

// OffsetFetch (key 9), versions 1 to 10. v2 all topics of a group, group error · v5 leader epoch (KIP-320) · v6
// flexible · v7 require stable (KIP-447) · v8 several groups (KIP-709) · v9 member id and epoch (KIP-848) · v10 topic
// ids.
// Answered from memory.

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleOffsetFetch(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version < 8 {
		b.fetchGroup(oldGroup(req), req.RequireStable, req.Version, func(g kmsg.OffsetFetchResponseGroup) {
			fillOldOffsets(resp, g)
			done(wire.Response{Msg: resp}, nil)
		})
		return
	}
	if len(req.Groups) == 0 {
		done(wire.Response{Msg: resp}, nil)
		return
	}
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	var left atomic.Int32
	left.Store(int32(len(req.Groups)))
	for i := range req.Groups {
		b.fetchGroup(&req.Groups[i], req.RequireStable, req.Version, func(g kmsg.OffsetFetchResponseGroup) {
			resp.Groups[i] = g
			if left.Add(-1) == 0 {
				done(wire.Response{Msg: resp}, nil)
			}
		})
	}
}

// oldGroup gives a request of v1 to v7 the form of v8.
func oldGroup(req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics == nil {
		return &g
	}
	g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	for i, t := range req.Topics {
		g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return &g
}

// fillOldOffsets gives an answer the form of v1 to v7; v1 has no error but those of partitions.
func fillOldOffsets(resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup) {
	resp.ErrorCode = g.ErrorCode
	for _, t := range g.Topics {
		row := kmsg.NewOffsetFetchResponseTopic()
		row.Topic = t.Topic
		for _, p := range t.Partitions {
			out := kmsg.NewOffsetFetchResponseTopicPartition()
			out.Partition, out.Offset, out.LeaderEpoch, out.Metadata, out.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			row.Partitions = append(row.Partitions, out)
		}
		resp.Topics = append(resp.Topics, row)
	}
}

// fetchGroup answers one group; null topics ask for all it has.
func (b *Broker) fetchGroup(req *kmsg.OffsetFetchRequestGroup, stable bool, version int16, answer func(kmsg.OffsetFetchResponseGroup)) {
	fetch := coordinator.FetchOffsetsRequest{Group: req.Group, MemberID: req.MemberID, MemberEpoch: req.MemberEpoch, RequireStable: stable}
	var asked []askedTopic
	if req.Topics != nil {
		fetch.Partitions = []coordinator.TopicPartition{}
		cat := b.catalog.Load()
		for i := range req.Topics {
			rt := &req.Topics[i]
			t, err := findTopic(cat, version >= 10, rt.Topic, rt.TopicID)
			a := askedTopic{request: rt, known: err == nil}
			if version >= 10 {
				a.err = err // by name, an unknown topic just has no offsets
			}
			asked = append(asked, a)
			if a.known {
				for _, p := range rt.Partitions {
					fetch.Partitions = append(fetch.Partitions, coordinator.TopicPartition{TopicID: t.id, Partition: p})
				}
			}
		}
	}
	b.groups.FetchOffsets(fetch, func(reply coordinator.FetchOffsetsReply) {
		b.releaseGroup(reply.Err, func(err error) {
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group, g.ErrorCode = req.Group, codeOf(err)
			if req.Topics == nil {
				g.Topics = b.allOffsets(reply.Offsets, version)
			} else {
				g.Topics = askedOffsets(asked, reply.Offsets, err)
			}
			if err != nil && version >= 2 { // v1 has nowhere else to tell it
				g.Topics = nil
			}
			answer(g)
		})
	})
}

// askedTopic is a topic of the request. Those that are known have their offsets, in order, in the answer.
type askedTopic struct {
	request *kmsg.OffsetFetchRequestGroupTopic
	known   bool
	err     error
}

func askedOffsets(asked []askedTopic, offsets []coordinator.CommitOffset, err error) []kmsg.OffsetFetchResponseGroupTopic {
	topics := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(asked))
	for _, a := range asked {
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.Topic, row.TopicID = a.request.Topic, a.request.TopicID
		for _, p := range a.request.Partitions {
			o := coordinator.CommitOffset{Partition: p, Offset: -1, LeaderEpoch: -1}
			if a.known && err == nil {
				o, offsets = offsets[0], offsets[1:]
			}
			out := offsetRow(o)
			out.ErrorCode = codeOf(err)
			if err == nil {
				if out.ErrorCode = codeOf(a.err); a.err == nil {
					out.ErrorCode = codeOf(o.Err)
				}
			}
			row.Partitions = append(row.Partitions, out)
		}
		topics = append(topics, row)
	}
	return topics
}

// allOffsets lists what a group has committed, by topic; topics that no longer exist are left out.
func (b *Broker) allOffsets(offsets []coordinator.CommitOffset, version int16) []kmsg.OffsetFetchResponseGroupTopic {
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	cat := b.catalog.Load()
	for i := 0; i < len(offsets); {
		id := offsets[i].TopicID
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		for ; i < len(offsets) && offsets[i].TopicID == id; i++ {
			row.Partitions = append(row.Partitions, offsetRow(offsets[i]))
		}
		t, ok := cat.topicByID(id)
		if !ok {
			continue
		}
		if version >= 10 {
			row.TopicID = id
		} else {
			row.Topic = t.name
		}
		topics = append(topics, row)
	}
	return topics
}

func offsetRow(o coordinator.CommitOffset) kmsg.OffsetFetchResponseGroupTopicPartition {
	row := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	row.Partition, row.Offset, row.LeaderEpoch, row.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
	return row
}
