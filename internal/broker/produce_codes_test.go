package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// codesTopics are the topics of the cases, with their properties.
var codesTopics = map[string]map[string]string{
	"plain":         nil,
	"small":         {"max.message.bytes": "1000"},
	"segment":       {"segment.bytes": "1048576", "max.message.bytes": "3000000"},
	"compact":       {"cleanup.policy": "compact"},
	"append-time":   {"message.timestamp.type": "LogAppendTime"},
	"young":         {"message.timestamp.before.max.ms": "3600000"},
	"to-gzip":       {"compression.type": "gzip"},
	"to-zstd":       {"compression.type": "zstd"},
	"to-plain":      {"compression.type": "uncompressed"},
	"plain-small":   {"compression.type": "uncompressed", "max.message.bytes": "1000"},
	"gzip-small":    {"compression.type": "gzip", "max.message.bytes": "1000"},
	"gzip-compact":  {"compression.type": "gzip", "cleanup.policy": "compact"},
	"inflate-1000":  {"max.decompressed.message.bytes": "1000"},
	"plain-inflate": {"compression.type": "uncompressed", "max.decompressed.message.bytes": "1000"},
}

// codesCase is a batch that a producer may send by fault or by malice, and what is answered.
type codesCase struct {
	name  string
	topic string
	raw   []byte
	kafka outcome  // of Kafka 4.4.0
	here  *outcome // where it is not Kafka's: see docs/deviations.md
}

// noAnswer stands for a request that Kafka fails on and never answers.
const noAnswer = -100

// outcome is an error code and the indexes in record_errors.
type outcome struct {
	code    int16
	records []int32
}

func (o outcome) equal(p outcome) bool { return o.code == p.code && slices.Equal(o.records, p.records) }

func at(code int16, records ...int32) outcome { return outcome{code, records} }

func here(code int16, records ...int32) *outcome { return &outcome{code, records} }

// packed is a batch whose header says count records and whose payload is what deflate makes of plain.
func packed(t testing.TB, codec int16, plain []byte, count int32) []byte {
	return headed(codec, deflate(t, codec, plain), count)
}

// headed is a batch with a good CRC and any payload.
func headed(codec int16, payload []byte, count int32) []byte {
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{Magic: 2, Attributes: codec, LastOffsetDelta: count - 1, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: count, Records: payload}
	return sealed(b.AppendTo(nil))
}

// recordsOf are n plain records with keys.
func recordsOf(n int) []byte {
	var plain []byte
	for i := range n {
		plain = append(plain, oneRecord(kmsg.Record{OffsetDelta: int32(i), Key: []byte("key"), Value: []byte("value")})...)
	}
	return plain
}

func oneRecord(r kmsg.Record) []byte {
	body := r.AppendTo(nil)[1:] // without the zero length
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

// changed gives the bytes to a function that changes them.
func changed(raw []byte, change func(raw []byte) []byte) []byte { return change(raw) }

func resealed(raw []byte, place int, value ...byte) []byte {
	copy(raw[place:], value)
	return sealed(raw)
}

// TestProduceCodes: each batch gets the code and the record errors of Kafka 4.4.0 and, if it is refused, leaves nothing
// in the log. The column kafka was recorded from an Apache Kafka 4.4.0: TestRecordedProduceCodes asks one again.
func TestProduceCodes(t *testing.T) {
	b := newTestBroker(t)
	for name, configs := range codesTopics {
		b.create(name, 1, configs)
	}
	for _, c := range produceCases(t) {
		t.Run(c.topic+"/"+c.name, func(t *testing.T) {
			want := c.kafka
			if c.here != nil {
				want = *c.here
			}
			before := b.leader(c.topic, 0).log.Offsets().End
			for _, version := range []int16{7, 8, 13} {
				checkOutcome(t, version, b.produce(version, c.topic, 0, bytes.Clone(c.raw)), want)
			}
			if end := b.leader(c.topic, 0).log.Offsets().End; want.code != 0 && end != before {
				t.Errorf("the log ends at %d, was %d", end, before)
			}
		})
	}
}

func produceCases(t *testing.T) []codesCase { return append(codesOfHeaders(t), codesOfRecords(t)...) }

func checkOutcome(t *testing.T, version int16, row kmsg.ProduceResponseTopicPartition, want outcome) {
	t.Helper()
	got := outcomeOf(row)
	if got.code != want.code || version >= 8 && !got.equal(want) {
		t.Errorf("v%d: %v (%s), want %v", version, got, text(row.ErrorMessage), want)
	}
	if got.code == 0 {
		return
	}
	if row.BaseOffset != -1 || row.LogAppendTime != -1 || row.LogStartOffset > 0 { // what the log refuses tells its start
		t.Errorf("v%d: offsets %+v, want -1", version, row)
	}
	if version >= 8 && text(row.ErrorMessage) == "" { // v7 has none
		t.Errorf("v%d: no message", version)
	}
	for _, r := range row.ErrorRecords {
		if text(r.ErrorMessage) == "" {
			t.Errorf("v%d: no message for record %d", version, r.RelativeOffset)
		}
	}
}

// TestRecordedProduceCodes compares what is recorded with what the Kafka at PGBROKER_TEST_KAFKA=host:port says, if there
// is one (test/compat/kafka/serve runs it).
func TestRecordedProduceCodes(t *testing.T) {
	addr := os.Getenv("PGBROKER_TEST_KAFKA")
	if addr == "" {
		t.Skip("PGBROKER_TEST_KAFKA is not set; TestProduceCodes has what was recorded")
	}
	kafka := &kafkaConn{addr: addr}
	kafka.dial(t)
	defer func() { kafka.conn.Close() }()
	kafka.createTopics(t)
	for _, c := range produceCases(t) {
		row := kafka.produce(t, 9, c.topic, c.raw)
		if got := outcomeOf(row); !got.equal(c.kafka) {
			t.Errorf("%s/%s: Kafka says %d %v (%s), recorded was %v", c.topic, c.name, got.code, got.records, text(row.ErrorMessage), c.kafka)
		}
	}
}

func outcomeOf(row kmsg.ProduceResponseTopicPartition) outcome {
	o := outcome{code: row.ErrorCode}
	for _, r := range row.ErrorRecords {
		o.records = append(o.records, r.RelativeOffset)
	}
	return o
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// kafkaConn is a connection to a real Kafka that can send what no client library would.
type kafkaConn struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func (k *kafkaConn) dial(t *testing.T) {
	conn, err := net.DialTimeout("tcp", k.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	k.conn, k.in = conn, bufio.NewReader(conn)
}

// createTopics makes the topics of the cases where they are not there yet.
func (k *kafkaConn) createTopics(t *testing.T) {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 10_000
	for name, configs := range codesTopics {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
		for key, value := range configs {
			topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: &value})
		}
		create.Topics = append(create.Topics, topic)
	}
	create.SetVersion(7)
	resp := create.ResponseKind().(*kmsg.CreateTopicsResponse)
	if !k.ask(t, create, resp) {
		t.Fatal("no answer to CreateTopics")
	}
	for _, topic := range resp.Topics {
		if topic.ErrorCode != 0 && topic.ErrorCode != 36 { // exists already
			t.Fatalf("create %s: %d %s", topic.Topic, topic.ErrorCode, text(topic.ErrorMessage))
		}
	}
}

// ask sends a request and reads its answer; both are flexible versions. False: there is none, and the connection is a
// new one.
func (k *kafkaConn) ask(t *testing.T, req kmsg.Request, resp kmsg.Response) bool {
	t.Helper()
	if err := k.conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(k.in, size[:]); err != nil {
		k.conn.Close()
		k.dial(t)
		return false
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(k.in, body); err != nil {
		t.Fatal(err)
	}
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body[5:]); err != nil { // correlation id, no tags
		t.Fatal(err)
	}
	return true
}

// produce writes to partition 0, again while a new topic has no leader.
func (k *kafkaConn) produce(t *testing.T, version int16, topic string, raw []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = acksAll, 10_000
	to := kmsg.NewProduceRequestTopic()
	to.Topic = topic
	to.Partitions = []kmsg.ProduceRequestTopicPartition{{Records: raw}}
	req.Topics = append(req.Topics, to)
	for range 100 {
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		if !k.ask(t, req, resp) {
			return kmsg.ProduceResponseTopicPartition{ErrorCode: noAnswer}
		}
		row := resp.Topics[0].Partitions[0]
		if row.ErrorCode != 3 && row.ErrorCode != 6 {
			return row
		}
		time.Sleep(50 * time.Millisecond) // only against a real Kafka, which says nothing when it is ready
	}
	t.Fatal(fmt.Errorf("%s has no leader", topic))
	panic("unreachable")
}

// codesOfHeaders: what can be seen without the records.
func codesOfHeaders(t *testing.T) []codesCase {
	hour := time.Hour.Milliseconds()
	now := time.Now().UnixMilli()
	good := batchOf{value: "value"}
	three := batchOf{times: []int64{now, now, now}}
	count := func(s batchOf, n int32) []byte {
		raw := s.bytes(t)
		binary.BigEndian.PutUint32(raw[atRecordCount:], uint32(n))
		return sealed(raw)
	}
	lastDelta := func(n int32) []byte {
		raw := three.bytes(t)
		binary.BigEndian.PutUint32(raw[23:], uint32(n))
		return sealed(raw)
	}
	length := func(n int32) []byte {
		raw := good.bytes(t)
		binary.BigEndian.PutUint32(raw[atBatchLength:], uint32(n))
		return raw
	}
	as := func(magic byte) []byte { return resealed(good.bytes(t), 16, magic) }
	return []codesCase{
		// B-16
		{"larger than max.message.bytes", "small", batchOf{value: strings.Repeat("x", 1000)}.bytes(t), at(10), nil},
		{"compressed but still larger", "small", batchOf{codec: 1, value: string(noise(1200))}.bytes(t), at(10), nil},
		{"larger once it is inflated", "plain-small", batchOf{codec: 1, value: strings.Repeat("x", 2000)}.bytes(t), at(10), nil},
		{"larger before it is compressed", "gzip-small", batchOf{value: strings.Repeat("x", 2000)}.bytes(t), at(10), nil},
		{"larger than a segment", "segment", batchOf{value: strings.Repeat("x", 1048576)}.bytes(t), at(18), nil},
		// B-21
		{"over an hour ahead", "plain", batchOf{times: []int64{now, now + hour + 60_000}}.bytes(t), at(32, 1), nil},
		{"over an hour ahead, several", "plain", batchOf{times: []int64{now + 2*hour, now, now + 2*hour}}.bytes(t), at(32, 0, 2), nil},
		{"nanoseconds", "plain", batchOf{times: []int64{now * 1e6}}.bytes(t), at(32, 0), nil},
		{"compressed, over an hour ahead", "plain", batchOf{codec: 1, times: []int64{now, now + 2*hour}}.bytes(t), at(32, 1), nil},
		{"recompressed, over an hour ahead", "to-zstd", batchOf{codec: 1, times: []int64{now, now + 2*hour}}.bytes(t), at(32, 1), nil},
		{"too old", "young", batchOf{times: []int64{now, now - 2*hour}}.bytes(t), at(32, 1), nil},
		{"too old, compressed", "young", batchOf{codec: 4, times: []int64{now, now - 2*hour}}.bytes(t), at(32, 1), nil},
		{"far ahead", "append-time", batchOf{times: []int64{now * 1000}}.bytes(t), at(0), nil},
		{"far ahead, compressed", "append-time", batchOf{codec: 1, times: []int64{now * 1000}}.bytes(t), at(0), nil},
		{"the type LogAppendTime", "append-time", batchOf{attrs: 8}.bytes(t), at(32, 0), nil},
		{"the type LogAppendTime, compressed", "append-time", batchOf{attrs: 8, codec: 1}.bytes(t), at(32, 0), nil},
		{"the type LogAppendTime", "plain", batchOf{attrs: 8}.bytes(t), at(0), nil},
		{"the type LogAppendTime, compressed", "plain", batchOf{attrs: 8, codec: 1}.bytes(t), at(0), nil},
		{"no largest time", "plain", resealed(good.bytes(t), 35, 255, 255, 255, 255, 255, 255, 255, 255), at(0), nil},
		{"no largest time, compressed", "plain", resealed(batchOf{codec: 1}.bytes(t), 35, 255, 255, 255, 255, 255, 255, 255, 255), at(0), nil},
		{"a largest time in the future", "plain", resealed(good.bytes(t), 35, 127), at(0), nil},
		{"a largest time in the future, compressed", "plain", resealed(batchOf{codec: 1}.bytes(t), 35, 127), at(0), nil},
		// B-26
		{"bad CRC", "plain", changed(good.bytes(t), func(raw []byte) []byte { raw[len(raw)-1] ^= 1; return raw }), at(2), nil},
		{"length too small", "plain", length(20), at(2), nil},
		{"length negative", "plain", length(-5), at(2), nil},
		{"length beyond the field", "plain", length(1 << 30), at(87), nil},
		{"truncated", "plain", changed(good.bytes(t), func(raw []byte) []byte { return raw[:len(raw)-3] }), at(87), nil},
		{"two batches", "plain", append(good.bytes(t), good.bytes(t)...), at(87), nil},
		{"a byte too many", "plain", append(good.bytes(t), 0), at(0), here(87)},
		{"a few bytes", "plain", []byte{1, 2, 3}, at(87), nil},
		{"no bytes", "plain", []byte{}, at(87), nil},
		{"null records", "plain", nil, at(noAnswer), here(87)},
		{"base offset not 0", "plain", changed(good.bytes(t), func(raw []byte) []byte { raw[7] = 1; return raw }), at(87), nil},
		{"count too high", "plain", count(three, 4), at(87), nil},
		{"count too low", "plain", count(three, 2), at(87), nil},
		{"count negative", "plain", count(three, -1), at(87), nil},
		{"count giant", "plain", count(three, 1<<31-1), at(87), nil},
		{"count zero", "plain", count(three, 0), at(87), nil},
		{"count too high, compressed", "plain", count(batchOf{codec: 1, times: three.times}, 4), at(87), nil},
		{"last offset delta too high", "plain", lastDelta(3), at(87), nil},
		{"last offset delta negative", "plain", lastDelta(-1), at(87), nil},
		{"codec 5", "plain", resealed(good.bytes(t), 22, 5), at(-1), here(87)},
		{"codec 7", "to-gzip", resealed(good.bytes(t), 22, 7), at(-1), here(87)},
		// B-27
		{"a control batch", "plain", batchOf{attrs: 0x20}.bytes(t), at(87), nil},
		{"a control batch", "to-gzip", batchOf{attrs: 0x20}.bytes(t), at(87), nil},
		{"a transactional batch", "plain", batchOf{producer: 1, attrs: 0x10}.bytes(t), at(53), nil},
		{"producer id, negative sequence", "plain", batchOf{producer: 10, sequence: -2}.bytes(t), at(87), nil},
		{"sequence without producer id", "plain", resealed(good.bytes(t), 53, 0, 0, 0, 9), at(0), nil},
		{"unknown attributes", "plain", resealed(good.bytes(t), 21, 0x7f), at(0), nil},
		{"delete horizon", "plain", batchOf{attrs: 0x40}.bytes(t), at(0), nil},
		// B-28
		{"magic 0", "plain", as(0), at(87), nil},
		{"magic 1", "plain", as(1), at(87), nil},
		{"magic 3", "plain", as(3), at(2), nil},
	}
}
