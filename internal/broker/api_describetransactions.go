package broker

// DescribeTransactions (key 65), version 0 (KIP-664).

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDescribeTransactions(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	if len(req.TransactionalIDs) == 0 {
		done(wire.Response{Msg: resp}, nil)
		return
	}
	b.groups.DescribeTxns(req.TransactionalIDs, func(all []coordinator.TxnDescription) {
		b.releaseGroup(nil, func(err error) {
			for _, t := range all {
				row := kmsg.NewDescribeTransactionsResponseTransactionState()
				row.TransactionalID = t.ID
				why := t.Err
				if err != nil {
					why = coordinator.ErrNotCoordinator
				}
				if row.ErrorCode = codeOf(why); why == nil {
					b.fillTransaction(&row, t)
				}
				resp.TransactionStates = append(resp.TransactionStates, row)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

// fillTransaction shows what is open by topic; topics that are gone are left out.
func (b *Broker) fillTransaction(row *kmsg.DescribeTransactionsResponseTransactionState, t coordinator.TxnDescription) {
	row.State, row.ProducerID, row.ProducerEpoch = t.State, t.ProducerID, t.Epoch
	row.TimeoutMillis = int32(t.Timeout.Milliseconds())
	if row.StartTimestamp = -1; !t.Since.IsZero() {
		row.StartTimestamp = t.Since.UnixMilli()
	}
	cat := b.catalog.Load()
	byTopic := map[string][]int32{}
	for _, p := range t.Partitions {
		if topic, ok := cat.topicByID(p.TopicID); ok {
			byTopic[topic.name] = append(byTopic[topic.name], p.Partition)
		}
	}
	for name, partitions := range byTopic {
		slices.Sort(partitions)
		topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
		topic.Topic, topic.Partitions = name, partitions
		row.Topics = append(row.Topics, topic)
	}
	slices.SortFunc(row.Topics, func(a, b kmsg.DescribeTransactionsResponseTransactionStateTopic) int {
		return cmp.Compare(a.Topic, b.Topic)
	})
}
