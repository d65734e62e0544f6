package wire

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAnswersAreCountedByCode: an answer counts once, or once for each partition, by Kafka's name of its code; a code that
// nobody knows is its number.
func TestAnswersAreCountedByCode(t *testing.T) {
	beat := func(code int16) kmsg.Response { return &kmsg.HeartbeatResponse{ErrorCode: code} }
	produced := &kmsg.ProduceResponse{Topics: []kmsg.ProduceResponseTopic{
		{Partitions: []kmsg.ProduceResponseTopicPartition{{ErrorCode: 0}, {ErrorCode: 0}, {ErrorCode: kerr.NotLeaderForPartition.Code}}},
		{Partitions: []kmsg.ProduceResponseTopicPartition{{ErrorCode: 0}}},
	}}
	for _, c := range []struct {
		answers []kmsg.Response
		want    map[string]float64
	}{
		{[]kmsg.Response{beat(0), beat(0), beat(kerr.UnknownMemberID.Code), beat(-1)}, map[string]float64{"NONE": 2, "UNKNOWN_MEMBER_ID": 1, "UNKNOWN_SERVER_ERROR": 1}},
		{[]kmsg.Response{beat(155), beat(-2), beat(20000)}, map[string]float64{"155": 1}},
		{[]kmsg.Response{produced}, map[string]float64{"NONE": 3, "NOT_LEADER_FOR_PARTITION": 1}},
		{[]kmsg.Response{&kmsg.CreateTopicsResponse{}}, map[string]float64{}},
	} {
		var counts codeCounts
		for _, a := range c.answers {
			counts.countAnswer(a)
		}
		if got := collected(t, &counts); !maps.Equal(got, c.want) {
			t.Errorf("%T: counted %v, want %v", c.answers[0], got, c.want)
		}
	}
}

func collected(t *testing.T, counts *codeCounts) map[string]float64 {
	t.Helper()
	out := make(chan prometheus.Metric, codesKept)
	counts.collect(out, "R")
	close(out)
	got := map[string]float64{}
	for m := range out {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Fatal(err)
		}
		for _, l := range d.GetLabel() {
			if l.GetName() == "error" {
				got[l.GetValue()] = d.GetCounter().GetValue()
			}
		}
	}
	return got
}

func BenchmarkCountAnswer(b *testing.B) {
	produced := &kmsg.ProduceResponse{Topics: []kmsg.ProduceResponseTopic{{Partitions: make([]kmsg.ProduceResponseTopicPartition, 10)}}}
	var counts codeCounts
	b.ReportAllocs()
	for b.Loop() {
		counts.countAnswer(produced)
	}
}
