package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// decisionStore looks at the logs at the moment a decision becomes durable.
type decisionStore struct {
	*metatest.Memory
	mu   sync.Mutex
	look func(decided meta.TransactionRow)
}

func (s *decisionStore) CommitShards(ctx context.Context, owner int32, changes []meta.ShardChange) error {
	s.mu.Lock()
	look := s.look
	s.mu.Unlock()
	for _, c := range changes {
		for _, row := range c.Transactions {
			if look != nil && len(row.Partitions) > 0 {
				look(row)
			}
		}
	}
	return s.Memory.CommitShards(ctx, owner, changes)
}

// A decision becomes durable after what it is about: the records of its partitions, for a commit and for an abort, in
// both durabilities, since a power cut could otherwise let its list match the next transaction; and the markers of the
// decision that it replaces, since nobody would write those again.
func TestDecisionsComeAfterTheirRecords(t *testing.T) {
	for _, durability := range []segstore.Durability{segstore.Strict, segstore.Relaxed} {
		for _, commit := range []bool{true, false} {
			store := &decisionStore{Memory: metatest.NewMemory()}
			disk := memDirectory(t)
			b := &testBroker{Broker: startLiveOn(t, disk, store, durability), t: t, disk: disk, store: store.Memory}
			liveTopics(t, b.Broker, "a", "b")
			decisions := 0
			store.mu.Lock()
			store.look = func(row meta.TransactionRow) {
				decisions++
				for _, topic := range []string{"a", "b"} {
					log := b.leader(topic, 0).log
					if o := log.Offsets(); o.Durable < o.End {
						t.Errorf("durability %v, commit %v: decision %d is about to be durable, but %s ends at %d and is durable to %d",
							durability, commit, decisions, topic, o.End, o.Durable)
					}
				}
			}
			store.mu.Unlock()
			p := b.initTxn(4, "id", -1, -1)
			epoch := p.ProducerEpoch
			for i, topic := range []string{"a", "b", "b", "a"} { // so that the list of the one before is another one too
				batch := batchOf{producer: p.ProducerID + 1, epoch: epoch, attrs: attrTransactional}
				r := b.produceRequest(produceTo{topic, 0, batch.bytes(t)})
				id := "id"
				r.TransactionID = &id
				r.Acks = acksNone // nothing but the decision itself waits for the disk
				b.begin(t.Context(), "PLAINTEXT", b.handleProduce, 12, r)
				end := b.endTxn(5, "id", p.ProducerID, epoch, commit)
				wantCode(t, fmt.Sprint("end ", i), end.ErrorCode, nil)
				epoch = end.ProducerEpoch
			}
			if decisions != 4 {
				t.Errorf("%d decisions about records, want 4", decisions)
			}
		}
	}
}

// What is answered is in the log and outlives a power cut that comes with the answer, for acks=1 and acks=all.
func TestAnswersComeAfterTheAppend(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for i := range 20 {
		r := b.produceRequest(produceTo{"a", 0, batchOf{value: fmt.Sprint(i)}.bytes(t)})
		r.Acks = []int16{acksLeader, acksAll}[i%2]
		row := ask[*kmsg.ProduceResponse](b, b.handleProduce, 9, r).Topics[0].Partitions[0]
		after := b.disk.CrashCopy(testRand(uint64(i)))
		wantCode(t, "produce", row.ErrorCode, nil)
		segments, err := segstore.Open(segstore.Options{FS: after, Dir: "/log"})
		if err != nil {
			t.Fatal(err)
		}
		if err := segments.Recover(t.Context(), func(string, segstore.TopicID) segstore.LogConfig { return segstore.LogConfig{} }, nil); err != nil {
			t.Fatal(err)
		}
		log, _ := segments.Get(b.idOf("a"), 0)
		if end := log.Offsets().End; row.BaseOffset != int64(i) || end <= row.BaseOffset {
			t.Fatalf("batch %d is answered with offset %d; after a power cut the log ends at %d", i, row.BaseOffset, end)
		}
		if err := segments.Close(false, 0); err != nil {
			t.Fatal(err)
		}
	}
}
