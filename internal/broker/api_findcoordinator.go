package broker

// FindCoordinator (key 10), versions 0 to 6. v1 key type · v3 flexible · v4 several keys (KIP-699) · v5
// TRANSACTION_ABORTABLE · v6 keys of share groups (KIP-932).
// Left out: share groups. Their key type is INVALID_REQUEST in every version, as an unknown one is.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// Coordinator key types.
const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
)

func (b *Broker) handleFindCoordinator(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	self, err := b.coordinatorFor(req.CoordinatorType, r.Conn.Listener())
	code, message := codeOf(err), messageOf(err)
	if req.Version >= 4 {
		if message == nil {
			message = new(string) // as Kafka 4.4
		}
		for _, key := range req.CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.NodeID, c.Host, c.Port = key, self.id, self.Host, self.Port
			c.ErrorCode, c.ErrorMessage = code, message
			resp.Coordinators = append(resp.Coordinators, c)
		}
		done(wire.Response{Msg: resp}, nil)
		return
	}
	if message == nil && req.Version >= 1 {
		none := "NONE" // Kafka 4.4 says so on success
		message = &none
	}
	resp.ErrorCode, resp.ErrorMessage = code, message
	resp.NodeID, resp.Host, resp.Port = self.id, self.Host, self.Port
	done(wire.Response{Msg: resp}, nil)
}

// node is a broker as a client reaches it.
type node struct {
	id int32
	meta.Endpoint
}

// coordinatorFor is the broker that coordinates keys of this type: this one, or an error for what is not built.
func (b *Broker) coordinatorFor(keyType int8, listener string) (node, error) {
	none := node{id: -1, Endpoint: meta.Endpoint{Port: -1}}
	switch keyType {
	case coordinatorGroup, coordinatorTransaction:
	default:
		return none, errInvalidRequest
	}
	for _, n := range b.catalog.Load().brokers {
		if e, ok := b.endpointOf(n, listener); ok && n.ID == b.nodeID {
			return node{n.ID, e}, nil
		}
	}
	return none, kerr.CoordinatorNotAvailable
}
