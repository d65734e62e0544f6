package broker

// ListPartitionReassignments (key 46, KIP-455), version 0.
// Left out: reassignments. None is ever in progress.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleListPartitionReassignments(_ context.Context, r *wire.Request, done wire.Done) {
	done(wire.Response{Msg: r.Body.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)}, nil)
}
