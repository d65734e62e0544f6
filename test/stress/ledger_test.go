package stress

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const valueHeaderBytes = 16

// makeValue is producer (4 bytes), number (8), CRC-32C of all else (4) and filler.
func makeValue(producer int, number int64, sizeBytes int) []byte {
	v := make([]byte, sizeBytes)
	binary.BigEndian.PutUint32(v, uint32(producer))
	binary.BigEndian.PutUint64(v[4:], uint64(number))
	x := uint64(number)<<20 ^ uint64(producer) ^ 0x9e3779b97f4a7c15
	for i := valueHeaderBytes; i+8 <= len(v); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(v[i:], x)
	}
	binary.BigEndian.PutUint32(v[12:], sum(v))
	return v
}

func sum(v []byte) uint32 {
	return crc32.Update(crc32.Checksum(v[:12], castagnoli), castagnoli, v[valueHeaderBytes:])
}

// message names a record by its producer and number.
type message struct {
	producer uint32
	number   uint64
}

func parseValue(v []byte) (message, error) {
	if len(v) < valueHeaderBytes || binary.BigEndian.Uint32(v[12:]) != sum(v) {
		return message{}, fmt.Errorf("a value of %d bytes is not what any producer sent", len(v))
	}
	return message{binary.BigEndian.Uint32(v), binary.BigEndian.Uint64(v[4:])}, nil
}

// place is where a record was acknowledged.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// ledger remembers what was acknowledged, and how far groups' commits and records' deletions had come.
type ledger struct {
	mu      sync.Mutex // guards the fields below
	acked   map[place]message
	failed  []error
	starts  map[partition]int64 // highest offset that DeleteRecords was asked for
	commits map[groupPartition]int64
}

type partition struct {
	topic  string
	number int32
}

type groupPartition struct {
	group string
	partition
}

func newLedger() *ledger {
	return &ledger{acked: map[place]message{}, starts: map[partition]int64{}, commits: map[groupPartition]int64{}}
}

func (l *ledger) ack(r *kgo.Record, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{r.Topic, r.Partition, r.Offset}
	if other, ok := l.acked[at]; ok {
		l.failed = append(l.failed, fmt.Errorf("records %+v and %+v were both acknowledged at %+v", other, m, at))
	}
	l.acked[at] = m
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// deleting notes what will be asked for, before it is.
func (l *ledger) deleting(p partition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[p] = max(l.starts[p], offset)
}

// committed notes an acknowledged commit.
func (l *ledger) committed(p groupPartition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits[p] = max(l.commits[p], offset)
}

// commitsNow is a copy of the highest acknowledged commits.
func (l *ledger) commitsNow() map[groupPartition]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[groupPartition]int64, len(l.commits))
	for k, v := range l.commits {
		out[k] = v
	}
	return out
}

// verify reads topics from their start to their end and compares every record with what was acknowledged. Topics in
// trimmed may have lost records from their front, by DeleteRecords or retention; in others nothing may be missing.
func (l *ledger) verify(ctx context.Context, t *testing.T, bootstrap string, topics []string, trimmed map[string]bool) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(100_000_000))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		t.Fatalf("log starts: %v", err)
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("log ends: %v", err)
	}
	found := map[place]message{}
	next := map[partition]int64{}
	type writer struct {
		partition
		producer uint32
	}
	last := map[writer]uint64{}
	left := 0
	ends.Each(func(e kadm.ListedOffset) {
		s, _ := starts.Lookup(e.Topic, e.Partition)
		next[partition{e.Topic, e.Partition}] = s.Offset
		if s.Offset < e.Offset {
			left++
		}
		if !trimmed[e.Topic] && s.Offset != 0 {
			t.Errorf("%s-%d begins at %d: nobody deleted anything", e.Topic, e.Partition, s.Offset)
		}
	})
	for left > 0 && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(topic string, p int32, err error) {
			if ctx.Err() == nil {
				t.Errorf("read %s-%d: %v", topic, p, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			p := partition{r.Topic, r.Partition}
			end, _ := ends.Lookup(r.Topic, r.Partition)
			m, err := parseValue(r.Value)
			switch {
			case err != nil:
				t.Errorf("%s-%d offset %d: %v", r.Topic, r.Partition, r.Offset, err)
			case r.Offset != next[p]:
				t.Errorf("%s-%d: offset %d after %d", r.Topic, r.Partition, r.Offset, next[p]-1)
			}
			found[place{r.Topic, r.Partition, r.Offset}] = m
			w := writer{p, m.producer}
			if before, ok := last[w]; ok && before >= m.number {
				t.Errorf("%s-%d offset %d: number %d of producer %d after %d", r.Topic, r.Partition, r.Offset, m.number, m.producer, before)
			}
			last[w] = m.number
			if next[p] = r.Offset + 1; next[p] == end.Offset {
				left--
			}
		})
	}
	if ctx.Err() != nil {
		t.Fatalf("%d partitions were not read to their end in time", left)
	}
	l.compare(t, found, starts)
}

// compare wants every acknowledged record at its offset and no record twice.
func (l *ledger) compare(t *testing.T, found map[place]message, starts kadm.ListedOffsets) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	lost, below := 0, 0
	for at, m := range l.acked {
		start, ok := starts.Lookup(at.topic, at.partition)
		if !ok || at.offset < start.Offset {
			below++
			continue
		}
		if got, ok := found[at]; !ok || got != m {
			if lost++; lost <= 5 {
				t.Errorf("record %+v was acknowledged at %+v, where %+v was found (%v)", m, at, got, ok)
			}
		}
	}
	seen := map[message]place{}
	twice := 0
	for at, m := range found {
		if before, ok := seen[m]; ok {
			if twice++; twice <= 5 {
				t.Errorf("record %+v is at %+v and at %+v", m, before, at)
			}
		}
		seen[m] = at
	}
	t.Logf("%d records acknowledged (%d of them deleted since), %d found, %d lost, %d twice", len(l.acked), below, len(found), lost, twice)
}
