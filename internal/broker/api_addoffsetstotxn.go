package broker

// AddOffsetsToTxn (key 25), versions 0 to 4. v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleAddOffsetsToTxn(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	if req.Group == "" {
		resp.ErrorCode = codeOf(coordinator.ErrInvalidGroupID)
		done(wire.Response{Msg: resp}, nil)
		return
	}
	add := coordinator.AddToTxnRequest{TxnID: txnID(r, req.TransactionalID, req.ProducerID, req.ProducerEpoch),
		Group: req.Group, Fenced: req.Version >= 2, OldClient: true}
	b.groups.AddToTxn(add, func(err error) {
		b.releaseGroup(err, func(err error) {
			resp.ErrorCode = codeOf(err)
			doneUnlessStale(done, resp, err)
		})
	})
}
