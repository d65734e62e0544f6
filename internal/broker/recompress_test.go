package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
)

// Each codec of a producer with each compression.type of a topic: a client reads the records that a client wrote, and
// the log has them in the topic's codec.
func TestCompressionTypes(t *testing.T) {
	b := startLive(t, memDirectory(t), metatest.NewMemory())
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	stored := map[string]int16{"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
	for kind, want := range stored {
		err := b.createTopics(t.Context(), []topicSpec{{name: kind, partitions: 1, replication: -1, configs: map[string]string{"compression.type": kind}}})
		if err[0] != nil {
			t.Fatal(err[0])
		}
		n := 0
		for name, codec := range codecs {
			p := liveClient(t, b, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(kind))
			var records []*kgo.Record
			for i := range 20 {
				records = append(records, recordOf(name, i))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if err := p.ProduceSync(ctx, records...).FirstErr(); err != nil {
				t.Fatalf("%s to %s: %v", name, kind, err)
			}
			cancel()
			n += len(records)
		}
		readBack(t, b, kind, n, want)
	}
}

// recordOf is the i-th record of a producer with this codec.
func recordOf(codec string, i int) *kgo.Record {
	r := &kgo.Record{Key: []byte(codec), Value: fmt.Appendf(nil, "%s %03d with a value that is long enough to compress, long enough to compress", codec, i),
		Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)), Headers: []kgo.RecordHeader{{Key: "i", Value: fmt.Append(nil, i)}, {Key: "null"}}}
	if i == 7 {
		r.Value = nil
	}
	return r
}

// readBack consumes a topic and compares each record with what was written.
func readBack(t *testing.T, b *Broker, topic string, n int, codec int16) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := liveClient(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	seen := map[string]int{}
	for offset := int64(0); offset < int64(n); {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: %v after %d records", topic, err, offset)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			name := string(r.Key)
			want := recordOf(name, seen[name])
			seen[name]++
			if r.Offset != offset || string(r.Value) != string(want.Value) || (r.Value == nil) != (want.Value == nil) ||
				!r.Timestamp.Equal(want.Timestamp) || fmt.Sprint(r.Headers) != fmt.Sprint(want.Headers) {
				t.Errorf("%s, offset %d: %s %q at %v %v, want %q", topic, r.Offset, name, r.Value, r.Timestamp, r.Headers, want.Value)
			}
			if r.Attrs.CompressionType() != uint8(codec) {
				t.Errorf("%s, offset %d: codec %d, want %d", topic, r.Offset, r.Attrs.CompressionType(), codec)
			}
			offset++
		})
	}
}
