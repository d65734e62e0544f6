package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
)

// While it is not known whether another process took over nothing is answered; afterwards everything is, or everything
// that depends on leadership is refused with NOT_LEADER_OR_FOLLOWER, offsets of -1 and no records.
func TestNothingIsAnsweredWithoutTheLease(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		b := newTestBroker(t)
		b.create("a", 1, nil)
		b.mustProduce("a", 0, batchOf{})
		b.lease = coordinator.NewLease(coordinator.LeaseOptions{Lease: time.Minute, Every: time.Second})
		epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
		topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
		topic.Topic, topic.Partitions = "a", []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1, LeaderEpoch: b.leader("a", 0).row.Term}}
		epochs.Topics = append(epochs.Topics, topic)
		refused := b.produceRequest(produceTo{"a", 0, batchOf{}.bytes(t)}, produceTo{"a", 5, batchOf{}.bytes(t)})

		end0 := b.leader("a", 0).log.Offsets().End
		asked := make(chan func() *kmsg.ProduceResponse, 1) // before it appends, Produce waits for the lease
		go func() { asked <- askLater[*kmsg.ProduceResponse](b, b.handleProduce, 9, refused) }()
		fetch := askLater[*kmsg.FetchResponse](b, b.handleFetch, 12, b.fetchRequest(fetchFrom{"a", 0, 0}))
		list := askLater[*kmsg.ListOffsetsResponse](b, b.handleListOffsets, 11, listOffsetsRequest("a", timeLatest))
		end := askLater[*kmsg.OffsetForLeaderEpochResponse](b, b.handleOffsetForLeaderEpoch, 4, epochs)
		waiting := b.begin(t.Context(), "PLAINTEXT", b.handleFetch, 12, b.fetchRequest(fetchFrom{"a", 0, 0}))
		select {
		case <-waiting:
			t.Fatal("answered without the lease")
		case <-time.After(30 * time.Millisecond):
		}
		want := kerr.NotLeaderForPartition
		if fenced {
			b.lease.Fenced()
		} else {
			b.lease.Renewed(time.Now())
			want = nil
		}
		p, f := (<-asked)().Topics[0].Partitions, fetch().Topics[0].Partitions[0]
		l, e := list().Topics[0].Partitions[0], end().Topics[0].Partitions[0]
		for what, code := range map[string]int16{"Produce": p[0].ErrorCode, "Fetch": f.ErrorCode, "ListOffsets": l.ErrorCode, "OffsetForLeaderEpoch": e.ErrorCode} {
			wantCode(t, what, code, want)
		}
		wantCode(t, "what was refused before", p[1].ErrorCode, kerr.UnknownTopicOrPartition)
		if appended := b.leader("a", 0).log.Offsets().End - end0; appended != map[bool]int64{false: 1}[fenced] {
			t.Errorf("fenced=%v, and %d records were appended", fenced, appended)
		}
		if fenced && (p[0].BaseOffset != -1 || f.HighWatermark != -1 || len(f.RecordBatches) > 0 || l.Offset != -1 || e.EndOffset != -1) {
			t.Errorf("fenced, but answered %+v %+v %+v %+v", p[0], f, l, e)
		}
		if !fenced && (p[0].BaseOffset != 1 || len(f.RecordBatches) == 0 || l.Offset < 1 || e.EndOffset < 1) {
			t.Errorf("answered %+v %+v %+v %+v", p[0], f, l, e)
		}
	}
}
