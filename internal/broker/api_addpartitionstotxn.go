package broker

// AddPartitionsToTxn (key 24), versions 0 to 5. v2 PRODUCER_FENCED · v3 flexible · v4 several transactions, verify only
// (KIP-890) · v5 TRANSACTION_ABORTABLE.

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleAddPartitionsToTxn(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version < 4 {
		one := kmsg.NewAddPartitionsToTxnRequestTransaction()
		one.TransactionalID, one.ProducerID, one.ProducerEpoch = req.TransactionalID, req.ProducerID, req.ProducerEpoch
		for _, t := range req.Topics {
			row := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			row.Topic, row.Partitions = t.Topic, t.Partitions
			one.Topics = append(one.Topics, row)
		}
		b.addPartitions(r, &one, req.Version, func(topics []kmsg.AddPartitionsToTxnResponseTransactionTopic, stale error) {
			for _, t := range topics {
				row := kmsg.NewAddPartitionsToTxnResponseTopic()
				row.Topic = t.Topic
				for _, p := range t.Partitions {
					out := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
					out.Partition, out.ErrorCode = p.Partition, p.ErrorCode
					row.Partitions = append(row.Partitions, out)
				}
				resp.Topics = append(resp.Topics, row)
			}
			doneUnlessStale(done, resp, stale)
		})
		return
	}
	if len(req.Transactions) == 0 {
		done(wire.Response{Msg: resp}, nil)
		return
	}
	resp.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(req.Transactions))
	var left atomic.Int32
	left.Store(int32(len(req.Transactions)))
	for i := range req.Transactions {
		resp.Transactions[i].TransactionalID = req.Transactions[i].TransactionalID
		b.addPartitions(r, &req.Transactions[i], req.Version, func(topics []kmsg.AddPartitionsToTxnResponseTransactionTopic, _ error) {
			resp.Transactions[i].Topics = topics
			if left.Add(-1) == 0 {
				done(wire.Response{Msg: resp}, nil)
			}
		})
	}
}

// doneUnlessStale closes the connection of a late request without an answer.
func doneUnlessStale(done wire.Done, resp kmsg.Response, err error) {
	if errors.Is(err, coordinator.ErrStaleConnection) {
		done(wire.Response{}, err)
		return
	}
	done(wire.Response{Msg: resp}, nil)
}

// addPartitions adds all partitions of one transaction or none: with one that does not exist the others are
// OPERATION_NOT_ATTEMPTED.
func (b *Broker) addPartitions(r *wire.Request, t *kmsg.AddPartitionsToTxnRequestTransaction, version int16,
	answer func([]kmsg.AddPartitionsToTxnResponseTransactionTopic, error)) {
	add := coordinator.AddToTxnRequest{TxnID: txnID(r, t.TransactionalID, t.ProducerID, t.ProducerEpoch),
		Fenced: version >= 2, OldClient: version < 4, VerifyOnly: t.VerifyOnly}
	topics := make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, len(t.Topics))
	cat := b.catalog.Load()
	missing := false
	for i, asked := range t.Topics {
		topics[i].Topic = asked.Topic
		topic, known := cat.topicByName(asked.Topic)
		for _, n := range asked.Partitions {
			row := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			row.Partition = n
			ok := known
			if known {
				_, ok = topic.partition(n)
			}
			if ok {
				add.Partitions = append(add.Partitions, coordinator.TopicPartition{TopicID: topic.id, Partition: n})
			} else {
				row.ErrorCode = codeOf(errUnknownTopic)
				missing = true
			}
			topics[i].Partitions = append(topics[i].Partitions, row)
		}
	}
	fill := func(code int16) {
		for i := range topics {
			for j := range topics[i].Partitions {
				if p := &topics[i].Partitions[j]; p.ErrorCode == 0 {
					p.ErrorCode = code
				}
			}
		}
	}
	if missing {
		fill(kerr.OperationNotAttempted.Code)
		answer(topics, nil)
		return
	}
	b.groups.AddToTxn(add, func(err error) {
		b.releaseGroup(err, func(err error) {
			fill(codeOf(err))
			answer(topics, err)
		})
	})
}

func txnID(r *wire.Request, id string, producerID int64, epoch int16) coordinator.TxnID {
	return coordinator.TxnID{ID: id, ProducerID: producerID, Epoch: epoch, Connection: r.Conn.ID()}
}
