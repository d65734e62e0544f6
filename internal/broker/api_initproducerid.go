package broker

// InitProducerId (key 22), versions 0 to 5, for idempotent producers. v2 flexible · v3 producer id and epoch
// (KIP-360) · v4 PRODUCER_FENCED · v5 TRANSACTION_ABORTABLE.
// Left out: transactional ids, refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients treat as final.

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// checkInit refuses what only a transaction coordinator could do.
func checkInit(req *kmsg.InitProducerIDRequest) error {
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		return errInvalidRequest
	case req.TransactionalID != nil:
		return errNoTransactions
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
