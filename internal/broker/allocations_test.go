package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// measuredClient sends frames that were made before and reads answers into memory of its own: it allocates nothing, so
// that what is counted is the broker's.
type measuredClient struct {
	t    testing.TB
	conn net.Conn
	head [4]byte
	body []byte
}

func newMeasuredClient(t testing.TB, address string) *measuredClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &measuredClient{t: t, conn: conn, body: make([]byte, 1<<20)}
}

// call sends a frame and returns the answer behind its size, valid until the next call.
func (c *measuredClient) call(frame []byte) []byte {
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.ReadFull(c.conn, c.head[:]); err != nil {
		c.t.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(c.head[:]))
	if _, err := io.ReadFull(c.conn, c.body[:n]); err != nil {
		c.t.Fatal(err)
	}
	return c.body[:n]
}

// decode reads the answer to a flexible request.
func (c *measuredClient) decode(raw []byte, req kmsg.Request) kmsg.Response {
	c.t.Helper()
	resp := req.ResponseKind()
	raw = raw[4:]
	if resp.IsFlexible() {
		raw = raw[1:]
	}
	if err := resp.ReadFrom(raw); err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func frameOf(version int16, req kmsg.Request) []byte {
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 1)
}

// allocations is how many a call makes in steady state: the least of some rounds, since other goroutines run, too.
func allocations(call func()) float64 {
	const rounds, calls = 5, 200
	for range calls {
		call()
	}
	least := 0.0
	for round := range rounds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			call()
		}
		runtime.ReadMemStats(&after)
		if n := float64(after.Mallocs-before.Mallocs) / calls; round == 0 || n < least {
			least = n
		}
	}
	return least
}

// budget fails a test when a call makes more allocations than it may.
func budget(t *testing.T, what string, most float64, call func()) {
	t.Helper()
	n := allocations(call)
	t.Logf("%s: %.2f allocations, at most %.2f", what, n, most)
	if n > most && !raceDetector {
		t.Errorf("%s makes %.2f allocations, more than %.2f", what, n, most)
	}
}

// liveTopic makes a topic of a live broker and returns its id.
func liveTopic(t *testing.T, b *Broker, name string, partitions int) [16]byte {
	t.Helper()
	for _, err := range b.createTopics(t.Context(), []topicSpec{{name: name, partitions: int32(partitions), replication: -1}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	row, _ := b.catalog.Load().topicByName(name)
	return row.id
}

// produceFrame is a Produce of one batch to each partition of a topic.
func produceFrame(t *testing.T, name string, id [16]byte, partitions int) (*kmsg.ProduceRequest, []byte) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acksAll, 10_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = name, id
	for p := range partitions {
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = int32(p), batchOf{value: "some bytes"}.bytes(t)
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	return req, frameOf(13, req)
}

// TestProduceAllocations: from the socket to the socket, at most 4 for each batch where a request has several, in truth far
// less. A request has a price of its own, whatever is in it, which one with a single batch shows; single is its bound.
func TestProduceAllocations(t *testing.T) {
	for _, c := range []struct {
		name       string
		durability segstore.Durability
		single     float64
	}{{"relaxed", segstore.Relaxed, 7.5}, {"strict", segstore.Strict, 13}} {
		t.Run(c.name, func(t *testing.T) {
			b := startLiveOn(t, memDirectory(t), metatest.NewMemory(), c.durability)
			for _, batches := range []int{1, 10, 100} {
				name := fmt.Sprintf("t%d", batches)
				req, frame := produceFrame(t, name, liveTopic(t, b, name, batches), batches)
				client := newMeasuredClient(t, b.Addr("PLAINTEXT"))
				resp := client.decode(client.call(frame), req).(*kmsg.ProduceResponse)
				if rows := resp.Topics[0].Partitions; len(rows) != batches || rows[0].ErrorCode != 0 {
					t.Fatalf("%+v", rows)
				}
				most := c.single
				if batches > 1 {
					most = min(4*float64(batches), 3*c.single)
				}
				budget(t, fmt.Sprintf("a Produce of %d batches", batches), most, func() { client.call(frame) })
			}
		})
	}
}

// TestFetchAllocationsOnTheWire: at most 2 for each partition that has records, in a session and without one. What the
// request itself costs is beside it where partitions are few.
func TestFetchAllocationsOnTheWire(t *testing.T) {
	b := startLiveOn(t, memDirectory(t), metatest.NewMemory(), segstore.Relaxed)
	for _, c := range []struct {
		partitions int
		most       float64
	}{{1, 17}, {10, 33}, {100, 200}} {
		name := fmt.Sprintf("t%d", c.partitions)
		id := liveTopic(t, b, name, c.partitions)
		client := newMeasuredClient(t, b.Addr("PLAINTEXT"))
		_, produce := produceFrame(t, name, id, c.partitions)
		client.call(produce)

		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.MinBytes, req.SessionEpoch = 50<<20, 1, -1
		topic := kmsg.NewFetchRequestTopic()
		topic.TopicID = id
		for p := range c.partitions {
			part := kmsg.NewFetchRequestTopicPartition()
			part.Partition, part.PartitionMaxBytes = int32(p), 1<<20
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Topics = append(req.Topics, topic)
		whole := func(raw []byte) *kmsg.FetchResponse {
			resp := client.decode(raw, req).(*kmsg.FetchResponse)
			if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != c.partitions || len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
				t.Fatalf("%+v", resp)
			}
			return resp
		}
		frame := frameOf(17, req)
		whole(client.call(frame))
		budget(t, fmt.Sprintf("a Fetch of %d partitions without a session", c.partitions), c.most, func() { client.call(frame) })

		req.SessionEpoch = 0
		req.SessionID, req.Topics = whole(client.call(frameOf(17, req))).SessionID, nil
		frame = frameOf(17, req)
		// The epoch is behind the header (size, key, version, correlation id, client id, tags) and MaxWait, MinBytes,
		// MaxBytes, IsolationLevel and SessionID of version 17.
		epoch := frame[4+2+2+4+2+len("test")+1+4+4+4+1+4:]
		next := uint32(0)
		again := func() {
			next++
			binary.BigEndian.PutUint32(epoch, next)
			client.call(frame)
		}
		again()
		next++
		binary.BigEndian.PutUint32(epoch, next)
		whole(client.call(frame))
		budget(t, fmt.Sprintf("a Fetch of %d partitions in a session", c.partitions), c.most, again)
	}
}

// TestGroupAllocations: what Heartbeat and OffsetCommit allocate from the socket to the socket. The bounds are what was
// measured when they were written, and little more; those of OffsetCommit have the store in memory in them.
func TestGroupAllocations(t *testing.T) {
	b := startLiveOn(t, memDirectory(t), metatest.NewMemory(), segstore.Strict, "group.initial.rebalance.delay.ms=0")
	id := liveTopic(t, b, "t", 100)
	client := newMeasuredClient(t, b.Addr("PLAINTEXT"))

	join := joinRequest("g", "")
	joined := client.decode(client.call(frameOf(9, join)), join).(*kmsg.JoinGroupResponse)
	join.MemberID = joined.MemberID
	joined = client.decode(client.call(frameOf(9, join)), join).(*kmsg.JoinGroupResponse)
	wantCode(t, "join", joined.ErrorCode, nil)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "g", joined.MemberID, joined.Generation
	sync.ProtocolType, sync.Protocol = joined.ProtocolType, joined.Protocol
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte{1}}}
	wantCode(t, "sync", client.decode(client.call(frameOf(5, sync)), sync).(*kmsg.SyncGroupResponse).ErrorCode, nil)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = "g", joined.MemberID, joined.Generation
	frame := frameOf(4, beat)
	wantCode(t, "heartbeat", client.decode(client.call(frame), beat).(*kmsg.HeartbeatResponse).ErrorCode, nil)
	budget(t, "a Heartbeat", 18, func() { client.call(frame) })

	for partitions, most := range map[int]float64{1: 72, 100: 560} {
		commit := kmsg.NewPtrOffsetCommitRequest()
		commit.Group, commit.Generation = fmt.Sprintf("alone-%d", partitions), -1
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = "t", id
		for p := range partitions {
			part := kmsg.NewOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset = int32(p), 7
			topic.Partitions = append(topic.Partitions, part)
		}
		commit.Topics = append(commit.Topics, topic)
		frame := frameOf(10, commit)
		rows := client.decode(client.call(frame), commit).(*kmsg.OffsetCommitResponse).Topics[0].Partitions
		if len(rows) != partitions || rows[0].ErrorCode != 0 {
			t.Fatalf("%+v", rows)
		}
		budget(t, fmt.Sprintf("an OffsetCommit of %d partitions", partitions), most, func() { client.call(frame) })
	}
}
