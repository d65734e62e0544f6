package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// restart is the broker after a power cut, under the next term of each partition.
func (b *testBroker) restart() *testBroker {
	b.t.Helper()
	return startTestBroker(b.t, b.disk.CrashCopy(testRand(1)), b.store)
}

// endOfEpoch asks OffsetForLeaderEpoch of partition 0.
func (b *testBroker) endOfEpoch(version int16, topic string, current, asked int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	b.t.Helper()
	r := kmsg.NewPtrOffsetForLeaderEpochRequest()
	r.ReplicaID = -2 // a debugging consumer; -1 is asked elsewhere
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.CurrentLeaderEpoch, p.LeaderEpoch = current, asked
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return ask[*kmsg.OffsetForLeaderEpochResponse](b, b.handleOffsetForLeaderEpoch, version, r).Topics[0].Partitions[0]
}

// threeTerms is a broker whose topic a has three records of its first term, none of the second and two of the third, as
// a Kafka that was restarted twice would; the answers below are what Kafka 4.4.0 gave then.
func threeTerms(t *testing.T) (b *testBroker, first int32) {
	b = newTestBroker(t)
	b.create("a", 1, nil)
	first = b.leader("a", 0).row.Term
	b.mustProduce("a", 0, batchOf{times: []int64{1, 2, 3}})
	b = b.restart().restart()
	b.mustProduce("a", 0, batchOf{times: []int64{4, 5}})
	if term := b.leader("a", 0).row.Term; term != first+2 {
		t.Fatalf("the third term is %d after %d", term, first)
	}
	return b, first
}

func (b *testBroker) deleteTo(topic string, offset int64) {
	b.t.Helper()
	resp := ask[*kmsg.DeleteRecordsResponse](b, b.handleDeleteRecords, 2, deleteRecordsRequest(topic, map[int32]int64{0: offset}))
	wantCode(b.t, "DeleteRecords", resp.Topics[0].Partitions[0].ErrorCode, nil)
}

// C-23: past, current and future epochs, before and after retention took the records of the oldest.
func TestOffsetForLeaderEpoch(t *testing.T) {
	b, first := threeTerms(t)
	b.create("empty", 1, nil)
	fresh := b.leader("empty", 0).row.Term
	type end struct {
		term   int32
		offset int64
	}
	check := func(topic string, want map[int32]end) {
		t.Helper()
		for version := int16(2); version <= 4; version++ {
			for asked, w := range want {
				for _, current := range []int32{-1, b.leader(topic, 0).row.Term} {
					got := b.endOfEpoch(version, topic, current, asked)
					if got.ErrorCode != 0 || (end{got.LeaderEpoch, got.EndOffset}) != w {
						t.Errorf("v%d %s: epoch %d ends at %+v, want %+v", version, topic, asked, got, w)
					}
				}
			}
		}
	}
	check("empty", map[int32]end{fresh: {fresh, 0}, fresh + 1: {-1, -1}})
	check("a", map[int32]end{-1: {-1, -1}, first: {first, 3}, first + 1: {first, 3}, first + 2: {first + 2, 5}, first + 3: {-1, -1}, 1 << 30: {-1, -1}})
	b.deleteTo("a", 4)
	// Whoever has read all of an epoch that is gone reads on without a truncation.
	check("a", map[int32]end{-1: {-1, -1}, first: {first, 4}, first + 1: {first + 1, 4}, first + 2: {first + 2, 5}, first + 3: {-1, -1}})
	b.deleteTo("a", 5)
	b = b.restart()
	check("a", map[int32]end{first: {first, 5}, first + 3: {first + 3, 5}, first + 4: {-1, -1}})
}

// Errors of OffsetForLeaderEpoch are those of each partition.
func TestOffsetForLeaderEpochErrors(t *testing.T) {
	b, first := threeTerms(t)
	for version := int16(2); version <= 4; version++ {
		for current, want := range map[int32]*kerr.Error{first: kerr.FencedLeaderEpoch, first + 3: kerr.UnknownLeaderEpoch} {
			got := b.endOfEpoch(version, "a", current, first)
			wantCode(t, "current epoch", got.ErrorCode, want)
			if got.LeaderEpoch != -1 || got.EndOffset != -1 {
				t.Errorf("v%d: %+v", version, got)
			}
		}
		wantCode(t, "unknown topic", b.endOfEpoch(version, "none", -1, 0).ErrorCode, kerr.UnknownTopicOrPartition)
	}
}

// KIP-595: a fetch that names the epoch it read last hears where its log diverges, with no error and no records.
func TestFetchDivergingEpoch(t *testing.T) {
	b, first := threeTerms(t)
	type diverging struct {
		term   int32
		offset int64
	}
	none := diverging{-1, -1}
	check := func(offset int64, last int32, code *kerr.Error, want diverging) {
		t.Helper()
		for version := int16(12); version <= 18; version++ {
			r := b.fetchRequest(fetchFrom{"a", 0, offset})
			r.Topics[0].Partitions[0].LastFetchedEpoch = last
			row := b.fetchOne(version, r)
			wantCode(t, "fetch", row.ErrorCode, code)
			if got := (diverging{row.DivergingEpoch.Epoch, row.DivergingEpoch.EndOffset}); got != want {
				t.Errorf("v%d from %d after epoch %d: diverging %+v, want %+v", version, offset, last, got, want)
			}
			if served := len(row.RecordBatches) > 0; served != (code == nil && want == none && offset < 5) {
				t.Errorf("v%d from %d after epoch %d: records %v", version, offset, last, served)
			}
		}
	}
	check(3, first, nil, none)
	check(1, first, nil, none)
	check(5, first+2, nil, none)
	check(4, first, nil, diverging{first, 3})
	check(3, first+1, nil, diverging{first, 3})
	check(6, first+2, nil, diverging{first + 2, 5}) // past the end
	check(3, first+3, kerr.OffsetOutOfRange, none)  // not begun
	b.deleteTo("a", 4)
	check(4, first, nil, none)
	check(4, first+1, nil, none)
	check(3, first, kerr.OffsetOutOfRange, none)
	check(3, first+2, kerr.OffsetOutOfRange, none)
}

// the same epoch everywhere, and never -1.
func TestOneLeaderEpochEverywhere(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for range 3 {
		at := b.mustProduce("a", 0, batchOf{times: []int64{7}})
		term := b.leader("a", 0).row.Term
		topic := b.metadata(13, metadataOf("a")).Topics[0]
		latest := b.listOffset1("a", timeLatest)
		row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, at}))
		got := []int32{topic.Partitions[0].LeaderEpoch, latest.LeaderEpoch, b.endOfEpoch(4, "a", term, term).LeaderEpoch, headersOf(t, row.RecordBatches)[0].Term}
		for _, e := range got {
			if e != term || e < 0 {
				t.Errorf("epochs %v, want %d", got, term)
			}
		}
		b = b.restart()
	}
}
