package broker

// InitProducerId (key 22), versions 0 to 5. v2 flexible · v3 producer id and epoch
// (KIP-360) · v4 PRODUCER_FENCED · v5 TRANSACTION_ABORTABLE.
// A transactional id's open transaction is aborted, with its markers, before the answer.

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

const (
	// producerIDBlock is how many ids one durable commit reserves; unused ones of a block are skipped for ever.
	producerIDBlock = 1000
	initTimeout     = 10 * time.Second
)

// idBlock hands out producer ids of a block that Postgres has given away for good.
type idBlock struct {
	mu        sync.Mutex // held over the commit: others would wait for the same block anyway
	next, end int64
}

func (b *Broker) handleInitProducerID(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if err := checkInit(req); err != nil {
		resp.ErrorCode = codeOf(err)
		done(wire.Response{Msg: resp}, nil)
		return
	}
	if req.TransactionalID != nil {
		b.initTransactional(r, req, resp, done)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	if id, err := b.nextProducerID(ctx); err == nil {
		resp.ProducerID, resp.ProducerEpoch = id, 0
	} else {
		// What Kafka says while it waits for a block of ids, and retriable for every client here: others are fatal to
		// Java's producer, and after COORDINATOR_NOT_AVAILABLE it looks for the coordinator of a transactional id, which
		// an idempotent producer does not have.
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		b.log.Warn("no block of producer ids could be reserved", "err", err)
	}
	done(wire.Response{Msg: resp}, nil)
}

// initTransactional is InitProducerId of a transactional id.
func (b *Broker) initTransactional(r *wire.Request, req *kmsg.InitProducerIDRequest, resp *kmsg.InitProducerIDResponse, done wire.Done) {
	timeout := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	if timeout <= 0 || timeout > b.cfg.Duration("transaction.max.timeout.ms") {
		resp.ErrorCode = kerr.InvalidTransactionTimeout.Code
		done(wire.Response{Msg: resp}, nil)
		return
	}
	producerID, epoch := req.ProducerID, req.ProducerEpoch
	if req.Version < 3 {
		producerID, epoch = -1, -1
	}
	ask := coordinator.InitTxnRequest{TxnID: txnID(r, *req.TransactionalID, producerID, epoch), Timeout: timeout, Version: req.Version}
	b.groups.InitProducer(ask, func(reply coordinator.InitTxnReply) {
		b.releaseGroup(reply.Err, func(err error) {
			resp.ErrorCode = codeOf(err)
			if err == nil {
				resp.ProducerID, resp.ProducerEpoch = reply.ProducerID, reply.Epoch
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

// checkInit refuses what contradicts itself.
func checkInit(req *kmsg.InitProducerIDRequest) error {
	if req.TransactionalID != nil && *req.TransactionalID == "" {
		return errInvalidRequest
	}
	// An idempotent producer that lost its sequence may name its old id and epoch: it simply gets a new id.
	if req.Version >= 3 && (req.ProducerID >= 0) != (req.ProducerEpoch >= 0) {
		return errInvalidRequest
	}
	return nil
}

func (b *Broker) nextProducerID(ctx context.Context) (int64, error) {
	p := &b.producers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		first, err := b.store.AllocateProducerIDs(ctx, b.owner, producerIDBlock)
		if err != nil {
			return -1, err
		}
		p.next, p.end = first, first+producerIDBlock
	}
	id := p.next
	p.next++
	return id, nil
}
