package load

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestReaderSeesGapsAndRepeats(t *testing.T) {
	for _, c := range []struct {
		name    string
		gaps    bool
		offsets []int64
		want    string // of the error; "" none
	}{
		{"in order", false, []int64{0, 1, 2}, ""},
		{"a gap", false, []int64{0, 2}, "offset 2 where 1 was due"},
		{"a repeat", false, []int64{0, 0}, "offset 0 where 1 was due"},
		{"a gap of aborted records", true, []int64{0, 2}, ""},
		{"a repeat behind aborted records", true, []int64{0, 2, 1}, "offset 1 where 3 was due"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &reader{next: map[int32]int64{0: 0}, end: map[int32]int64{0: 9}, gaps: c.gaps}
			var got string
			for _, o := range c.offsets {
				if err := r.check(&kgo.Record{Offset: o}); err != nil {
					got = err.Error()
					break
				}
			}
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestHistogramIsInMilliseconds(t *testing.T) {
	h := NewHistogram()
	for i := range 100 {
		h.Add(time.Duration(i+1) * time.Millisecond)
	}
	h.Add(time.Hour) // counts as a minute
	values := map[string]float64{}
	h.into(values, "x_")
	for name, want := range map[string]float64{"x_p50_ms": 51, "x_p99_ms": 100, "x_max_ms": 60000} {
		if got := values[name]; got < want*0.99 || got > want*1.01 {
			t.Errorf("%s is %v, want about %v", name, got, want)
		}
	}
}

// TestSnifferCountsConcurrentTransactions sends answers over a connection in pieces.
func TestSnifferCountsConcurrentTransactions(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	s := &sniffer{}
	conn := &sniffed{Conn: near, sniffer: s, asked: map[int32]question{}}
	ask := func(id int32, req kmsg.Request, version int16) {
		req.SetVersion(version)
		frame := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(req.Key()))
		frame = binary.BigEndian.AppendUint16(frame, uint16(version))
		frame = binary.BigEndian.AppendUint32(frame, uint32(id))
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		go func() { _, _ = far.Read(make([]byte, 64)) }()
		if _, err := conn.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(id int32, resp kmsg.Response, version int16) {
		resp.SetVersion(version)
		frame := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(id))
		if resp.IsFlexible() {
			frame = append(frame, 0)
		}
		frame = resp.AppendTo(frame)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		go func() {
			_, _ = far.Write(frame[:3])
			_, _ = far.Write(frame[3:])
		}()
		buf := make([]byte, len(frame))
		for read := 0; read < len(frame); {
			n, err := conn.Read(buf[read:])
			if err != nil {
				t.Fatal(err)
			}
			read += n
		}
	}
	ask(7, kmsg.NewPtrEndTxnRequest(), 5)
	end := kmsg.NewPtrEndTxnResponse()
	end.ErrorCode = concurrentTransactions
	answer(7, end, 5)
	ask(8, kmsg.NewPtrProduceRequest(), 12)
	produced := kmsg.NewPtrProduceResponse()
	topic := kmsg.NewProduceResponseTopic()
	partition := kmsg.NewProduceResponseTopicPartition()
	partition.ErrorCode = concurrentTransactions
	topic.Partitions = append(topic.Partitions, partition)
	produced.Topics = append(produced.Topics, topic)
	answer(8, produced, 12)
	ask(9, kmsg.NewPtrEndTxnRequest(), 3)
	answer(9, kmsg.NewPtrEndTxnResponse(), 3) // no error
	if got := s.concurrent.Load(); got != 2 || s.broken() != nil {
		t.Errorf("%d answers counted, want 2 (%v)", got, s.broken())
	}
}
