package broker

// ElectLeaders (key 43), versions 0 to 2. v1 election type (KIP-460) · v2 flexible.
// Left out: elections. One broker leads each partition and is its preferred leader, so ELECTION_NOT_NEEDED.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// electionUnclean is the highest of Kafka's election types; 0 is preferred.
const electionUnclean = 1

var errElectionNotNeeded = errors.New("leader election not needed for topic partition")

func (b *Broker) handleElectLeaders(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	var badType error
	if req.ElectionType < 0 || req.ElectionType > electionUnclean {
		badType = fmt.Errorf("%w: unknown election type %d", errInvalidRequest, req.ElectionType)
		resp.ErrorCode = codeOf(badType)
	}
	cat := b.catalog.Load()
	if req.Topics == nil && badType == nil { // all that need an election: none, and Kafka names the topics
		for _, t := range cat.topics {
			row := kmsg.NewElectLeadersResponseTopic()
			row.Topic = t.name
			resp.Topics = append(resp.Topics, row)
		}
	}
	for _, asked := range req.Topics {
		row := kmsg.NewElectLeadersResponseTopic()
		row.Topic = asked.Topic
		for _, p := range asked.Partitions {
			err := badType
			if err == nil {
				err = electLeader(cat, asked.Topic, p)
			}
			result := kmsg.NewElectLeadersResponseTopicPartition()
			result.Partition, result.ErrorCode, result.ErrorMessage = p, codeOf(err), messageOf(err)
			row.Partitions = append(row.Partitions, result)
		}
		resp.Topics = append(resp.Topics, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// electLeader says why no election is held.
func electLeader(cat *catalog, topic string, partition int32) error {
	t, ok := cat.topicByName(topic)
	if !ok {
		return fmt.Errorf("%w: no topic %s", errUnknownTopic, topic)
	}
	p, ok := t.partition(partition)
	if !ok {
		return fmt.Errorf("%w: no partition %s-%d", errUnknownTopic, topic, partition)
	}
	if p.lead.Load().log == nil {
		return fmt.Errorf("%w: the only replica of %s-%d is offline", kerr.EligibleLeadersNotAvailable, topic, partition)
	}
	return errElectionNotNeeded
}
