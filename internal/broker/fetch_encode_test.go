package broker

import (
	"bytes"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// memRecords is record data in memory that counts its releases.
type memRecords struct {
	data     []byte
	released int
}

func (m *memRecords) Len() int                            { return len(m.data) }
func (m *memRecords) AppendTo(buf []byte) ([]byte, error) { return append(buf, m.data...), nil }
func (m *memRecords) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(m.data)
	return int64(n), err
}
func (m *memRecords) Release() { m.released++ }

func flatten(t *testing.T, parts []wire.Part) []byte {
	t.Helper()
	var out []byte
	for _, p := range parts {
		if p.Payload == nil {
			out = append(out, p.Bytes...)
			continue
		}
		var err error
		if out, err = p.Payload.AppendTo(out); err != nil {
			t.Fatal(err)
		}
		p.Payload.Release()
	}
	return out
}

// TestFetchEncodingIsKmsgs decodes every version with kmsg, compares each field, and encodes it again with kmsg: the
// bytes must be the same.
func TestFetchEncodingIsKmsgs(t *testing.T) {
	id := [16]byte{1, 2, 3}
	for version := int16(4); version <= 18; version++ {
		for _, upTo := range []segstore.Bound{segstore.BoundHigh, segstore.BoundStable} {
			data := &memRecords{data: bytes.Repeat([]byte("batch"), 50)}
			empty := &memRecords{}
			a := &fetchPart{name: "alpha", partition: 0}
			b := &fetchPart{name: "alpha", partition: 1}
			c := &fetchPart{name: "beta", partition: 7}
			if version >= 13 {
				a.id, b.id, c.id = id, id, [16]byte{9}
			}
			results := []fetchResult{
				{part: a, offsets: segstore.Offsets{Start: 3, Stable: 8, High: 9, End: 11}, records: data, leader: -1, leaderTerm: -1,
					aborted: []segstore.AbortedTxn{{ProducerID: 4, FirstOffset: 5}}},
				{part: b, err: errFencedTerm, leader: 1, leaderTerm: 6},
				{part: c, offsets: segstore.Offsets{Start: 0, Stable: 2, High: 2}, records: empty, leader: -1, leaderTerm: -1,
					diverging: true, divergingTerm: 2, divergingEnd: 1},
			}
			raw := flatten(t, encodeFetch(version, 77, upTo, results))
			if data.released != 1 || empty.released != 1 {
				t.Errorf("v%d: released %d and %d times, want once each", version, data.released, empty.released)
			}
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = version
			if err := resp.ReadFrom(raw); err != nil {
				t.Fatalf("v%d: %v", version, err)
			}
			if again := resp.AppendTo(nil); !bytes.Equal(again, raw) {
				t.Errorf("v%d: kmsg encodes the same answer differently\n ours %x\n kmsg %x", version, raw, again)
			}
			checkDecoded(t, version, upTo, resp, data.data)
		}
	}
}

func checkDecoded(t *testing.T, version int16, upTo segstore.Bound, resp *kmsg.FetchResponse, data []byte) {
	t.Helper()
	if version >= 7 && resp.SessionID != 77 {
		t.Errorf("v%d: session %d", version, resp.SessionID)
	}
	if len(resp.Topics) != 2 || len(resp.Topics[0].Partitions) != 2 || len(resp.Topics[1].Partitions) != 1 {
		t.Fatalf("v%d: topics %+v", version, resp.Topics)
	}
	ok, fenced, far := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1], resp.Topics[1].Partitions[0]
	if !bytes.Equal(ok.RecordBatches, data) || ok.HighWatermark != 9 || ok.LastStableOffset != 8 || (version >= 5 && ok.LogStartOffset != 3) {
		t.Errorf("v%d: first partition %+v", version, ok)
	}
	if want := upTo == segstore.BoundStable; (ok.AbortedTransactions != nil) != want || (want && len(ok.AbortedTransactions) != 1) {
		t.Errorf("v%d: aborted list %v for bound %d", version, ok.AbortedTransactions, upTo)
	}
	if fenced.ErrorCode != 74 || fenced.HighWatermark != -1 || fenced.LastStableOffset != -1 || fenced.RecordBatches == nil {
		t.Errorf("v%d: error row %+v, want code 74, offsets -1, records empty but not null", version, fenced)
	}
	if version >= 12 && (fenced.CurrentLeader.LeaderID != 1 || fenced.CurrentLeader.LeaderEpoch != 6) {
		t.Errorf("v%d: current leader %+v", version, fenced.CurrentLeader)
	}
	if version >= 12 && (far.DivergingEpoch.Epoch != 2 || far.DivergingEpoch.EndOffset != 1) {
		t.Errorf("v%d: diverging epoch %+v", version, far.DivergingEpoch)
	}
}
