package broker

// DescribeCluster (key 60), versions 0 to 2 (KIP-700). v1 endpoint type (KIP-919) · v2 fenced brokers (KIP-1073).
// Left out: ACLs; every operation is authorized. The controller is the broker that answers: each one may
// change metadata.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// Endpoint types of DescribeCluster (Kafka's EndpointType).
const (
	endpointBroker     = 1
	endpointController = 2
)

func (b *Broker) handleDescribeCluster(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	cat := b.catalog.Load()
	resp.ClusterID, resp.ControllerID, resp.EndpointType = cat.cluster.ID, -1, endpointBroker
	if err := checkEndpointType(req); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
		done(wire.Response{Msg: resp}, nil)
		return
	}
	resp.ControllerID = b.nodeID
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for _, n := range cat.brokers {
		e, live := b.endpointOf(n, r.Conn.Listener())
		if !live && req.IncludeFencedBrokers && n.State == meta.BrokerFenced {
			e, _ = namedEndpoint(n, r.Conn.Listener())
		}
		if e.Name == "" {
			continue
		}
		row := kmsg.NewDescribeClusterResponseBroker()
		row.NodeID, row.Host, row.Port, row.Rack, row.IsFenced = n.ID, e.Host, e.Port, n.Rack, !live
		resp.Brokers = append(resp.Brokers, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

func checkEndpointType(req *kmsg.DescribeClusterRequest) error {
	switch {
	case req.Version < 1 || req.EndpointType == endpointBroker:
		return nil
	case req.EndpointType == endpointController:
		return errEndpointMismatch
	}
	return errEndpointType
}

// namedEndpoint is a broker's address on a listener, whatever its state.
func namedEndpoint(n meta.Broker, listener string) (meta.Endpoint, bool) {
	for _, e := range n.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	return meta.Endpoint{}, false
}
