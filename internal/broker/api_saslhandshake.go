package broker

// SaslHandshake (key 17), versions 0 and 1. v1 tokens travel in SaslAuthenticate (KIP-152).
// Left out: SASL. Listeners without it answer ILLEGAL_SASL_STATE and no mechanisms, as Kafka's do, and the connection
// stays usable.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleSASLHandshake(_ context.Context, r *wire.Request, done wire.Done) {
	resp := r.Body.ResponseKind().(*kmsg.SASLHandshakeResponse)
	resp.ErrorCode, resp.SupportedMechanisms = codeOf(errSASLState), []string{}
	done(wire.Response{Msg: resp}, nil)
}
