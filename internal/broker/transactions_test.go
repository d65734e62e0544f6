package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// newTxnBroker is a whole broker asked by its handlers.
func newTxnBroker(t *testing.T) *testBroker {
	t.Helper()
	store := metatest.NewMemory()
	disk := memDirectory(t)
	b := &testBroker{Broker: startLive(t, disk, store), t: t, disk: disk, store: store}
	liveTopics(t, b.Broker, "a")
	return b
}

func (b *testBroker) initTxn(version int16, id string, producerID int64, epoch int16) *kmsg.InitProducerIDResponse {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &id, 60_000, producerID, epoch
	return ask[*kmsg.InitProducerIDResponse](b, b.handleInitProducerID, version, r)
}

func (b *testBroker) endTxn(version int16, id string, producerID int64, epoch int16, commit bool) *kmsg.EndTxnResponse {
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = id, producerID, epoch, commit
	return ask[*kmsg.EndTxnResponse](b, b.handleEndTxn, version, r)
}

func (b *testBroker) produceTxn(version int16, id string, batch batchOf) int16 {
	batch.attrs |= attrTransactional
	batch.producer++ // its 0 is none
	r := b.produceRequest(produceTo{"a", 0, batch.bytes(b.t)})
	r.TransactionID = &id
	return ask[*kmsg.ProduceResponse](b, b.handleProduce, version, r).Topics[0].Partitions[0].ErrorCode
}

func (b *testBroker) addPartitions(version int16, id string, producerID int64, epoch int16, partitions ...int32) []int16 {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	if version < 4 {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = "a", partitions
		r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Topics = id, producerID, epoch, append(r.Topics, t)
	} else {
		t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		t.Topic, t.Partitions = "a", partitions
		x := kmsg.NewAddPartitionsToTxnRequestTransaction()
		x.TransactionalID, x.ProducerID, x.ProducerEpoch, x.Topics = id, producerID, epoch, append(x.Topics, t)
		r.Transactions = append(r.Transactions, x)
	}
	resp := ask[*kmsg.AddPartitionsToTxnResponse](b, b.handleAddPartitionsToTxn, version, r)
	var codes []int16
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	for _, x := range resp.Transactions {
		for _, t := range x.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	}
	return codes
}

// F-02: timeouts and ids that cannot be. F-03: codes of fenced producers. F-06: the end of nothing. F-08: produce
// without registration. AddPartitionsToTxn with a partition that does not exist.
func TestTransactionCodes(t *testing.T) {
	b := newTxnBroker(t)
	for version := int16(0); version <= 5; version++ {
		for _, timeout := range []int32{0, -1, 900_001} {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionalID, r.TransactionTimeoutMillis = kmsg.StringPtr("x"), timeout
			r.ProducerID, r.ProducerEpoch = -1, -1
			wantCode(t, "timeout", ask[*kmsg.InitProducerIDResponse](b, b.handleInitProducerID, version, r).ErrorCode, kerr.InvalidTransactionTimeout)
		}
	}
	first := b.initTxn(4, "id", -1, -1)
	wantCode(t, "init", first.ErrorCode, nil)
	again := b.initTxn(4, "id", -1, -1)
	if again.ErrorCode != 0 || again.ProducerID != first.ProducerID || again.ProducerEpoch != first.ProducerEpoch+1 {
		t.Fatalf("%+v after %+v", again, first)
	}
	id, epoch := again.ProducerID, again.ProducerEpoch
	for version, want := range map[int16]*kerr.Error{0: kerr.InvalidProducerEpoch, 1: kerr.InvalidProducerEpoch, 2: kerr.ProducerFenced, 4: kerr.ProducerFenced, 5: kerr.ProducerFenced} {
		for _, wrong := range []int16{epoch - 1, epoch + 1} {
			wantCode(t, "EndTxn of another epoch", b.endTxn(version, "id", id, wrong, true).ErrorCode, want)
		}
		wantCode(t, "EndTxn of another producer", b.endTxn(version, "id", id+1, epoch, true).ErrorCode, kerr.InvalidProducerIDMapping)
		wantCode(t, "EndTxn of nobody", b.endTxn(version, "nobody", id, epoch, true).ErrorCode, kerr.InvalidProducerIDMapping)
		wantCode(t, "commit of nothing", b.endTxn(version, "id", id, epoch, true).ErrorCode, kerr.InvalidTxnState)
	}
	for version, want := range map[int16]*kerr.Error{1: kerr.InvalidProducerEpoch, 3: kerr.ProducerFenced, 5: kerr.ProducerFenced} {
		wantCode(t, "AddPartitions", b.addPartitions(version, "id", id, epoch-1, 0)[0], want)
		wantCode(t, "AddPartitions", b.addPartitions(version, "id", id+1, epoch, 0)[0], kerr.InvalidProducerIDMapping)
		codes := b.addPartitions(version, "id", id, epoch, 0, 9)
		wantCode(t, "the others", codes[0], kerr.OperationNotAttempted)
		wantCode(t, "an unknown partition", codes[1], kerr.UnknownTopicOrPartition)
	}
	for version, want := range map[int16]*kerr.Error{3: kerr.InvalidTxnState, 9: kerr.InvalidTxnState, 11: kerr.TransactionAbortable} {
		wantCode(t, "produce without registration", b.produceTxn(version, "id", batchOf{producer: id, epoch: epoch}), want)
		wantCode(t, "produce of another epoch", b.produceTxn(version, "id", batchOf{producer: id, epoch: epoch - 1}), kerr.InvalidProducerEpoch)
		wantCode(t, "produce of a future epoch", b.produceTxn(version, "id", batchOf{producer: id, epoch: epoch + 1}), kerr.InvalidProducerEpoch)
		wantCode(t, "produce of another producer", b.produceTxn(version, "id", batchOf{producer: id + 1, epoch: epoch}), kerr.InvalidProducerIDMapping)
		wantCode(t, "produce of nobody", b.produceTxn(version, "nobody", batchOf{producer: id, epoch: epoch}), kerr.InvalidProducerIDMapping)
	}
	if end := b.leader("a", 0).log.Offsets().End; end != 0 {
		t.Fatalf("refused batches are in the log: %d", end)
	}
	wantCode(t, "registration", b.addPartitions(3, "id", id, epoch, 0)[0], nil)
	wantCode(t, "produce after registration", b.produceTxn(9, "id", batchOf{producer: id, epoch: epoch}), nil)
	wantCode(t, "commit", b.endTxn(4, "id", id, epoch, true).ErrorCode, nil)
	wantCode(t, "the same again", b.endTxn(4, "id", id, epoch, true).ErrorCode, nil)
	wantCode(t, "the other outcome", b.endTxn(4, "id", id, epoch, false).ErrorCode, kerr.InvalidTxnState)
	abort := b.endTxn(5, "id", id, epoch, false) // of nothing
	if abort.ErrorCode != 0 || abort.ProducerEpoch != epoch+1 || abort.ProducerID != id {
		t.Fatalf("%+v", abort)
	}
	wantCode(t, "produce v12 without registration", b.produceTxn(12, "id", batchOf{producer: id, epoch: epoch + 1}), nil)
	end := b.endTxn(5, "id", id, epoch+1, true)
	if end.ErrorCode != 0 || end.ProducerEpoch != epoch+2 {
		t.Fatalf("%+v", end)
	}
	wantCode(t, "the ended epoch", b.produceTxn(12, "id", batchOf{producer: id, epoch: epoch + 1}), kerr.InvalidProducerEpoch)
	stable := make(chan struct{})
	b.leader("a", 0).log.Watch(segstore.BoundStable, 4, func() { close(stable) })
	<-stable // the answer does not wait for the sync of its marker
	if o := b.leader("a", 0).log.Offsets(); o.Stable != o.End || o.End != 4 {
		t.Fatalf("offsets %+v after two records and two markers", o)
	}
}

// F-22: transactions and producers as operators see them, before, during and after. F-23: a hanging transaction is ended
// by hand.
func TestTransactionsForOperators(t *testing.T) {
	b := newTxnBroker(t)
	list := func(states ...string) []kmsg.ListTransactionsResponseTransactionState {
		t.Helper()
		r := kmsg.NewPtrListTransactionsRequest()
		r.StateFilters = states
		resp := ask[*kmsg.ListTransactionsResponse](b, b.handleListTransactions, 2, r)
		wantCode(t, "ListTransactions", resp.ErrorCode, nil)
		if len(states) > 0 && states[0] == "ongoing" && len(resp.UnknownStateFilters) != 1 {
			t.Errorf("unknown states: %v", resp.UnknownStateFilters)
		}
		return resp.TransactionStates
	}
	if rows := list(); len(rows) != 0 {
		t.Fatalf("before: %+v", rows)
	}
	p := b.initTxn(4, "id", -1, -1)
	wantCode(t, "produce", b.produceTxn(12, "id", batchOf{producer: p.ProducerID, epoch: p.ProducerEpoch}), nil)
	if rows := list("Ongoing"); len(rows) != 1 || rows[0].TransactionalID != "id" || rows[0].ProducerID != p.ProducerID {
		t.Fatalf("open: %+v", rows)
	}
	if rows := list("ongoing"); len(rows) != 0 {
		t.Fatalf("a state that does not exist: %+v", rows)
	}
	d := kmsg.NewPtrDescribeTransactionsRequest()
	d.TransactionalIDs = []string{"nobody", "id"}
	rows := ask[*kmsg.DescribeTransactionsResponse](b, b.handleDescribeTransactions, 0, d).TransactionStates
	wantCode(t, "DescribeTransactions", rows[0].ErrorCode, kerr.TransactionalIDNotFound)
	if x := rows[1]; x.State != "Ongoing" || x.TimeoutMillis != 60_000 || x.StartTimestamp <= 0 || len(x.Topics) != 1 || x.Topics[0].Topic != "a" || len(x.Topics[0].Partitions) != 1 {
		t.Fatalf("%+v", x)
	}
	producers := func(partition int32) kmsg.DescribeProducersResponseTopicPartition {
		t.Helper()
		r := kmsg.NewPtrDescribeProducersRequest()
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic, topic.Partitions = "a", []int32{partition}
		r.Topics = append(r.Topics, topic)
		return ask[*kmsg.DescribeProducersResponse](b, b.handleDescribeProducers, 0, r).Topics[0].Partitions[0]
	}
	wantCode(t, "DescribeProducers", producers(77).ErrorCode, kerr.UnknownTopicOrPartition)
	if s := producers(0).ActiveProducers; len(s) != 1 || s[0].ProducerID != p.ProducerID || s[0].CurrentTxnStartOffset != 0 {
		t.Fatalf("%+v", s)
	}
	mark := func(epoch int16) int16 {
		t.Helper()
		topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		topic.Topic, topic.Partitions = "a", []int32{0}
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Topics = p.ProducerID, epoch, 0, append(m.Topics, topic)
		r := kmsg.NewPtrWriteTxnMarkersRequest()
		r.Markers = append(r.Markers, m)
		return ask[*kmsg.WriteTxnMarkersResponse](b, b.handleWriteTxnMarkers, 1, r).Markers[0].Topics[0].Partitions[0].ErrorCode
	}
	wantCode(t, "a marker of an old epoch", mark(p.ProducerEpoch-1), kerr.InvalidProducerEpoch)
	wantCode(t, "a marker", mark(p.ProducerEpoch), nil)
	if at := b.segments.Logs()[0].Offsets(); at.Durable != at.End {
		t.Fatalf("the marker was answered before it was durable: %+v", at)
	}
	wantCode(t, "a second one", mark(p.ProducerEpoch), nil)
	if s := producers(0).ActiveProducers; s[0].CurrentTxnStartOffset != -1 {
		t.Fatalf("after the marker: %+v", s)
	}
	if rows := list("Ongoing"); len(rows) != 0 {
		t.Fatalf("after the marker: %+v", rows)
	}
}

// After a power cut in relaxed mode the epochs rise before anything is served: an open transaction is aborted, and its
// producer cannot commit what may be gone. A start on the same boot leaves it open.
func TestPowerCutFencesRelaxedTransactions(t *testing.T) {
	for _, boot := range []string{"boot", "another"} {
		store, disk := metatest.NewMemory(), memDirectory(t)
		b := &testBroker{Broker: startLive(t, disk, store), t: t, disk: disk, store: store}
		liveTopics(t, b.Broker, "a")
		p := b.initTxn(4, "id", -1, -1)
		wantCode(t, "produce", b.produceTxn(12, "id", batchOf{producer: p.ProducerID, epoch: p.ProducerEpoch}), nil)
		run := []byte(`{"boot_id":"` + boot + `","durability":"relaxed"}`)
		if err := vfs.WriteFileAtomic(disk, "/log/"+runFileName, run); err != nil {
			t.Fatal(err)
		}
		after := disk.CrashCopy(testRand(3))
		b = &testBroker{Broker: startLive(t, after, store), t: t, disk: after, store: store}
		end := b.endTxn(5, "id", p.ProducerID, p.ProducerEpoch, true)
		want := kerr.InvalidTxnState // it was aborted, and the client hears so
		if boot == "boot" {
			want = nil
		}
		wantCode(t, "commit after "+boot, end.ErrorCode, want)
	}
}
