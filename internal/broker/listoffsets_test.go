package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listOffsetsRequest asks for one time in partition 0 of a topic.
func listOffsetsRequest(topic string, at int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = at
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func (b *testBroker) listOffsets(version int16, r *kmsg.ListOffsetsRequest) kmsg.ListOffsetsResponseTopicPartition {
	b.t.Helper()
	return ask[*kmsg.ListOffsetsResponse](b, b.handleListOffsets, version, r).Topics[0].Partitions[0]
}

// listOffset1 asks with the newest version.
func (b *testBroker) listOffset1(topic string, at int64) kmsg.ListOffsetsResponseTopicPartition {
	b.t.Helper()
	return b.listOffsets(11, listOffsetsRequest(topic, at))
}

// found is what a row must say; an offset of -1 has no time either.
type found struct{ offset, time int64 }

func (b *testBroker) wantOffset(topic string, at int64, want found) {
	b.t.Helper()
	got := b.listOffset1(topic, at)
	if got.ErrorCode != 0 || got.Offset != want.offset || got.Timestamp != want.time {
		b.t.Errorf("%s at %d: offset %d, time %d, code %d; want %+v", topic, at, got.Offset, got.Timestamp, got.ErrorCode, want)
	}
	if term := b.leader(topic, 0).row.Term; (want.offset >= 0 && got.LeaderEpoch != term) || (want.offset < 0 && got.LeaderEpoch != -1) {
		b.t.Errorf("%s at %d: leader epoch %d, the partition's is %d", topic, at, got.LeaderEpoch, term)
	}
}

// D-12, D-13: which special values each version knows; a value below its version, or unknown, is 35.
func TestSpecialTimesInEveryVersion(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{times: []int64{10, 30, 20}})
	since := map[int64]int16{-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99, -1 << 63: 99, 0: 1, 25: 1, 99: 1}
	want := map[int64]found{-1: {3, -1}, -2: {0, -1}, -3: {1, 30}, -4: {0, -1}, -5: {-1, -1}, -6: {-1, -1}, 0: {0, 10}, 25: {1, 30}, 99: {-1, -1}}
	for version := int16(1); version <= 11; version++ {
		for at, first := range since {
			got := b.listOffsets(version, listOffsetsRequest("a", at))
			if version < first {
				wantCode(t, "too early", got.ErrorCode, kerr.UnsupportedVersion)
				if got.Offset != -1 || got.Timestamp != -1 {
					t.Errorf("v%d, %d: %+v", version, at, got)
				}
				continue
			}
			wantCode(t, "known", got.ErrorCode, nil)
			if (found{got.Offset, got.Timestamp}) != want[at] {
				t.Errorf("v%d, %d: offset %d, time %d; want %+v", version, at, got.Offset, got.Timestamp, want[at])
			}
		}
	}
}

// D-01, D-02, D-03, D-04, D-08, D-11.
func TestOffsetsByTime(t *testing.T) {
	b := newTestBroker(t)
	for _, name := range []string{"each", "gzip", "zstd", "empty", "jumps", "untimed"} {
		b.create(name, 1, nil)
	}
	b.create("append", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	for _, at := range []int64{2, 4, 6, 8} { // D-01
		b.mustProduce("each", 0, batchOf{times: []int64{at}})
	}
	for at, want := range map[int64]found{3: {1, 4}, 5: {2, 6}, 8: {3, 8}, 9: {-1, -1}, 0: {0, 2}, 2: {0, 2}, timeMaxTimestamp: {3, 8}} {
		b.wantOffset("each", at, want)
	}
	for topic, codec := range map[string]int16{"gzip": 1, "zstd": codecZstd} { // D-02
		b.mustProduce(topic, 0, batchOf{times: []int64{1}})
		b.mustProduce(topic, 0, batchOf{codec: codec, times: []int64{10, 20, 30}})
		for at, want := range map[int64]found{15: {2, 20}, 20: {2, 20}, 10: {1, 10}, 30: {3, 30}, 31: {-1, -1}, timeMaxTimestamp: {3, 30}} {
			b.wantOffset(topic, at, want)
		}
	}
	b.mustProduce("append", 0, batchOf{times: []int64{1}})
	row := b.produce(9, "append", 0, batchOf{times: []int64{1, 2, 3}}.bytes(t)) // D-03
	first := b.listOffset1("append", row.LogAppendTime)
	if first.Offset > 1 || first.Offset < 0 { // 0 if both batches came in one millisecond
		t.Errorf("append time %d is found at %d", row.LogAppendTime, first.Offset)
	}
	for _, at := range []int64{0, 5, timeMaxTimestamp} { // D-08, D-04
		b.wantOffset("empty", at, found{-1, -1})
	}
	b.wantOffset("empty", timeLatest, found{0, -1})
	b.wantOffset("empty", timeEarliest, found{0, -1})
	b.mustProduce("jumps", 0, batchOf{times: []int64{100, 50}}) // D-11, and ties of D-04
	b.mustProduce("jumps", 0, batchOf{times: []int64{200, 60, 200}})
	b.mustProduce("jumps", 0, batchOf{times: []int64{200, 10}})
	for at, want := range map[int64]found{55: {0, 100}, 100: {0, 100}, 101: {2, 200}, 200: {2, 200}, timeMaxTimestamp: {2, 200}} {
		b.wantOffset("jumps", at, want)
	}
	b.mustProduce("untimed", 0, batchOf{times: []int64{-1}})
	b.wantOffset("untimed", 0, found{-1, -1})
}

// D-08, D-09: nothing below the log start is found, and an emptied log has no times.
func TestOffsetsByTimeAfterDeletion(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for _, at := range []int64{50, 60, 70, 80} {
		b.mustProduce("a", 0, batchOf{times: []int64{at, at + 1}})
	}
	cut := func(to int64) {
		t.Helper()
		resp := ask[*kmsg.DeleteRecordsResponse](b, b.handleDeleteRecords, 2, deleteRecordsRequest("a", map[int32]int64{0: to}))
		wantCode(t, "DeleteRecords", resp.Topics[0].Partitions[0].ErrorCode, nil)
	}
	cut(3) // inside a batch
	for at, want := range map[int64]found{0: {3, 61}, 55: {3, 61}, 62: {4, 70}, timeEarliest: {3, -1}, timeEarliestLocal: {3, -1}, timeLatest: {8, -1}, timeMaxTimestamp: {7, 81}} {
		b.wantOffset("a", at, want)
	}
	cut(8)
	for at, want := range map[int64]found{0: {-1, -1}, 55: {-1, -1}, timeEarliest: {8, -1}, timeLatest: {8, -1}, timeMaxTimestamp: {-1, -1}} {
		b.wantOffset("a", at, want)
	}
}

// D-07: the epoch is that of the record found, the current one for the end.
func TestEpochsOfOffsets(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{times: []int64{10}})
	old := b.leader("a", 0).row.Term
	b = startTestBroker(t, b.disk.CrashCopy(testRand(1)), b.store)
	now := b.leader("a", 0).row.Term
	check := func(at int64, term int32) {
		t.Helper()
		if got := b.listOffset1("a", at); got.ErrorCode != 0 || got.LeaderEpoch != term {
			t.Errorf("at %d: %+v, want epoch %d", at, got, term)
		}
	}
	check(timeLatest, now)
	check(timeEarliest, old)
	b.mustProduce("a", 0, batchOf{times: []int64{20}})
	check(10, old)
	check(11, now)
	check(timeMaxTimestamp, now)
	check(21, -1)
}

// D-12 and errors of single rows: each partition has its own answer.
func TestListOffsetsErrors(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	for version := int16(1); version <= 11; version++ {
		r := listOffsetsRequest("a", timeLatest)
		for _, n := range []int32{1, 0, 2} {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = n, timeLatest
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, p)
		}
		r.Topics = append(r.Topics, listOffsetsRequest("none", 0).Topics...)
		resp := ask[*kmsg.ListOffsetsResponse](b, b.handleListOffsets, version, r)
		rows := resp.Topics[0].Partitions
		for i, want := range []*kerr.Error{kerr.InvalidRequest, nil, kerr.UnknownTopicOrPartition} { // partition 0 comes twice
			wantCode(t, "row", rows[i].ErrorCode, want)
			if want != nil && (rows[i].Offset != -1 || rows[i].LeaderEpoch != -1) {
				t.Errorf("v%d: error row %+v", version, rows[i])
			}
		}
		wantCode(t, "unknown topic", resp.Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
	}
	for _, c := range []struct {
		replica, term int32
		want          *kerr.Error
	}{{-1, -1, nil}, {-2, -1, nil}, {1, -1, kerr.NotLeaderForPartition}, {-1, b.leader("a", 0).row.Term, nil},
		{-1, b.leader("a", 0).row.Term - 1, kerr.FencedLeaderEpoch}, {-1, b.leader("a", 0).row.Term + 1, kerr.UnknownLeaderEpoch}} {
		if c.term == -1 && c.want == kerr.FencedLeaderEpoch { // the first term is 0
			continue
		}
		r := listOffsetsRequest("a", timeLatest)
		r.ReplicaID, r.Topics[0].Partitions[0].CurrentLeaderEpoch = c.replica, c.term
		wantCode(t, "replica and epoch", b.listOffsets(4, r).ErrorCode, c.want)
	}
}

// Isolation: read_committed is answered by the last stable offset, which an open transaction holds back (C-18, D-04).
func TestListOffsetsIsolation(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{times: []int64{10}})
	b.openTransaction("a", 7, 20)
	b.mustProduce("a", 0, batchOf{times: []int64{30}})
	for version := int16(2); version <= 11; version++ {
		for isolation, want := range []map[int64]found{
			{timeLatest: {3, -1}, 15: {1, 20}, 25: {2, 30}},
			{timeLatest: {1, -1}, 15: {-1, -1}, 25: {-1, -1}, 5: {0, 10}},
		} {
			for at, w := range want {
				r := listOffsetsRequest("a", at)
				r.IsolationLevel = int8(isolation)
				if got := b.listOffsets(version, r); got.ErrorCode != 0 || (found{got.Offset, got.Timestamp}) != w {
					t.Errorf("v%d, isolation %d, at %d: %+v, want %+v", version, isolation, at, got, w)
				}
			}
		}
	}
}
