package broker

// ConsumerGroupDescribe (key 69), versions 0 to 1 (KIP-848). v1 the member's type.
// Left out: ACLs; every operation is authorized.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// Types of members by the protocol that they speak; -1 is unknown.
const (
	classicMemberType  = 0
	consumerMemberType = 1
)

func (b *Broker) handleConsumerGroupDescribe(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ConsumerGroupDescribeRequest)
	b.groups.DescribeConsumers(req.Groups, func(groups []coordinator.ConsumerGroupDescription) {
		b.releaseGroup(nil, func(err error) {
			resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
			for i := range groups {
				if err != nil {
					groups[i] = coordinator.ConsumerGroupDescription{Err: err, Group: groups[i].Group}
				}
				row := b.describedConsumers(&groups[i])
				if req.IncludeAuthorizedOperations && row.ErrorCode == 0 {
					row.AuthorizedOperations = groupOperations
				}
				resp.Groups = append(resp.Groups, row)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

func (b *Broker) describedConsumers(g *coordinator.ConsumerGroupDescription) kmsg.ConsumerGroupDescribeResponseGroup {
	row := kmsg.NewConsumerGroupDescribeResponseGroup()
	row.Group, row.State, row.Epoch, row.AssignmentEpoch, row.AssignorName = g.Group, g.State, g.Epoch, g.AssignmentEpoch, g.Assignor
	if g.Err != nil {
		row.ErrorCode, row.ErrorMessage = codeOf(g.Err), messageOf(g.Err)
		if errors.Is(g.Err, coordinator.ErrGroupNotFound) {
			message := "Group " + g.Group + " not found." // Kafka's words
			row.ErrorMessage = &message
		}
	}
	cat := b.catalog.Load()
	for _, m := range g.Members {
		member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		member.MemberID, member.InstanceID, member.RackID, member.MemberEpoch = m.MemberID, m.InstanceID, m.RackID, m.Epoch
		member.ClientID, member.ClientHost, member.SubscribedTopics = m.ClientID, m.ClientHost, m.Topics
		member.SubscribedTopicRegex = &m.Regex // empty, never null, where there is none
		member.Assignment, member.TargetAssignment = namedPartitions(cat, m.Assigned), namedPartitions(cat, m.Target)
		member.MemberType = consumerMemberType
		if m.Classic {
			member.MemberType = classicMemberType
		}
		row.Members = append(row.Members, member)
	}
	return row
}

// namedPartitions leaves out topics that no longer exist, as Kafka does.
func namedPartitions(cat *catalog, list []coordinator.TopicPartitions) kmsg.Assignment {
	a := kmsg.NewAssignment()
	for _, t := range list {
		topic, ok := cat.topicByID(t.TopicID)
		if !ok {
			continue
		}
		row := kmsg.NewAssignmentTopicPartition()
		row.TopicID, row.Topic, row.Partitions = t.TopicID, topic.name, t.Partitions
		a.TopicPartitions = append(a.TopicPartitions, row)
	}
	return a
}
