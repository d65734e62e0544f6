package broker

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// txnStories have what Kafka 4.4.0 answers, and what this broker answers where docs/deviations.md says that it differs.
var txnStories = []struct {
	name string
	tell func(p *txnPeer)
}{
	{"initialise", tellInit},                        // F-01, F-02
	{"fencing", tellFencing},                        // F-03
	{"timeout", tellTimeout},                        // F-04
	{"nothing", tellNothing},                        // F-06
	{"produce", tellProduce},                        // F-07, F-08, F-09
	{"registration", tellRegistration},              // AddPartitionsToTxn
	{"deleted", tellDeleted},                        // F-11
	{"resumed", tellResumed},                        // F-17
	{"offsets", tellOffsets},                        // F-18, F-19
	{"offsets-by-topic-id", tellOffsetsByID},        // TxnOffsetCommit v6
	{"operators", tellOperators},                    // F-22
	{"hanging", tellHanging},                        // F-23
	{"expired", tellExpired},                        // F-16
	{"unknown transactional ids", tellUnknownTxnID}, // 49
}

// TestTransactionsAsKafka: every code of the transaction APIs that was recorded of Kafka 4.4.0. A healthy broker never
// answers CONCURRENT_TRANSACTIONS here.
func TestTransactionsAsKafka(t *testing.T) {
	for _, story := range txnStories {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			b := startLive(t, memDirectory(t), metatest.NewMemory(), "transactional.id.expiration.ms=4000",
				"transaction.remove.expired.transaction.cleanup.interval.ms=1000")
			p := &txnPeer{t: t, addr: b.Addr("PLAINTEXT")}
			p.dial()
			p.begin("t")
			story.tell(p)
		})
	}
}

// TestRecordedTransactionCodes compares what is recorded with what the Kafka at PGBROKER_TEST_KAFKA=host:port says, if there
// is one. It is to look for timed-out transactions and expired ids every second, and to let ids expire after 4 s:
// SERVE_PROPERTIES of test/compat/kafka/serve.
func TestRecordedTransactionCodes(t *testing.T) {
	addr := os.Getenv("PGBROKER_TEST_KAFKA")
	if addr == "" {
		t.Skip("PGBROKER_TEST_KAFKA is not set; TestTransactionsAsKafka has what was recorded")
	}
	for i, story := range txnStories {
		t.Run(story.name, func(t *testing.T) {
			p := &txnPeer{t: t, addr: addr, kafka: true, suffix: fmt.Sprintf("-%d-%d", time.Now().Unix(), i)}
			p.dial()
			p.begin("t")
			story.tell(p)
		})
	}
}

// F-01: a new incarnation aborts what the old one left open. F-02: ids and timeouts that cannot be.
func tellInit(p *txnPeer) {
	w := p.init("a", 60_000)
	p.is("produce", p.produce(12, w, 0, 0), 0)
	over := p.initRaw(4, w.id, -1, -1, 60_000)
	p.is("over an open transaction", over.ErrorCode, 51, 0)
	if !p.kafka && over.ProducerEpoch != w.epoch+1 {
		p.t.Errorf("epoch %d after %d", over.ProducerEpoch, w.epoch)
	}
	next := p.init("a", 60_000)
	if next.pid != w.pid || next.epoch <= w.epoch {
		p.t.Errorf("%+v after %+v", next, w)
	}
	if s := p.producers(p.topic, 0).ActiveProducers; len(s) != 1 || s[0].ProducerEpoch != int32(w.epoch)+1 || s[0].CurrentTxnStartOffset != -1 {
		p.t.Errorf("after the abort marker: %+v", s)
	}
	for version := int16(0); version <= 5; version++ {
		for _, timeout := range []int32{0, -1, 900_001} {
			p.is(fmt.Sprintf("v%d timeout %d", version, timeout), p.initRaw(version, p.id("b"), -1, -1, timeout).ErrorCode, 50)
		}
		p.is("empty id", p.initRaw(version, "", -1, -1, 60_000).ErrorCode, 42)
	}
	for version := int16(3); version <= 5; version++ {
		p.is("producer id without epoch", p.initRaw(version, p.id("b"), 5, -1, 60_000).ErrorCode, 42)
		p.is("epoch without producer id", p.initRaw(version, p.id("b"), -1, 5, 60_000).ErrorCode, 42)
		p.is("both, of an unknown id", p.initRaw(version, p.id(fmt.Sprint("c", version)), 5, 5, 60_000).ErrorCode, 0)
	}
	for version, fenced := range map[int16]int16{3: 47, 4: 90, 5: 90} {
		p.is("an old epoch", p.initRaw(version, next.id, next.pid, next.epoch-1, 60_000).ErrorCode, fenced)
		p.is("a future epoch", p.initRaw(version, next.id, next.pid, next.epoch+7, 60_000).ErrorCode, fenced)
		p.is("another producer id", p.initRaw(version, next.id, next.pid+1_000_000, next.epoch, 60_000).ErrorCode, fenced)
	}
	again := p.initRaw(5, next.id, next.pid, next.epoch, 60_000)
	p.is("KIP-360", again.ErrorCode, 0)
	if again.ProducerID != next.pid || again.ProducerEpoch != next.epoch+1 {
		p.t.Errorf("KIP-360: %+v after %+v", again, next)
	}
	lost := p.initRaw(5, next.id, next.pid, next.epoch, 60_000) // its answer was lost
	p.is("KIP-360 again", lost.ErrorCode, 0)
	if lost.ProducerEpoch != again.ProducerEpoch {
		p.t.Errorf("KIP-360 again: %+v after %+v", lost, again)
	}
}

// F-03: what producers of another epoch or id hear.
func tellFencing(p *txnPeer) {
	p.init("a", 60_000)
	w := p.init("a", 60_000)
	p.is("register", p.add(3, w, 0)[0], 0)
	for _, epoch := range []int16{w.epoch - 1, w.epoch + 1} {
		old := w.of(epoch)
		for version, fenced := range map[int16]int16{0: 47, 1: 47, 2: 90, 3: 90} {
			p.is(fmt.Sprintf("AddPartitions v%d epoch %d", version, epoch-w.epoch), p.add(version, old, 0)[0], fenced)
			p.is(fmt.Sprintf("AddOffsets v%d epoch %d", version, epoch-w.epoch), p.addOffsets(version, old, p.id("g")), fenced)
		}
		p.is("AddOffsets v4", p.addOffsets(4, old, p.id("g")), 90)
		for version, fenced := range map[int16]int16{0: 47, 1: 47, 2: 90, 4: 90, 5: 90} {
			p.is(fmt.Sprintf("EndTxn v%d epoch %d", version, epoch-w.epoch), p.end(version, old, true).ErrorCode, fenced)
		}
		for _, version := range []int16{0, 3, 4, 5, 6} {
			p.is(fmt.Sprintf("TxnOffsetCommit v%d epoch %d", version, epoch-w.epoch), p.offsets(version, old, p.id("g"), nobody, 0, 1), 47)
		}
		for _, version := range []int16{9, 11, 12} {
			p.is(fmt.Sprintf("Produce v%d epoch %d", version, epoch-w.epoch), p.produce(version, old, 0, 0), 47)
		}
	}
	p.is("AddPartitions of another producer", p.add(3, w.other(), 0)[0], 49)
	p.is("AddOffsets of another producer", p.addOffsets(3, w.other(), p.id("g")), 49)
	p.is("EndTxn of another producer", p.end(4, w.other(), true).ErrorCode, 49)
	p.is("TxnOffsetCommit of another producer", p.offsets(3, w.other(), p.id("g"), nobody, 0, 1), 49)
}

// F-04: the broker ends a transaction that takes too long, and its producer may go on as KIP-588 has it.
func tellTimeout(p *txnPeer) {
	w := p.init("a", 1000)
	p.is("produce", p.produce(12, w, 0, 0), 0)
	for range 200 {
		if p.describe(w.id).State == "CompleteAbort" {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.is("EndTxn v4", p.end(4, w, true).ErrorCode, 90)
	p.is("EndTxn v5", p.end(5, w, true).ErrorCode, 48)
	p.is("Produce", p.produce(12, w, 0, 1), 47)
	p.is("KIP-588", p.initRaw(5, w.id, w.pid, w.epoch, 1000).ErrorCode, 0)
}

// F-06: the end of nothing.
func tellNothing(p *txnPeer) {
	w := p.init("a", 60_000)
	p.is("commit v4", p.end(4, w, true).ErrorCode, 48)
	p.is("commit v5", p.end(5, w, true).ErrorCode, 48)
	p.is("abort v4", p.end(4, w, false).ErrorCode, 48)
	abort := p.end(5, w, false)
	p.is("abort v5", abort.ErrorCode, 0)
	if abort.ProducerID != w.pid || abort.ProducerEpoch != w.epoch+1 {
		p.t.Errorf("abort v5: %+v after %+v", abort, w)
	}
	w.epoch = abort.ProducerEpoch
	p.is("produce", p.produce(12, w, 0, 0), 0)
	end := p.end(5, w, true)
	p.is("commit", end.ErrorCode, 0)
	p.is("the same again", p.end(5, w, true).ErrorCode, 0)
	p.is("the other outcome", p.end(5, w, false).ErrorCode, 48)
}

// F-07, F-08, F-09: what a transaction may write, and where.
func tellProduce(p *txnPeer) {
	w := p.init("a", 60_000)
	p.is("an unknown partition", p.produce(12, w, 77, 0), 3)
	for version, code := range map[int16]int16{3: 48, 9: 48, 11: 120} {
		p.is(fmt.Sprintf("v%d without registration", version), p.produce(version, w, 1, 0), code)
	}
	p.is("v12 registers by itself", p.produce(12, w, 0, 0), 0)
	plain := func(seq int32) []byte {
		return batchOf{producer: w.pid + 1, epoch: w.epoch, sequence: seq, value: "v"}.bytes(p.t)
	}
	for _, version := range []int16{9, 12} {
		p.is("a plain batch on a partition of the transaction", p.produceRaw(version, nil, p.topic, 0, plain(1)), 48)
		p.is("the same under a transactional id", p.produceRaw(version, &w.id, p.topic, 0, plain(1)), 48)
	}
	p.is("a plain batch elsewhere", p.produceRaw(12, nil, p.topic, 2, plain(0)), 0)
	p.is("the same under a transactional id", p.produceRaw(12, &w.id, p.topic, 3, plain(0)), 0, 48)
	p.is("a gap", p.produce(12, w, 0, 5), 45)
	p.is("another producer", p.produce(12, w.other(), 0, 0), 49)
	p.is("a future epoch", p.produce(12, w.of(w.epoch+1), 0, 0), 47)
	p.is("the same without a producer id", p.produceRaw(12, &w.id, p.topic, 3, batchOf{value: "v"}.bytes(p.t)), 0)
	p.is("commit", p.end(5, w, true).ErrorCode, 0)
}

// AddPartitionsToTxn takes all partitions or none.
func tellRegistration(p *txnPeer) {
	w := p.init("a", 60_000)
	if codes := p.add(3, w, 0, 1, 77); !slices.Equal(codes, []int16{55, 55, 3}) {
		p.t.Errorf("one unknown partition: %v", codes)
	}
	p.is("nothing was added", p.end(4, w, true).ErrorCode, 48)
	p.is("register", p.add(3, w, 0)[0], 0)
	p.is("again", p.add(3, w, 0)[0], 0)
	p.is("produce v9", p.produce(9, w, 0, 0), 0)
	p.is("commit v4", p.end(4, w, true).ErrorCode, 0)
	p.is("the same again", p.end(4, w, true).ErrorCode, 0)
	p.is("the other outcome", p.end(4, w, false).ErrorCode, 48)
	p.is("AddOffsets of no group", p.addOffsets(3, w, ""), 0, 24)
}

// F-11: a deleted topic holds no transaction up.
func tellDeleted(p *txnPeer) {
	w := p.init("a", 60_000)
	p.is("produce", p.produce(12, w, 0, 0), 0)
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.TimeoutMillis, r.TopicNames = 10_000, []string{p.topic}
	p.is("delete", askPeer[*kmsg.DeleteTopicsResponse](p, 5, r).Topics[0].ErrorCode, 0)
	p.is("commit", p.end(5, w, true).ErrorCode, 0)
	for range 200 {
		if state := p.describe(w.id).State; state == "CompleteCommit" {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	p.t.Errorf("state %s", p.describe(w.id).State)
}

// F-17: another process commits with the ids that it was given.
func tellResumed(p *txnPeer) {
	w := p.init("a", 60_000)
	p.is("produce", p.produce(12, w, 0, 0), 0)
	p.conn.Close()
	p.dial()
	p.is("commit", p.end(5, w, true).ErrorCode, 0)
}

// F-16: an id that nobody used for long is removed, and its client begins anew.
func tellExpired(p *txnPeer) {
	idle, open := p.init("a", 60_000), p.init("b", 60_000)
	p.is("produce", p.produce(12, open, 0, 0), 0)
	for range 400 {
		if p.describe(idle.id).ErrorCode != 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.is("describe", p.describe(idle.id).ErrorCode, 105)
	p.is("an open one stays", p.describe(open.id).ErrorCode, 0)
	p.is("AddPartitions", p.add(3, idle, 0)[0], 49)
	p.is("EndTxn v4", p.end(4, idle, true).ErrorCode, 49)
	p.is("EndTxn v5", p.end(5, idle, true).ErrorCode, 49)
	p.is("Produce v12", p.produce(12, idle, 0, 0), 49)
	p.is("TxnOffsetCommit v5", p.offsets(5, idle, p.id("g"), nobody, 0, 1), 49)
	again := p.initRaw(5, idle.id, idle.pid, idle.epoch, 60_000)
	p.is("InitProducerId with the old ids", again.ErrorCode, 0)
	if again.ProducerID == idle.pid || again.ProducerEpoch != 0 {
		p.t.Errorf("%+v after %+v", again, idle)
	}
	p.is("commit of the open one", p.end(5, open, true).ErrorCode, 0)
}

// An id that was never initialised.
func tellUnknownTxnID(p *txnPeer) {
	w := who{p.id("never"), 7, 0}
	p.is("AddPartitions", p.add(3, w, 0)[0], 49)
	p.is("AddOffsets", p.addOffsets(3, w, p.id("g")), 49)
	p.is("EndTxn v4", p.end(4, w, true).ErrorCode, 49)
	p.is("EndTxn v5", p.end(5, w, true).ErrorCode, 49)
	p.is("TxnOffsetCommit v3", p.offsets(3, w, p.id("g"), nobody, 0, 1), 49)
	p.is("TxnOffsetCommit v5", p.offsets(5, w, p.id("g"), nobody, 0, 1), 49)
	p.is("Produce v12", p.produce(12, w, 0, 0), 49)
	w.id = ""
	p.is("EndTxn of no id", p.end(4, w, true).ErrorCode, 42)
	p.is("AddPartitions of no id", p.add(3, w, 0)[0], 42)
	p.is("AddOffsets of no id", p.addOffsets(3, w, p.id("g")), 42)
	p.is("TxnOffsetCommit of no id", p.offsets(3, w, p.id("g"), nobody, 0, 1), 42)
}
