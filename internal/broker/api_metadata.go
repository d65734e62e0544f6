package broker

// Metadata (key 3), versions 0 to 13. v1 null = all topics · v4 allow_auto_topic_creation · v5 offline replicas ·
// v7 leader epoch · v8-10 authorized operations (KIP-430) · v9 flexible · v10 topic ids (KIP-516) · v11 no cluster
// operations · v12 topics asked by id · v13 top-level error.
// Left out: ACLs; every operation is authorized, and told when the client asks for it.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// autoCreateTimeout bounds the wait for Postgres of a topic that Metadata creates.
const autoCreateTimeout = 10 * time.Second

func (b *Broker) handleMetadata(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	cat := b.catalog.Load()
	resp.Brokers = b.metadataBrokers(cat, r.Conn.Listener())
	resp.ClusterID = &cat.cluster.ID
	resp.ControllerID = b.nodeID
	switch {
	case req.Topics == nil, req.Version == 0 && len(req.Topics) == 0:
		for _, t := range cat.topics {
			resp.Topics = append(resp.Topics, describeTopic(t))
		}
	default:
		resp.Topics = b.metadataTopics(ctx, r)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	for i := range resp.Topics {
		if req.IncludeTopicAuthorizedOperations && resp.Topics[i].ErrorCode == 0 {
			resp.Topics[i].AuthorizedOperations = topicOperations
		}
	}
	done(wire.Response{Msg: resp}, nil)
}

// metadataBrokers are the live brokers as clients of this listener reach them.
func (b *Broker) metadataBrokers(cat *catalog, listener string) []kmsg.MetadataResponseBroker {
	var out []kmsg.MetadataResponseBroker
	for _, n := range cat.brokers {
		e, ok := b.endpointOf(n, listener)
		if !ok {
			continue
		}
		mb := kmsg.NewMetadataResponseBroker()
		mb.NodeID, mb.Host, mb.Port, mb.Rack = n.ID, e.Host, e.Port, n.Rack
		out = append(out, mb)
	}
	return out
}

// endpointOf is a broker's address on the listener that the request came in on.
func (b *Broker) endpointOf(n meta.Broker, listener string) (meta.Endpoint, bool) {
	if n.ID != b.nodeID && n.State != meta.BrokerLive {
		return meta.Endpoint{}, false
	}
	for _, e := range n.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	return meta.Endpoint{}, false
}

// metadataTopics answers the topics asked for, one row each, in order, those in error last; a repeated one gets one row.
func (b *Broker) metadataTopics(ctx context.Context, r *wire.Request) []kmsg.MetadataResponseTopic {
	req := r.Body.(*kmsg.MetadataRequest)
	rows := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	var failed []kmsg.MetadataResponseTopic
	create := b.cfg.Bool("auto.create.topics.enable") && (req.Version < 4 || req.AllowAutoTopicCreation)
	if create {
		b.autoCreate(ctx, r)
	}
	cat := b.catalog.Load()
	seen := make(map[fetchKey]bool, len(req.Topics))
	for _, asked := range req.Topics {
		name := ""
		if asked.Topic != nil {
			name = *asked.Topic
		}
		key := fetchKey{name: name, id: asked.TopicID}
		if seen[key] {
			continue
		}
		seen[key] = true
		t, err := b.metadataTopic(cat, req.Version, asked)
		if err == nil {
			rows = append(rows, describeTopic(t))
			continue
		}
		row := kmsg.NewMetadataResponseTopic()
		row.ErrorCode, row.Topic, row.TopicID = codeOf(err), asked.Topic, asked.TopicID
		if asked.TopicID != (meta.UUID{}) && req.Version >= 12 {
			row.Topic = nil
		}
		if row.Topic == nil && req.Version < 12 { // which cannot say null
			row.Topic = new(string)
		}
		failed = append(failed, row)
	}
	return append(rows, failed...)
}

// metadataTopic finds one asked topic. An id wins over a name; before v12 only names may be asked.
func (b *Broker) metadataTopic(cat *catalog, version int16, asked kmsg.MetadataRequestTopic) (*topic, error) {
	byID := asked.TopicID != (meta.UUID{})
	switch {
	case version < 12 && (byID || asked.Topic == nil):
		return nil, errInvalidRequest
	case byID:
		return findTopic(cat, true, "", asked.TopicID)
	case asked.Topic == nil:
		return nil, errUnknownTopicID
	}
	if err := validTopicName(*asked.Topic); err != nil {
		return nil, err
	}
	return findTopic(cat, false, *asked.Topic, asked.TopicID)
}

// autoCreate creates the missing topics with a legal name, before the answer, so that they are writable at once.
// What fails is answered as unknown and asked again by the client.
func (b *Broker) autoCreate(ctx context.Context, r *wire.Request) {
	cat := b.catalog.Load()
	var specs []topicSpec
	for _, asked := range r.Body.(*kmsg.MetadataRequest).Topics {
		if asked.Topic == nil || asked.TopicID != (meta.UUID{}) || validTopicName(*asked.Topic) != nil {
			continue
		}
		if _, ok := cat.topicByName(*asked.Topic); ok {
			continue
		}
		specs = append(specs, topicSpec{name: *asked.Topic, partitions: -1, replication: -1})
	}
	if len(specs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, autoCreateTimeout)
	defer cancel()
	_, errs := b.createPlanned(ctx, specs, b.mutationQuotaOf(r, 0))
	for i, err := range errs {
		if err != nil {
			b.log.Info("a topic was not created on first use", "topic", specs[i].name, "err", err)
		}
	}
}

// describeTopic is a topic's row with its partitions.
func describeTopic(t *topic) kmsg.MetadataResponseTopic {
	row := kmsg.NewMetadataResponseTopic()
	row.Topic, row.TopicID = &t.name, t.id
	for i, p := range t.partitions {
		l := p.lead.Load()
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition = int32(i)
		mp.Leader, mp.LeaderEpoch = l.row.Leader, l.row.Term
		mp.Replicas, mp.ISR = l.row.Replicas, l.row.ISR
		if l.log == nil {
			mp.ErrorCode, mp.Leader = leaderNotAvailable, -1
			mp.OfflineReplicas = mp.Replicas
		}
		row.Partitions = append(row.Partitions, mp)
	}
	return row
}
