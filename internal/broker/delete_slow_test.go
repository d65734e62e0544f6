package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDeletionWaitsForItsFlushAlone: while the flush of a deleted topic's log hangs, its deletion is answered, other
// topics are made and deleted, and the lease takes catalogs; only a new topic of the same name waits.
func TestDeletionWaitsForItsFlushAlone(t *testing.T) {
	b, gate := newGatedBroker(t)
	old := b.leader("a", 0).log
	release := gate.hold()
	defer release()
	batch := batchOf{producer: 1}
	r := b.produceRequest(produceTo{"a", 0, batch.bytes(t)})
	r.TimeoutMillis = 30
	row := ask[*kmsg.ProduceResponse](b, b.handleProduce, 9, r).Topics[0].Partitions[0]
	wantCode(t, "while the flush hangs", row.ErrorCode, kerr.RequestTimedOut)

	finished := make(chan struct{})
	go func() {
		defer close(finished)
		deleted := ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 6, deleteByName("a"))
		wantCode(t, "delete", deleted.Topics[0].ErrorCode, nil)
		b.create("other", 3, nil)
		deleted = ask[*kmsg.DeleteTopicsResponse](b, b.handleDeleteTopics, 6, deleteByName("other"))
		wantCode(t, "delete another", deleted.Topics[0].ErrorCode, nil)
	}()
	select {
	case <-finished:
	case <-time.After(10 * time.Second):
		t.Fatal("a slow fsync of a deleted topic holds up the others")
	}

	again := make(chan struct{})
	go func() {
		defer close(again)
		b.create("a", 1, nil)
	}()
	select {
	case <-again:
		t.Fatal("a new topic has the directory of one that is not gone yet")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	select {
	case <-again:
	case <-time.After(10 * time.Second):
		t.Fatal("the new topic is not made")
	}
	if fresh := b.leader("a", 0).log; fresh.ID() == old.ID() || fresh.Offsets().End != 0 {
		t.Errorf("the new topic is the old one: %+v", fresh.Offsets())
	}
}
