package system

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// readTopic reads partition 0 up to its end: the last value of each key, how many records there were, and the smallest
// offset.
func readTopic(t testing.TB, n *node, topic string, end int64) (last map[string]string, records int, lowest int64) {
	t.Helper()
	client := n.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	last, lowest = map[string]string{}, -1
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("at %d of %d: %v", next, end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if lowest < 0 {
				lowest = r.Offset
			}
			if r.Offset < next {
				t.Fatalf("offset %d after %d", r.Offset, next-1)
			}
			next = r.Offset + 1
			records++
			last[string(r.Key)] = string(r.Value)
		})
	}
	client.Close()
	return last, records, lowest
}

// TestCompaction: three versions of a thousand keys are written; the broker drops the old ones by itself and keeps the
// newest with their offsets, also over a kill -9.
func TestCompaction(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodeOptions{set: []string{"log.cleaner.backoff.ms=100"}})
	n.createTopic("users", 1, map[string]string{"cleanup.policy": "compact", "segment.bytes": "1048576",
		"min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "1000"})
	client := n.client(kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()), kgo.ProducerBatchMaxBytes(100_000))
	const keys, versions = 1000, 3
	write := func(key, value string) {
		client.Produce(t.Context(), &kgo.Record{Topic: "users", Key: []byte(key), Value: []byte(value)}, func(r *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	noise := func(seed int) string { // lz4 shall not make the segments small
		var b strings.Builder
		for x := uint64(seed)*2654435761 + 1; b.Len() < 2000; x = x*6364136223846793005 + 1442695040888963407 {
			fmt.Fprintf(&b, "%016x", x)
		}
		return b.String()
	}
	for version := range versions {
		for key := range keys {
			write(fmt.Sprint("user", key), fmt.Sprintf("%d %s", version, noise(version*keys+key)))
		}
	}
	for i := range 1000 { // these end the segment that holds the last of the users
		write(fmt.Sprint("last", i%10), noise(i))
	}
	if err := client.Flush(t.Context()); err != nil || t.Failed() {
		t.Fatal(err)
	}
	client.Close()
	end := int64(versions*keys + 1000)
	eventually(t, 30*time.Second, "old versions to go", func() bool {
		_, records, lowest := readTopic(t, n, "users", end)
		return records < keys+1000 && lowest >= (versions-1)*keys
	})
	for _, when := range []string{"compacted", "after kill -9"} {
		last, records, _ := readTopic(t, n, "users", end)
		if len(last) != keys+10 {
			t.Fatalf("%s: %d keys in %d records", when, len(last), records)
		}
		for key := range keys {
			if got := last[fmt.Sprint("user", key)]; got != fmt.Sprintf("%d %s", versions-1, noise((versions-1)*keys+key)) {
				t.Fatalf("%s: key %d is %.40q", when, key, got)
			}
		}
		if when == "compacted" {
			n.kill()
			n.start()
		}
	}
	n.verifyStopped("--compacted", "users") // the kill may have come between a compaction and its checkpoint
}
