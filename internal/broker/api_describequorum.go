package broker

// DescribeQuorum (key 55), versions 0 to 2 (KIP-595). v1 times of voters (KIP-836) · v2 directories, nodes and messages
// (KIP-853).
// Left out: a Raft quorum. Postgres keeps the metadata, so the view is that of one voter, the broker that answers: its
// leader epoch is the broker's incarnation, the offsets are the version of the catalog in Postgres. It has no listener
// for controllers.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// metadataTopic is the log of a KRaft quorum, the only one that can be asked for.
const metadataTopic = "__cluster_metadata"

func (b *Broker) handleDescribeQuorum(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeQuorumRequest)
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	resp.ErrorMessage = new(string)
	described := false
	for _, t := range req.Topics {
		row := kmsg.NewDescribeQuorumResponseTopic()
		row.Topic = t.Topic
		for _, p := range t.Partitions {
			quorum := kmsg.NewDescribeQuorumResponseTopicPartition()
			quorum.Partition, quorum.ErrorMessage = p.Partition, new(string)
			if t.Topic == metadataTopic && p.Partition == 0 {
				b.describeQuorum(&quorum, r.Received.UnixMilli())
				described = true
			} else {
				quorum.ErrorCode, quorum.ErrorMessage = codeOf(errUnknownTopic), messageOf(errUnknownTopic)
			}
			row.Partitions = append(row.Partitions, quorum)
		}
		resp.Topics = append(resp.Topics, row)
	}
	if described {
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = b.nodeID
		resp.Nodes = append(resp.Nodes, n)
	}
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) describeQuorum(p *kmsg.DescribeQuorumResponseTopicPartition, nowMs int64) {
	version := b.catalog.Load().cluster.CatalogVersion
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = b.nodeID, int32(b.owner.Incarnation), version
	voter := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	voter.ReplicaID, voter.LogEndOffset = b.nodeID, version
	voter.LastFetchTimestamp, voter.LastCaughtUpTimestamp = nowMs, nowMs
	p.CurrentVoters = append(p.CurrentVoters, voter)
}
