package broker

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every version gives the records, the offsets it has and one row for each partition asked (C-08, C-19).
func TestFetchInEveryVersion(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	b.mustProduce("a", 0, batchOf{times: []int64{1, 2, 3}})
	for version := int16(4); version <= 18; version++ {
		resp := b.fetch(version, b.fetchRequest(fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0}))
		if resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("v%d: %+v", version, resp)
		}
		if topic := resp.Topics[0]; (version < 13) != (topic.Topic == "a") || (version >= 13) != (topic.TopicID == b.idOf("a")) {
			t.Errorf("v%d: the topic is %q %x", version, topic.Topic, topic.TopicID)
		}
		full, idle := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
		if full.ErrorCode != 0 || full.HighWatermark != 3 || full.LastStableOffset != 3 || len(headersOf(t, full.RecordBatches)) != 1 || full.PreferredReadReplica != -1 {
			t.Errorf("v%d: %+v", version, full)
		}
		if version >= 5 && (full.LogStartOffset != 0 || idle.LogStartOffset != 0) {
			t.Errorf("v%d: log starts %d and %d", version, full.LogStartOffset, idle.LogStartOffset)
		}
		if idle.ErrorCode != 0 || idle.Partition != 1 || idle.HighWatermark != 0 || idle.LastStableOffset != 0 || idle.RecordBatches == nil || len(idle.RecordBatches) > 0 {
			t.Errorf("v%d: idle partition %+v", version, idle)
		}
	}
}

// C-01: the whole batch that contains the offset, and what follows.
func TestFetchGivesWholeBatches(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{times: []int64{1, 2}})
	b.mustProduce("a", 0, batchOf{codec: 1, times: []int64{3, 4}})
	for offset, want := range map[int64][]int64{0: {0, 2}, 1: {0, 2}, 2: {2}, 3: {2}, 4: nil} {
		row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, offset}))
		var got []int64
		for _, batch := range headersOf(t, row.RecordBatches) {
			got = append(got, batch.BaseOffset)
		}
		if row.ErrorCode != 0 || !slices.Equal(got, want) {
			t.Errorf("from %d: batches at %v, code %d; want %v", offset, got, row.ErrorCode, want)
		}
	}
}

// C-14, C-13: both ends. Offsets are -1 and the records empty, not null, in every version.
func TestFetchOutOfRange(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for range 3 {
		b.mustProduce("a", 0, batchOf{times: []int64{1, 2}})
	}
	ask[*kmsg.DeleteRecordsResponse](b, b.handleDeleteRecords, 2, deleteRecordsRequest("a", map[int32]int64{0: 3}))
	for version := int16(4); version <= 18; version++ {
		for offset, want := range map[int64]*kerr.Error{2: kerr.OffsetOutOfRange, 3: nil, 6: nil, 7: kerr.OffsetOutOfRange, -1: kerr.OffsetOutOfRange, -2: kerr.OffsetOutOfRange, 1 << 62: kerr.OffsetOutOfRange} {
			row := b.fetchOne(version, b.fetchRequest(fetchFrom{"a", 0, offset}))
			wantCode(t, "fetch", row.ErrorCode, want)
			if row.RecordBatches == nil {
				t.Errorf("v%d at %d: null records", version, offset)
			}
			start, high := int64(3), int64(6)
			if want != nil {
				start, high = -1, -1
			}
			if row.HighWatermark != high || row.LastStableOffset != high || (version >= 5 && row.LogStartOffset != start) {
				t.Errorf("v%d at %d: %+v, want high %d and start %d", version, offset, row, high, start)
			}
		}
	}
}

// C-02: the first batch is returned whole although it is larger than every limit; the others then have nothing left.
func TestFetchOfABatchLargerThanEveryLimit(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 3, nil)
	big := batchOf{value: strings.Repeat("x", 5000)}
	for range 2 {
		b.mustProduce("a", 1, big)
		b.mustProduce("a", 2, big)
	}
	for _, limits := range [][2]int32{{0, 1 << 20}, {1, 1}, {100, 1 << 20}, {1 << 20, 100}, {1 << 20, 0}, {-1, -1}} {
		r := b.fetchRequest(fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0}, fetchFrom{"a", 2, 0})
		r.MaxBytes = limits[0]
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].PartitionMaxBytes = limits[1]
		}
		var got []int
		for _, p := range b.fetch(12, r).Topics[0].Partitions {
			wantCode(t, "fetch", p.ErrorCode, nil)
			got = append(got, len(headersOf(t, p.RecordBatches)))
		}
		if !slices.Equal(got, []int{0, 1, 0}) {
			t.Errorf("max bytes %d, of a partition %d: %v batches, want 0 1 0", limits[0], limits[1], got)
		}
	}
}

// C-03: the budget over 50 partitions shrinks by what was really added, and nobody is served beyond it.
func TestFetchBudgetOverManyPartitions(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 50, nil)
	var from []fetchFrom
	size := 0
	for n := range int32(50) {
		for i := range 3 {
			s := batchOf{value: strings.Repeat("x", 900+int(n)+i)}
			size = len(s.bytes(t))
			b.mustProduce("a", n, s)
		}
		from = append(from, fetchFrom{"a", n, 0})
	}
	for _, c := range []struct{ max, partitionMax int32 }{{20_000, 1 << 20}, {40_000, 2100}, {1 << 20, 1100}, {1 << 20, 1 << 20}} {
		r := b.fetchRequest(from...)
		r.MaxBytes = c.max
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].PartitionMaxBytes = c.partitionMax
		}
		total, empty := 0, 0
		for _, p := range b.fetch(12, r).Topics[0].Partitions {
			wantCode(t, "fetch", p.ErrorCode, nil)
			if n := len(p.RecordBatches); n > int(c.partitionMax) {
				t.Errorf("%+v: partition %d has %d bytes", c, p.Partition, n)
			}
			headersOf(t, p.RecordBatches)
			total += len(p.RecordBatches)
			if len(p.RecordBatches) == 0 {
				empty++
			}
		}
		if total > int(c.max) {
			t.Errorf("%+v: %d bytes", c, total)
		}
		if full := int(c.max) - size - 100; total < full && empty > 0 {
			t.Errorf("%+v: only %d bytes, and %d partitions have none", c, total, empty)
		}
		if c.max == 1<<20 && empty > 0 {
			t.Errorf("%+v: %d partitions have nothing", c, empty)
		}
	}
}

// The broker's own fetch.max.bytes bounds what a client may ask.
func TestFetchMaxBytesOfTheBroker(t *testing.T) {
	b := newTestBroker(t, "fetch.max.bytes=3000")
	b.create("a", 1, nil)
	for range 10 {
		b.mustProduce("a", 0, batchOf{value: strings.Repeat("x", 900)})
	}
	if row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0})); len(headersOf(t, row.RecordBatches)) != 3 {
		t.Errorf("%d bytes, want 3 batches of about 970", len(row.RecordBatches))
	}
}

// C-22: a partition asked for twice has one row, by its last entry.
func TestFetchOfAPartitionTwice(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 2, nil)
	b.mustProduce("a", 0, batchOf{})
	b.mustProduce("a", 0, batchOf{})
	for _, version := range []int16{4, 12, 13} {
		r := b.fetchRequest(fetchFrom{"a", 0, 0}, fetchFrom{"a", 1, 0}, fetchFrom{"a", 0, 1})
		r.Topics = append(r.Topics, b.fetchRequest(fetchFrom{"a", 1, 5}).Topics...) // also in another entry of the topic
		rows := b.fetch(version, r).Topics[0].Partitions
		if len(rows) != 2 || len(headersOf(t, rows[0].RecordBatches)) != 1 {
			t.Fatalf("v%d: %+v", version, rows)
		}
		if at := headersOf(t, rows[0].RecordBatches)[0].BaseOffset; at != 1 {
			t.Errorf("v%d: the batch at %d, want 1", version, at)
		}
		wantCode(t, "the second", rows[1].ErrorCode, kerr.OffsetOutOfRange)
	}
}

// C-11, C-16: leader epochs and replica ids.
func TestFetchEpochsAndReplicas(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b = startTestBroker(t, b.disk.CrashCopy(testRand(1)), b.store)
	b.mustProduce("a", 0, batchOf{})
	term := b.leader("a", 0).row.Term
	for version := int16(9); version <= 18; version++ {
		for asked, want := range map[int32]*kerr.Error{-1: nil, term: nil, term - 1: kerr.FencedLeaderEpoch, term + 1: kerr.UnknownLeaderEpoch} {
			r := b.fetchRequest(fetchFrom{"a", 0, 0})
			r.Topics[0].Partitions[0].CurrentLeaderEpoch = asked
			row := b.fetchOne(version, r)
			wantCode(t, "fetch", row.ErrorCode, want)
			leader, leads := int32(-1), int32(-1) // told from v16 on, and not to those who know more than this broker
			if version >= 16 && want == kerr.FencedLeaderEpoch {
				leader, leads = 1, term
			}
			if version >= 12 && (row.CurrentLeader.LeaderID != leader || row.CurrentLeader.LeaderEpoch != leads) {
				t.Errorf("v%d: current leader %+v", version, row.CurrentLeader)
			}
			if want != nil && (row.HighWatermark != -1 || row.RecordBatches == nil || len(row.RecordBatches) > 0) {
				t.Errorf("v%d: %+v", version, row)
			}
		}
	}
	for version := int16(4); version <= 18; version++ {
		r := b.fetchRequest(fetchFrom{"a", 0, 0})
		r.ReplicaID, r.ReplicaState.ID = 2, 2
		row := b.fetchOne(version, r)
		wantCode(t, "a replica", row.ErrorCode, kerr.NotLeaderForPartition)
		if len(row.RecordBatches) > 0 {
			t.Errorf("v%d: a replica was given records", version)
		}
	}
}

// C-18, C-19, C-21: read_committed ends at the last stable offset and lists what was aborted.
func TestReadCommitted(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{}) // 0
	b.openTransaction("a", 7, 1)     // 1
	b.openTransaction("a", 8, 1)     // 2
	b.mustProduce("a", 0, batchOf{}) // 3
	read := func(version int16, isolation int8, offset int64) kmsg.FetchResponseTopicPartition {
		r := b.fetchRequest(fetchFrom{"a", 0, offset})
		r.IsolationLevel = isolation
		return b.fetchOne(version, r)
	}
	for version := int16(4); version <= 18; version++ {
		for _, c := range []struct {
			isolation int8
			offset    int64
			batches   int
		}{{0, 0, 4}, {1, 0, 1}, {1, 1, 0}, {1, 3, 0}, {1, 4, 0}, {0, 4, 0}} {
			row := read(version, c.isolation, c.offset)
			if row.ErrorCode != 0 || row.HighWatermark != 4 || row.LastStableOffset != 1 || len(headersOf(t, row.RecordBatches)) != c.batches {
				t.Errorf("v%d, isolation %d from %d: %+v, want %d batches", version, c.isolation, c.offset, row, c.batches)
			}
			if (c.isolation == 1) != (row.AbortedTransactions != nil) || len(row.AbortedTransactions) > 0 {
				t.Errorf("v%d, isolation %d: aborted list %v", version, c.isolation, row.AbortedTransactions)
			}
		}
		wantCode(t, "above the end", read(version, 1, 5).ErrorCode, kerr.OffsetOutOfRange)
	}
	b.endTransaction("a", 8, false) // 4
	if row := read(12, 1, 0); row.LastStableOffset != 1 {
		t.Errorf("the oldest transaction is open: last stable offset %d", row.LastStableOffset)
	}
	b.endTransaction("a", 7, false) // 5
	want := []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 1}, {ProducerID: 8, FirstOffset: 2}}
	for version := int16(4); version <= 18; version++ {
		row := read(version, 1, 0)
		same := slices.EqualFunc(row.AbortedTransactions, want, func(x, y kmsg.FetchResponseTopicPartitionAbortedTransaction) bool {
			return x.ProducerID == y.ProducerID && x.FirstOffset == y.FirstOffset
		})
		if !same || row.LastStableOffset != 6 || len(headersOf(t, row.RecordBatches)) != 6 {
			t.Errorf("v%d: %+v", version, row)
		}
	}
}

// C-12 without a session: a topic that was created anew under the same name is another one.
func TestFetchOfARecreatedTopic(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	r := b.fetchRequest(fetchFrom{"a", 0, 0})
	old := b.idOf("a")
	b.deleteTopics(t.Context(), []deletion{{name: new("a")}}, nil)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{})
	for version := int16(13); version <= 18; version++ {
		resp := b.fetch(version, r)
		row := resp.Topics[0].Partitions[0]
		wantCode(t, "the old id", row.ErrorCode, kerr.UnknownTopicID)
		if resp.Topics[0].TopicID != old || len(row.RecordBatches) > 0 || row.RecordBatches == nil {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
	wantCode(t, "by name", b.fetchOne(12, r).ErrorCode, nil)
	wantCode(t, "unknown name", b.fetchOne(12, b.fetchRequest(fetchFrom{"none", 0, 0})).ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "unknown partition", b.fetchOne(13, b.fetchRequest(fetchFrom{"a", 1, 0})).ErrorCode, kerr.UnknownTopicOrPartition)
}

// B-14: Fetch below version 10 is served zstd, as Kafka 4.4 does.
func TestFetchOfZstdInOldVersions(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	sent := batchOf{codec: codecZstd}.bytes(t)
	wantCode(t, "produce", b.produce(7, "a", 0, bytes.Clone(sent)).ErrorCode, nil)
	for version := int16(4); version <= 10; version++ {
		row := b.fetchOne(version, b.fetchRequest(fetchFrom{"a", 0, 0}))
		if row.ErrorCode != 0 || len(row.RecordBatches) != len(sent) {
			t.Errorf("v%d: %+v", version, row)
		}
	}
}

// C-17: where compaction left a gap, the next batch that is there comes.
func TestFetchInAGap(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{})
	lead := b.leader("a", 0)
	// A cleaned batch from 2 to 9 with its last records, as a replica would have it.
	cleaned := batchOf{}.bytes(t)
	cleaned[7], cleaned[15], cleaned[26] = 2, byte(lead.row.Term), 7
	if _, err := lead.log.AppendFollower(sealed(cleaned)); err != nil {
		t.Fatal(err)
	}
	b.awaitHigh(lead, 10)
	for offset, want := range map[int64]int64{1: 2, 2: 2, 6: 2, 9: 2, 0: 0} {
		row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, offset}))
		if batches := headersOf(t, row.RecordBatches); row.ErrorCode != 0 || len(batches) == 0 || batches[0].BaseOffset != want {
			t.Errorf("from %d: %+v, want the batch at %d", offset, row, want)
		}
	}
	if row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 10})); row.ErrorCode != 0 || len(row.RecordBatches) > 0 {
		t.Errorf("at the end: %+v", row)
	}
}
