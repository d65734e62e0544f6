package broker

// SaslAuthenticate (key 36), versions 0 to 2. v1 session lifetime (KIP-368) · v2 flexible.
// Left out: SASL. Listeners without it answer ILLEGAL_SASL_STATE, as Kafka's do, and the connection stays usable.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleSASLAuthenticate(_ context.Context, r *wire.Request, done wire.Done) {
	resp := r.Body.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	resp.ErrorCode, resp.ErrorMessage, resp.SASLAuthBytes = codeOf(errSASLState), messageOf(errSASLState), []byte{}
	done(wire.Response{Msg: resp}, nil)
}
