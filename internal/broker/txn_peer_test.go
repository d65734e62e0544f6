package broker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnPeer is a client that says what no client library would: to this broker, or to a real Kafka, whose codes are
// recorded in the stories.
type txnPeer struct {
	t       *testing.T
	addr    string
	kafka   bool
	suffix  string // makes the names of one run of its own
	topic   string // of the story, four partitions
	topicID [16]byte
	conn    net.Conn
	in      *bufio.Reader
}

func (p *txnPeer) dial() {
	p.t.Helper()
	conn, err := net.DialTimeout("tcp", p.addr, 5*time.Second)
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn, p.in = conn, bufio.NewReader(conn)
	p.t.Cleanup(func() { conn.Close() })
}

// askPeer sends a request in a version and reads the answer.
func askPeer[R kmsg.Response](p *txnPeer, version int16, req kmsg.Request) R {
	p.t.Helper()
	req.SetVersion(version)
	if err := p.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		p.t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(p.in, size[:]); err != nil {
		p.t.Fatalf("%T v%d: %v", req, version, err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(p.in, body); err != nil {
		p.t.Fatal(err)
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	header := 4
	if resp.IsFlexible() {
		header = 5
	}
	if err := resp.ReadFrom(body[header:]); err != nil {
		p.t.Fatal(err)
	}
	return resp.(R)
}

// is compares a code with Kafka's; here, where it is given, is this broker's.
func (p *txnPeer) is(what string, got, kafka int16, here ...int16) {
	p.t.Helper()
	want := kafka
	if len(here) > 0 && !p.kafka {
		want = here[0]
	}
	if got != want {
		p.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// again repeats what a client repeats: coordinators that load, and Kafka's CONCURRENT_TRANSACTIONS.
func (p *txnPeer) again(f func() int16) int16 {
	p.t.Helper()
	for range 400 {
		code := f()
		if !slices.Contains([]int16{14, 15, 16, 51}, code) {
			return code
		}
		if !p.kafka {
			p.t.Errorf("code %d from a healthy broker", code)
		}
		time.Sleep(25 * time.Millisecond) // only against a real Kafka
	}
	p.t.Fatal("never ready")
	return 0
}

// begin makes the story's topic, and coordinators ready.
func (p *txnPeer) begin(name string) {
	p.topic = name + p.suffix
	r := kmsg.NewPtrCreateTopicsRequest()
	r.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = p.topic, 4, 1
	r.Topics = append(r.Topics, topic)
	made := askPeer[*kmsg.CreateTopicsResponse](p, 7, r).Topics[0]
	p.is("create the topic", made.ErrorCode, 0)
	p.topicID = made.TopicID
	for kind := range int8(2) {
		p.again(func() int16 {
			f := kmsg.NewPtrFindCoordinatorRequest()
			f.CoordinatorType, f.CoordinatorKeys = kind, []string{p.id("x")}
			return askPeer[*kmsg.FindCoordinatorResponse](p, 4, f).Coordinators[0].ErrorCode
		})
	}
	p.again(func() int16 { // until all partitions have leaders
		f := kmsg.NewPtrListOffsetsRequest()
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = p.topic
		for n := range int32(4) {
			row := kmsg.NewListOffsetsRequestTopicPartition()
			row.Partition, row.Timestamp = n, -1
			t.Partitions = append(t.Partitions, row)
		}
		f.Topics = append(f.Topics, t)
		for _, row := range askPeer[*kmsg.ListOffsetsResponse](p, 7, f).Topics[0].Partitions {
			if row.ErrorCode != 0 {
				return 15
			}
		}
		return 0
	})
}

// id is a transactional or group id of this run.
func (p *txnPeer) id(name string) string { return name + p.suffix + p.topic }

// who is a producer as it knows itself.
type who struct {
	id    string
	pid   int64
	epoch int16
}

func (w who) of(epoch int16) who { w.epoch = epoch; return w }
func (w who) other() who         { w.pid += 1_000_000; return w }

func (p *txnPeer) initRaw(version int16, id string, pid int64, epoch int16, timeoutMs int32) *kmsg.InitProducerIDResponse {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &id, timeoutMs, pid, epoch
	return askPeer[*kmsg.InitProducerIDResponse](p, version, r)
}

// init begins an incarnation.
func (p *txnPeer) init(name string, timeoutMs int32) who {
	p.t.Helper()
	w := who{id: p.id(name)}
	p.is("InitProducerId", p.again(func() int16 {
		r := p.initRaw(4, w.id, -1, -1, timeoutMs)
		w.pid, w.epoch = r.ProducerID, r.ProducerEpoch
		return r.ErrorCode
	}), 0)
	return w
}

func (p *txnPeer) add(version int16, w who, partitions ...int32) (codes []int16) {
	p.t.Helper()
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = p.topic, partitions
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Topics = w.id, w.pid, w.epoch, append(r.Topics, t)
	p.again(func() int16 {
		codes = nil
		rows := askPeer[*kmsg.AddPartitionsToTxnResponse](p, version, r).Topics[0].Partitions
		slices.SortFunc(rows, func(a, b kmsg.AddPartitionsToTxnResponseTopicPartition) int { return int(a.Partition - b.Partition) })
		for _, row := range rows {
			codes = append(codes, row.ErrorCode)
		}
		return codes[0]
	})
	return codes
}

func (p *txnPeer) addOffsets(version int16, w who, group string) int16 {
	p.t.Helper()
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = w.id, w.pid, w.epoch, group
	return p.again(func() int16 { return askPeer[*kmsg.AddOffsetsToTxnResponse](p, version, r).ErrorCode })
}

func (p *txnPeer) end(version int16, w who, commit bool) *kmsg.EndTxnResponse {
	p.t.Helper()
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = w.id, w.pid, w.epoch, commit
	var resp *kmsg.EndTxnResponse
	p.again(func() int16 {
		resp = askPeer[*kmsg.EndTxnResponse](p, version, r)
		return resp.ErrorCode
	})
	return resp
}

// produce sends one record of a transaction.
func (p *txnPeer) produce(version int16, w who, partition, sequence int32) int16 {
	p.t.Helper()
	batch := batchOf{producer: w.pid + 1, epoch: w.epoch, sequence: sequence, attrs: attrTransactional, value: "v"}
	return p.produceRaw(version, &w.id, p.topic, partition, batch.bytes(p.t))
}

func (p *txnPeer) produceRaw(version int16, id *string, topic string, partition int32, raw []byte) int16 {
	p.t.Helper()
	row := kmsg.NewProduceRequestTopicPartition()
	row.Partition, row.Records = partition, raw
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, p.topicID, append(t.Partitions, row)
	r := kmsg.NewPtrProduceRequest()
	r.TransactionID, r.Acks, r.TimeoutMillis, r.Topics = id, -1, 10_000, append(r.Topics, t)
	return p.again(func() int16 { return askPeer[*kmsg.ProduceResponse](p, version, r).Topics[0].Partitions[0].ErrorCode })
}

// member is who commits offsets in a transaction.
type member struct {
	id         string
	instance   *string
	generation int32
}

var nobody = member{generation: -1}

func (p *txnPeer) offsets(version int16, w who, group string, m member, partition int32, offset int64) int16 {
	p.t.Helper()
	return p.offsetsOf(version, w, group, m, p.topic, p.topicID, partition, offset)
}

func (p *txnPeer) offsetsOf(version int16, w who, group string, m member, topic string, topicID [16]byte, partition int32, offset int64) int16 {
	p.t.Helper()
	row := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	row.Partition, row.Offset = partition, offset
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, topicID, append(t.Partitions, row)
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = w.id, w.pid, w.epoch, group
	r.MemberID, r.InstanceID, r.Generation, r.Topics = m.id, m.instance, m.generation, append(r.Topics, t)
	return p.again(func() int16 {
		return askPeer[*kmsg.TxnOffsetCommitResponse](p, version, r).Topics[0].Partitions[0].ErrorCode
	})
}

// fetch is an offset of the group as a reader of stable offsets sees it.
func (p *txnPeer) fetch(group string, partition int32) (offset int64, code int16) {
	p.t.Helper()
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic, t.Partitions = p.topic, []int32{partition}
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group, r.RequireStable, r.Topics = group, true, append(r.Topics, t)
	row := askPeer[*kmsg.OffsetFetchResponse](p, 7, r).Topics[0].Partitions[0]
	return row.Offset, row.ErrorCode
}

// describe is DescribeTransactions of one id.
func (p *txnPeer) describe(id string) kmsg.DescribeTransactionsResponseTransactionState {
	p.t.Helper()
	r := kmsg.NewPtrDescribeTransactionsRequest()
	r.TransactionalIDs = []string{id}
	return askPeer[*kmsg.DescribeTransactionsResponse](p, 0, r).TransactionStates[0]
}

// list is ListTransactions, of this run's ids; what it returns is "id:state", sorted.
func (p *txnPeer) list(version int16, filter func(*kmsg.ListTransactionsRequest)) (found []string, resp *kmsg.ListTransactionsResponse) {
	p.t.Helper()
	r := kmsg.NewPtrListTransactionsRequest()
	r.DurationFilterMillis = -1
	filter(r)
	resp = askPeer[*kmsg.ListTransactionsResponse](p, version, r)
	for _, s := range resp.TransactionStates {
		name, ours := strings.CutSuffix(s.TransactionalID, p.id(""))
		if ours {
			found = append(found, fmt.Sprint(name, ":", s.TransactionState))
		}
	}
	slices.Sort(found)
	return found, resp
}

// producers is DescribeProducers of a partition.
func (p *txnPeer) producers(topic string, partition int32) kmsg.DescribeProducersResponseTopicPartition {
	p.t.Helper()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	r := kmsg.NewPtrDescribeProducersRequest()
	r.Topics = append(r.Topics, t)
	return askPeer[*kmsg.DescribeProducersResponse](p, 0, r).Topics[0].Partitions[0]
}

// mark is WriteTxnMarkers for one partition.
func (p *txnPeer) mark(version int16, w who, partition int32, commit bool) int16 {
	p.t.Helper()
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = p.topic, []int32{partition}
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch, m.Topics = w.pid, w.epoch, commit, 0, append(m.Topics, t)
	r := kmsg.NewPtrWriteTxnMarkersRequest()
	r.Markers = append(r.Markers, m)
	return askPeer[*kmsg.WriteTxnMarkersResponse](p, version, r).Markers[0].Topics[0].Partitions[0].ErrorCode
}
