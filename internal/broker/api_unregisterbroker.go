package broker

// UnregisterBroker (key 64), version 0 (KIP-500).
// Left out: unregistering a broker that runs, which Kafka allows and which would register again at once. Rows of brokers
// that do not run are kept while one broker keeps every partition; nothing counts them.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

var errNoSuchBroker = errors.New("no such broker is registered")

func (b *Broker) handleUnregisterBroker(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.UnregisterBrokerRequest)
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	err := b.unregister(req.BrokerID)
	resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) unregister(id int32) error {
	for _, n := range b.catalog.Load().brokers {
		if n.ID == id {
			return fmt.Errorf("%w: broker %d keeps its registration; stop using it instead", errInvalidRequest, id)
		}
	}
	return fmt.Errorf("%w: %d", errNoSuchBroker, id)
}
