package broker

// ListTransactions (key 66), versions 0 to 2 (KIP-664). v1 duration filter (KIP-994) · v2 pattern of the id (KIP-1152).

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// txnStates are Kafka's names, of which this broker uses all but Dead and PrepareEpochFence.
var txnStates = []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func (b *Broker) handleListTransactions(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	var pattern *regexp.Regexp
	if req.TransactionalIDPattern != nil && *req.TransactionalIDPattern != "" {
		var err error
		if pattern, err = regexp.Compile("^(?:" + *req.TransactionalIDPattern + ")$"); err != nil {
			resp.ErrorCode = kerr.InvalidRegularExpression.Code
			done(wire.Response{Msg: resp}, nil)
			return
		}
	}
	for _, s := range req.StateFilters {
		if !slices.Contains(txnStates, s) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, s)
		}
	}
	now := time.Now()
	b.groups.DescribeTxns(nil, func(all []coordinator.TxnDescription) {
		b.releaseGroup(nil, func(err error) {
			resp.ErrorCode = codeOf(err)
			slices.SortFunc(all, func(a, b coordinator.TxnDescription) int { return strings.Compare(a.ID, b.ID) })
			for _, t := range all {
				switch {
				case err != nil,
					len(req.StateFilters) > 0 && !slices.Contains(req.StateFilters, t.State),
					len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, t.ProducerID),
					req.DurationFilterMillis >= 0 && (t.Since.IsZero() || now.Sub(t.Since) < millis(req.DurationFilterMillis)),
					pattern != nil && !pattern.MatchString(t.ID):
					continue
				}
				row := kmsg.NewListTransactionsResponseTransactionState()
				row.TransactionalID, row.ProducerID, row.TransactionState = t.ID, t.ProducerID, t.State
				resp.TransactionStates = append(resp.TransactionStates, row)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}
