package broker

// Heartbeat (key 12), versions 0 to 4. v3 static members (KIP-345) · v4 flexible.
// It never waits for Postgres.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleHeartbeat(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.HeartbeatRequest)
	beat := coordinator.HeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
	}
	b.groups.Heartbeat(beat, func(err error) {
		b.releaseGroup(err, func(err error) {
			resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
			resp.ErrorCode = codeOf(err)
			done(wire.Response{Msg: resp}, nil)
		})
	})
}
