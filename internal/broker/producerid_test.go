package broker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
)

func (b *testBroker) initProducer(version int16, r *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	b.t.Helper()
	return ask[*kmsg.InitProducerIDResponse](b, b.handleInitProducerID, version, r)
}

// Every version gives a new id with epoch 0. No id is given twice: over blocks, at once, and over restarts.
func TestProducerIDsNeverRepeat(t *testing.T) {
	b := newTestBroker(t)
	given := map[int64]bool{}
	take := func(n int) {
		t.Helper()
		for i := range n {
			resp := b.initProducer(int16(i%6), kmsg.NewPtrInitProducerIDRequest())
			if resp.ErrorCode != 0 || resp.ProducerID < 0 || resp.ProducerEpoch != 0 || given[resp.ProducerID] {
				t.Fatalf("%+v, given before: %v", resp, given[resp.ProducerID])
			}
			given[resp.ProducerID] = true
		}
	}
	take(producerIDBlock + 10)
	b = b.restart()
	take(10)
	b = b.restart()
	take(10)

	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				id, err := b.nextProducerID(t.Context())
				mu.Lock()
				if err != nil || given[id] {
					t.Errorf("id %d, given before: %v, %v", id, given[id], err)
				}
				given[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// A block whose commit may or may not have taken effect is left out.
func TestProducerIDsAfterAnUnknownOutcome(t *testing.T) {
	b := newTestBroker(t)
	given := map[int64]bool{}
	for i := range 6 {
		if i%2 == 0 {
			b.store.UnknownNext(i%4 == 0, "AllocateProducerIDs")
		}
		b.producers.next = b.producers.end // the block is used up
		resp := b.initProducer(4, kmsg.NewPtrInitProducerIDRequest())
		if resp.ErrorCode == 0 && given[resp.ProducerID] {
			t.Fatalf("%d was given before", resp.ProducerID)
		}
		given[resp.ProducerID] = resp.ErrorCode == 0
		if i%2 == 0 {
			wantCode(t, "unknown outcome", resp.ErrorCode, kerr.CoordinatorLoadInProgress)
		}
	}
}

// What is refused: an empty transactional id (42), and one of producer id and epoch without the other (42).
func TestInitProducerIDRefusals(t *testing.T) {
	b := newTestBroker(t)
	for version := int16(0); version <= 5; version++ {
		for _, c := range []struct {
			what  string
			txn   *string
			id    int64
			epoch int16
			want  *kerr.Error
			since int16
		}{
			{"empty transactional id", kmsg.StringPtr(""), -1, -1, kerr.InvalidRequest, 0},
			{"id without epoch", nil, 5, -1, kerr.InvalidRequest, 3},
			{"epoch without id", nil, -1, 3, kerr.InvalidRequest, 3},
			{"both", nil, 5, 3, nil, 3},
			{"neither", nil, -1, -1, nil, 0},
		} {
			if version < c.since {
				continue
			}
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.TransactionTimeoutMillis = c.txn, c.id, c.epoch, 60_000
			resp := b.initProducer(version, r)
			wantCode(t, c.what, resp.ErrorCode, c.want)
			if c.want != nil && (resp.ProducerID != -1 || resp.ProducerEpoch != -1) {
				t.Errorf("v%d %s: %+v", version, c.what, resp)
			}
		}
	}
}

// Without Postgres a client is told to try again, within the bound; ids of the block that is already reserved are still
// given, and afterwards it goes on.
func TestInitProducerIDWithoutPostgres(t *testing.T) {
	for name, away := range map[string]func(*testBroker){
		"refusing": func(b *testBroker) { b.store.SetUnavailable(true) }, "hanging": func(b *testBroker) { b.store.SetHanging(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestBroker(t)
				first := b.initProducer(5, kmsg.NewPtrInitProducerIDRequest())
				away(b)
				if next := b.initProducer(5, kmsg.NewPtrInitProducerIDRequest()); next.ErrorCode != 0 || next.ProducerID != first.ProducerID+1 {
					t.Errorf("from the block: %+v", next)
				}
				b.producers.next = b.producers.end
				began := time.Now()
				resp := b.initProducer(5, kmsg.NewPtrInitProducerIDRequest())
				wantCode(t, "away", resp.ErrorCode, kerr.CoordinatorLoadInProgress)
				if took := time.Since(began); took > initTimeout || resp.ProducerID != -1 || resp.ProducerEpoch != -1 {
					t.Errorf("after %s: %+v", took, resp)
				}
				b.store.SetUnavailable(false)
				b.store.SetHanging(false)
				if resp := b.initProducer(5, kmsg.NewPtrInitProducerIDRequest()); resp.ErrorCode != 0 || resp.ProducerID <= first.ProducerID+1 {
					t.Errorf("afterwards: %+v", resp)
				}
			})
		})
	}
}

// A broker that was fenced gives a code that clients retry elsewhere, not one that ends the producer.
func TestInitProducerIDOfAFencedBroker(t *testing.T) {
	b := newTestBroker(t)
	b.store.FailNext(meta.ErrFenced, "AllocateProducerIDs")
	wantCode(t, "fenced", b.initProducer(5, kmsg.NewPtrInitProducerIDRequest()).ErrorCode, kerr.CoordinatorLoadInProgress)
}
