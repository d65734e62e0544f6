package suite

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Partitions is the number of partitions of every topic the suite spreads records over.
const Partitions = 3

// A Header is one header of a record, in order.
type Header struct {
	Key   string
	Value []byte
}

// A Record is one record as a client sent or received it. A nil Key or Value is Kafka's null, not an empty one.
type Record struct {
	Partition int32
	Offset    int64 // as acknowledged or as received; -1 when the producer asked for no acknowledgement
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Records makes n records, spread over partitions in turn. The tag (a codec's name, say) is in every key, value and
// header; every tenth value is null. Values compress well, so that a client has no excuse to send them plain.
func Records(tag string, n, partitions int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Partition: int32(i % partitions),
			Offset:    -1,
			Key:       fmt.Appendf(nil, "%s-%d", tag, i),
			Value:     fmt.Appendf(nil, "%s:%d:%s", tag, i, strings.Repeat("abcdefgh", 40)),
			Headers:   []Header{{"tag", []byte(tag)}, {"bin", []byte{0, 255, 128, byte(i)}}},
		}
		if i%10 == 7 {
			records[i].Value = nil
		}
	}
	return records
}

// Same reports how got differs from want, nil when it does not: the same records, by partition and offset, whatever
// the order in which partitions were read. Within a partition got must be in offset order.
func Same(got, want []Record) error {
	last := map[int32]int64{}
	for _, r := range got {
		if before, seen := last[r.Partition]; seen && r.Offset <= before {
			return fmt.Errorf("partition %d: offset %d after %d", r.Partition, r.Offset, before)
		}
		last[r.Partition] = r.Offset
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	got, want = byPosition(got), byPosition(want)
	for i := range want {
		if err := sameRecord(got[i], want[i]); err != nil {
			return fmt.Errorf("partition %d offset %d: %w", want[i].Partition, want[i].Offset, err)
		}
	}
	return nil
}

func byPosition(records []Record) []Record {
	return slices.SortedFunc(slices.Values(records), func(a, b Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
}

func sameRecord(got, want Record) error {
	switch {
	case got.Partition != want.Partition || got.Offset != want.Offset:
		return fmt.Errorf("got partition %d offset %d", got.Partition, got.Offset)
	case !sameBytes(got.Key, want.Key):
		return fmt.Errorf("key %q, want %q", got.Key, want.Key)
	case !sameBytes(got.Value, want.Value):
		return fmt.Errorf("value %.40q, want %.40q", got.Value, want.Value)
	case len(got.Headers) != len(want.Headers):
		return fmt.Errorf("%d headers, want %d", len(got.Headers), len(want.Headers))
	}
	for i, h := range want.Headers {
		if got.Headers[i].Key != h.Key || !bytes.Equal(got.Headers[i].Value, h.Value) {
			return fmt.Errorf("header %d: %s=%q, want %s=%q", i, got.Headers[i].Key, got.Headers[i].Value, h.Key, h.Value)
		}
	}
	return nil
}

// sameBytes tells null from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// consecutive reports whether the acknowledged offsets of each partition are 0, 1, 2, … in the order sent, as they must
// be in a topic nobody else writes to.
func consecutive(records []Record) error {
	next := map[int32]int64{}
	for i, r := range records {
		if r.Offset != next[r.Partition] {
			return fmt.Errorf("record %d: acknowledged at partition %d offset %d, want %d", i, r.Partition, r.Offset, next[r.Partition])
		}
		next[r.Partition]++
	}
	return nil
}
