package broker

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
)

// recordBatch is one batch of n records without keys, each with the same value.
func recordBatch(n int, value string) []byte {
	var records []byte
	for i := range n {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(value)}
		body := r.AppendTo(nil)[1:] // without the zero length
		r.Length = int32(len(body))
		records = append(binary.AppendVarint(records, int64(r.Length)), body...)
	}
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: records,
	}
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// append writes one batch of n records and waits until it is below the high watermark.
func (b *testBroker) append(topic string, partition int32, n int) segstore.Appended {
	b.t.Helper()
	lead := b.leader(topic, partition)
	batch, err := segstore.ParseBatch(recordBatch(n, "value"))
	if err != nil {
		b.t.Fatal(err)
	}
	done, err := lead.log.AppendLeader(batch, lead.row.Term)
	if err != nil {
		b.t.Fatal(err)
	}
	woken := make(chan struct{})
	cancel := lead.log.Watch(segstore.BoundHigh, done.LastOffset+1, func() { close(woken) })
	defer cancel()
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		b.t.Fatal("the high watermark does not move")
	}
	return done
}

func deleteRecordsRequest(topic string, offsets map[int32]int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	for p := int32(0); p < 100; p++ {
		if offset, ok := offsets[p]; ok {
			t.Partitions = append(t.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Partition: p, Offset: offset})
		}
	}
	req.Topics = append(req.Topics, t)
	return req
}

// Row G-11: the steps follow each other on one partition of ten records.
func TestDeleteRecords(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.append("a", 0, 4)
	b.append("a", 0, 6)
	outOfRange := code(kerr.OffsetOutOfRange)
	for i, step := range []struct {
		offset, low int64
		code        int16
	}{
		{0, 0, 0},
		{3, 3, 0},
		{1, 3, 0}, // below the start: nothing to do
		{11, -1, outOfRange},
		{-2, -1, outOfRange},
		{-1, 10, 0},
		{10, 10, 0},
	} {
		resp := ask[*kmsg.DeleteRecordsResponse](b, b.handleDeleteRecords, int16(i%3), deleteRecordsRequest("a", map[int32]int64{0: step.offset}))
		row := resp.Topics[0].Partitions[0]
		if row.LowWatermark != step.low || row.ErrorCode != step.code {
			t.Errorf("step %d, offset %d: low watermark %d code %d, want %d and %d", i, step.offset, row.LowWatermark, row.ErrorCode, step.low, step.code)
		}
	}
	if o := b.leader("a", 0).log.Offsets(); o.Start != 10 || o.End != 10 {
		t.Errorf("offsets are %+v", o)
	}
	b.append("a", 0, 1) // row G-12: the log goes on after its tail was deleted
}

func TestDeleteRecordsRefuses(t *testing.T) {
	b := newTestBroker(t)
	b.create("compacted", 1, map[string]string{"cleanup.policy": "compact"})
	for _, c := range []struct {
		topic     string
		partition int32
		want      int16
	}{
		{"compacted", 0, code(kerr.PolicyViolation)},
		{"compacted", 1, code(kerr.UnknownTopicOrPartition)},
		{"unknown", 0, code(kerr.UnknownTopicOrPartition)},
		{"__consumer_offsets", 0, code(kerr.InvalidTopicException)},
	} {
		resp := ask[*kmsg.DeleteRecordsResponse](b, b.handleDeleteRecords, 2, deleteRecordsRequest(c.topic, map[int32]int64{c.partition: 0}))
		if row := resp.Topics[0].Partitions[0]; row.ErrorCode != c.want || row.LowWatermark != -1 {
			t.Errorf("%s-%d: %+v, want code %d", c.topic, c.partition, row, c.want)
		}
	}
}

// Row G-16.
func TestDescribeLogDirs(t *testing.T) {
	b := newTestBroker(t)
	b.create("b", 2, nil)
	b.create("a", 1, nil)
	b.append("b", 1, 100)
	describe := func(version int16, topics []kmsg.DescribeLogDirsRequestTopic) kmsg.DescribeLogDirsResponseDir {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = topics
		resp := ask[*kmsg.DescribeLogDirsResponse](b, b.handleDescribeLogDirs, version, req)
		if resp.ErrorCode != 0 || len(resp.Dirs) != 1 || resp.Dirs[0].Dir != "/log" || resp.Dirs[0].ErrorCode != 0 {
			t.Fatalf("v%d: %+v", version, resp)
		}
		return resp.Dirs[0]
	}
	for version := int16(1); version <= 5; version++ {
		dir := describe(version, nil)
		if len(dir.Topics) != 2 || dir.Topics[0].Topic != "a" || len(dir.Topics[1].Partitions) != 2 {
			t.Fatalf("v%d: %+v", version, dir.Topics)
		}
		p := dir.Topics[1].Partitions[1]
		if p.Partition != 1 || p.Size != b.leader("b", 1).log.Size() || p.Size == 0 {
			t.Errorf("v%d: %+v, want %d bytes", version, p, b.leader("b", 1).log.Size())
		}
		if version >= 4 && (dir.TotalBytes <= 0 || dir.UsableBytes <= 0 || dir.UsableBytes > dir.TotalBytes) {
			t.Errorf("v%d: %d of %d bytes usable", version, dir.UsableBytes, dir.TotalBytes)
		}
	}
	if dir := describe(4, []kmsg.DescribeLogDirsRequestTopic{}); len(dir.Topics) != 0 {
		t.Errorf("no topics asked: %+v", dir.Topics)
	}
	dir := describe(4, []kmsg.DescribeLogDirsRequestTopic{{Topic: "b", Partitions: []int32{0, 7}}, {Topic: "unknown", Partitions: []int32{0}}})
	if len(dir.Topics) != 1 || len(dir.Topics[0].Partitions) != 1 || dir.Topics[0].Partitions[0].Partition != 0 {
		t.Errorf("a filter: %+v", dir.Topics)
	}
}

func TestDescribeCluster(t *testing.T) {
	b := newTestBroker(t)
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = 1
		resp := ask[*kmsg.DescribeClusterResponse](b, b.handleDescribeCluster, version, req)
		if resp.ErrorCode != 0 || resp.ClusterID != b.ClusterID() || resp.ControllerID != 1 {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
	for kind, want := range map[int8]int16{2: code(kerr.MismatchedEndpointType), 9: code(kerr.UnsupportedEndpointType)} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = kind
		resp := ask[*kmsg.DescribeClusterResponse](b, b.handleDescribeCluster, 2, req)
		if resp.ErrorCode != want || resp.ErrorMessage == nil || len(resp.Brokers) != 0 {
			t.Errorf("endpoint type %d: %+v, want code %d", kind, resp, want)
		}
	}
}

func TestSASLHandshakeIsRefusedPolitely(t *testing.T) {
	b := newTestBroker(t)
	for version := int16(0); version <= 1; version++ {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Mechanism = "PLAIN"
		resp := ask[*kmsg.SASLHandshakeResponse](b, b.handleSASLHandshake, version, req)
		if resp.ErrorCode != code(kerr.IllegalSaslState) || len(resp.SupportedMechanisms) != 0 {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
}
