package broker

// EndTxn (key 26), versions 0 to 5. v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 each decision
// raises the epoch (KIP-890).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleEndTxn(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	end := coordinator.EndTxnRequest{TxnID: txnID(r, req.TransactionalID, req.ProducerID, req.ProducerEpoch), Commit: req.Commit, Version: req.Version}
	b.groups.EndTxn(end, func(reply coordinator.EndTxnReply) {
		b.releaseGroup(reply.Err, func(err error) {
			resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = codeOf(err), reply.ProducerID, reply.Epoch
			if err != nil {
				resp.ProducerID, resp.ProducerEpoch = -1, -1
			}
			doneUnlessStale(done, resp, err)
		})
	})
}
