package broker

// AlterPartitionReassignments (key 45, KIP-455), versions 0 and 1. v1 replication factor may not change (KIP-860).
// Left out: moving replicas. With one broker the only assignment is the one that is; asking for it succeeds.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

var errNoReassignment = errors.New("no reassignment of the partition is in progress")

func (b *Broker) handleAlterPartitionReassignments(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	cat := b.catalog.Load()
	for _, asked := range req.Topics {
		row := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		row.Topic = asked.Topic
		for _, p := range asked.Partitions {
			err := reassign(cat, asked.Topic, p)
			result := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			result.Partition, result.ErrorCode, result.ErrorMessage = p.Partition, codeOf(err), messageOf(err)
			row.Partitions = append(row.Partitions, result)
		}
		resp.Topics = append(resp.Topics, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// reassign accepts the assignment that a partition has. Null replicas cancel a reassignment.
func reassign(cat *catalog, topic string, asked kmsg.AlterPartitionAssignmentsRequestTopicPartition) error {
	t, ok := cat.topicByName(topic)
	if !ok {
		return fmt.Errorf("%w: no topic %s", errUnknownTopic, topic)
	}
	p, ok := t.partition(asked.Partition)
	switch {
	case !ok:
		return fmt.Errorf("%w: no partition %s-%d", errUnknownTopic, topic, asked.Partition)
	case asked.Replicas == nil:
		return errNoReassignment
	case len(asked.Replicas) == 0:
		return fmt.Errorf("%w: the replica list is empty", errInvalidAssignment)
	}
	row := p.lead.Load().row
	for i, id := range asked.Replicas {
		if slices.Contains(asked.Replicas[:i], id) {
			return fmt.Errorf("%w: broker %d is listed more than once", errInvalidAssignment, id)
		}
		if !slices.Contains(row.Replicas, id) {
			return fmt.Errorf("%w: broker %d cannot keep a replica of %s-%d", errInvalidAssignment, id, topic, asked.Partition)
		}
	}
	return nil
}
