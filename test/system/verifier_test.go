package system

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record's value is producer (4 bytes), number (8), CRC-32C of the rest (4) and filler that follows from both. So a
// reader knows from the value alone what every byte of it must be.
const valueHeaderBytes = 16

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	fillerPool = makeFiller()
)

// makeFiller is 1 MiB that looks random and is the same in each run.
func makeFiller() []byte {
	pool := make([]byte, 1<<20)
	x := uint64(0x9e3779b97f4a7c15)
	for i := 0; i < len(pool); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(pool[i:], x)
	}
	return pool
}

// makeValue builds the value of a producer's record.
func makeValue(producer int, number int64, sizeBytes int) []byte {
	v := make([]byte, sizeBytes)
	binary.BigEndian.PutUint32(v, uint32(producer))
	binary.BigEndian.PutUint64(v[4:], uint64(number))
	at := (int(number)*97 + producer*7919) % (len(fillerPool) - sizeBytes)
	copy(v[valueHeaderBytes:], fillerPool[at:])
	binary.BigEndian.PutUint32(v[12:], checksum(v))
	return v
}

func checksum(v []byte) uint32 {
	return crc32.Update(crc32.Checksum(v[:12], castagnoli), castagnoli, v[valueHeaderBytes:])
}

// ledger remembers what was sent and what the broker acknowledged. All methods may overlap.
type ledger struct {
	sizeBytes  int
	partitions int32
	run        int64 // records in a row that a producer sends to one partition

	mu     sync.Mutex
	sent   [][]int64 // by producer and number: the acknowledged offset, or notAcked
	acked  int64
	failed []error // what producers were told instead, the first few
	pulse  pulse   // of acknowledgements
}

const notAcked = int64(-1)

func newLedger(producers int, partitions int32, sizeBytes int) *ledger {
	return &ledger{sizeBytes: sizeBytes, partitions: partitions, run: 16, sent: make([][]int64, producers)}
}

// partitionOf is where a record must be. It follows from the number, so that it is known without an acknowledgement.
func (l *ledger) partitionOf(producer int, number int64) int32 {
	return int32((number/l.run + int64(producer)) % int64(l.partitions))
}

// next notes that a producer is about to send its next record, and returns its number.
func (l *ledger) next(producer int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[producer] = append(l.sent[producer], notAcked)
	return int64(len(l.sent[producer]) - 1)
}

// ack notes the offset that an acknowledgement carried.
func (l *ledger) ack(producer int, number, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[producer][number] = offset
	l.acked++
	l.pulse.beat(time.Now())
}

// fail notes that a producer gave a record up.
func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

func (l *ledger) ackedCount() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

func (l *ledger) failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// watchGaps forgets the gaps between acknowledgements so far; longestGap is the longest one since.
func (l *ledger) watchGaps() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulse.reset(time.Now())
}

func (l *ledger) longestGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pulse.longestUntil(time.Now())
}

// pulse measures the longest time without a beat.
type pulse struct {
	last    time.Time
	longest time.Duration
}

func (p *pulse) reset(now time.Time) { p.last, p.longest = now, 0 }
func (p *pulse) beat(now time.Time) {
	p.longest = p.longestUntil(now)
	p.last = now
}
func (p *pulse) longestUntil(now time.Time) time.Duration { return max(p.longest, now.Sub(p.last)) }

// produce sends a producer's records, one every pause and as fast as the client takes them at 0, until ctx ends or
// limit were sent (0: no limit). It returns when every record has its answer.
func (l *ledger) produce(ctx context.Context, client *kgo.Client, topic string, producer int, pause time.Duration, limit int) {
	var ticks <-chan time.Time
	if pause > 0 {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for i := 0; (limit == 0 || i < limit) && ctx.Err() == nil; i++ {
		if ticks != nil {
			select {
			case <-ctx.Done():
				continue
			case <-ticks:
			}
		}
		number := l.next(producer)
		record := &kgo.Record{Topic: topic, Partition: l.partitionOf(producer, number), Value: makeValue(producer, number, l.sizeBytes)}
		client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			if err != nil {
				l.fail(fmt.Errorf("record %d of producer %d: %w", number, producer, err))
				return
			}
			l.ack(producer, number, r.Offset)
		})
	}
	_ = client.Flush(context.Background())
}

// violation is one way in which a log breaks the promise.
type violation struct {
	kind      string // lost, duplicate, reordered, wrong offset, wrong partition, corrupt, unknown, gap
	partition int32
	offset    int64
	text      string
}

func (v violation) String() string {
	return fmt.Sprintf("%s at %d/%d: %s", v.kind, v.partition, v.offset, v.text)
}

// verifier compares what a reader finds, in the order of each partition, with a ledger.
type verifier struct {
	ledger *ledger
	seen   [][]bool
	last   map[[2]int]int64 // by producer and partition: highest number read
	next   map[int32]int64  // by partition: the offset that must come next
	found  int64
	broken []violation
}

func newVerifier(l *ledger) *verifier {
	v := &verifier{ledger: l, last: map[[2]int]int64{}, next: map[int32]int64{}}
	for _, numbers := range l.sent {
		v.seen = append(v.seen, make([]bool, len(numbers)))
	}
	return v
}

// read takes the next record of a partition.
func (v *verifier) read(partition int32, offset int64, value []byte) {
	complain := func(kind, format string, args ...any) {
		v.broken = append(v.broken, violation{kind, partition, offset, fmt.Sprintf(format, args...)})
	}
	if want := v.next[partition]; offset != want {
		complain("gap", "offset %d was to come", want)
	}
	v.next[partition] = offset + 1
	if len(value) != v.ledger.sizeBytes || binary.BigEndian.Uint32(value[12:]) != checksum(value) {
		complain("corrupt", "%d bytes, checksum wrong", len(value))
		return
	}
	producer, number := int(binary.BigEndian.Uint32(value)), int64(binary.BigEndian.Uint64(value[4:]))
	if producer >= len(v.seen) || number >= int64(len(v.seen[producer])) {
		complain("unknown", "producer %d never sent number %d", producer, number)
		return
	}
	if !bytes.Equal(value, makeValue(producer, number, v.ledger.sizeBytes)) {
		complain("corrupt", "checksum right, but not the bytes of number %d of producer %d", number, producer)
	}
	if want := v.ledger.partitionOf(producer, number); partition != want {
		complain("wrong partition", "number %d of producer %d was sent to %d", number, producer, want)
	}
	if v.seen[producer][number] {
		complain("duplicate", "number %d of producer %d", number, producer)
		return
	}
	v.seen[producer][number] = true
	v.found++
	if acked := v.ledger.sent[producer][number]; acked != notAcked && acked != offset {
		complain("wrong offset", "number %d of producer %d was acknowledged at %d", number, producer, acked)
	}
	key := [2]int{producer, int(partition)}
	if last, ok := v.last[key]; ok && number < last {
		complain("reordered", "number %d of producer %d after %d", number, producer, last)
	}
	v.last[key] = max(v.last[key], number)
}

// finish adds what was acknowledged and not read, and returns everything that is wrong.
func (v *verifier) finish() []violation {
	for producer, numbers := range v.ledger.sent {
		for number, offset := range numbers {
			if offset != notAcked && !v.seen[producer][number] {
				v.broken = append(v.broken, violation{"lost", v.ledger.partitionOf(producer, int64(number)), offset,
					fmt.Sprintf("number %d of producer %d was acknowledged", number, producer)})
			}
		}
	}
	return v.broken
}

// unackedFound counts the records that are in the log without an acknowledgement.
func (v *verifier) unackedFound() (n int) {
	for producer, numbers := range v.ledger.sent {
		for number, offset := range numbers {
			if offset == notAcked && v.seen[producer][number] {
				n++
			}
		}
	}
	return n
}

// verify reads the topic from its start to its end with a client of its own and fails the test on any violation. No
// producer of the ledger may still run.
func (l *ledger) verify(t testing.TB, n *node, topic string) *verifier {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := n.client(kgo.ConsumeTopics(topic), kgo.FetchMaxPartitionBytes(8<<20))
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatalf("end offsets of %s: %v", topic, err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			t.Fatalf("end offset of %s-%d: %v", topic, o.Partition, o.Err)
		}
		left += o.Offset
	})
	v := newVerifier(l)
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s with %d records to come: %v", topic, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { v.read(r.Partition, r.Offset, r.Value); left-- })
	}
	broken := v.finish()
	for i, b := range broken {
		if i == 20 {
			t.Errorf("… and %d more", len(broken)-i)
			break
		}
		t.Error(b)
	}
	return v
}
