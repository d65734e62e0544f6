package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const valueHeaderBytes = 16

// MakeValue is producer (4 bytes), number (8), CRC-32C of all else (4) and filler that follows from both.
func MakeValue(producer int, number int64, sizeBytes int) []byte {
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

// Message names a record by its producer and number. A producer sends its numbers in ascending order.
type Message struct {
	Producer uint32
	Number   uint64
}

// ParseValue reads what MakeValue made.
func ParseValue(v []byte) (Message, error) {
	if len(v) < valueHeaderBytes || binary.BigEndian.Uint32(v[12:]) != sum(v) {
		return Message{}, fmt.Errorf("a value of %d bytes is not what any producer sent", len(v))
	}
	return Message{binary.BigEndian.Uint32(v), binary.BigEndian.Uint64(v[4:])}, nil
}

// Partition is one of a topic's.
type Partition struct {
	Topic  string
	Number int32
}

// Place is where a record is.
type Place struct {
	Partition
	Offset int64
}

// Ledger remembers which record was acknowledged where. All methods may overlap.
type Ledger struct {
	mu     sync.Mutex // guards the fields below
	acked  map[Place]Message
	failed []error
}

// NewLedger returns an empty one.
func NewLedger() *Ledger { return &Ledger{acked: map[Place]Message{}} }

// Ack notes an acknowledgement. Two records at one place are a failure.
func (l *Ledger) Ack(r *kgo.Record, m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := Place{Partition{r.Topic, r.Partition}, r.Offset}
	if other, ok := l.acked[at]; ok {
		l.failed = append(l.failed, fmt.Errorf("records %+v and %+v were both acknowledged at %+v", other, m, at))
	}
	l.acked[at] = m
}

// Fail notes that something went wrong.
func (l *Ledger) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// Failed is what went wrong so far.
func (l *Ledger) Failed() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed[:len(l.failed):len(l.failed)]
}

// Acked is a copy of what was acknowledged so far.
func (l *Ledger) Acked() map[Place]Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked)
}

// Count is how many records were acknowledged so far.
func (l *Ledger) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// ForgetFrom gives up what was acknowledged in a partition at or above an offset: the durability allows its loss. It
// returns how many records that were.
func (l *Ledger) ForgetFrom(p Partition, offset int64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.acked {
		if at.Partition == p && at.Offset >= offset {
			delete(l.acked, at)
			n++
		}
	}
	return n
}

// Reading is what was found in topics, from the start of each partition to its end at that time.
type Reading struct {
	Records      map[Place]Message
	Terms        map[Place]int32 // the leader epoch of each, markers of transactions included
	Starts, Ends map[Partition]int64
	Problems     []error // values that nobody sent, holes, a producer's records out of order
}

// ReadTopics reads everything, records of aborted transactions too. A partition must be read to its end before ctx ends.
func ReadTopics(ctx context.Context, bootstrap string, topics ...string) (*Reading, error) {
	return read(ctx, bootstrap, topics, kgo.ReadUncommitted())
}

// ReadCommitted reads as a consumer with isolation.level=read_committed does. No transaction may be open.
func ReadCommitted(ctx context.Context, bootstrap string, topics ...string) (*Reading, error) {
	return read(ctx, bootstrap, topics, kgo.ReadCommitted())
}

func read(ctx context.Context, bootstrap string, topics []string, isolation kgo.IsolationLevel) (*Reading, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.AlwaysRetryEOF(), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r := &Reading{Records: map[Place]Message{}, Terms: map[Place]int32{}}
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if r.Starts, err = listed(starts, err); err != nil {
		return nil, fmt.Errorf("log starts: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if r.Ends, err = listed(ends, err); err != nil {
		return nil, fmt.Errorf("log ends: %w", err)
	}
	f := follower{Reading: r, next: maps.Clone(r.Starts), last: map[writer]uint64{}, holes: isolation == kgo.ReadCommitted()}
	for f.behind() && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(topic string, p int32, err error) {
			if ctx.Err() == nil {
				f.problem("read %s-%d: %w", topic, p, err)
			}
		})
		fetches.EachRecord(f.take)
	}
	if f.behind() {
		return nil, fmt.Errorf("read %v: came to %v of %v: %w", topics, f.next, r.Ends, ctx.Err())
	}
	return r, nil
}

func listed(offsets kadm.ListedOffsets, err error) (map[Partition]int64, error) {
	if err = errors.Join(err, offsets.Error()); err != nil {
		return nil, err
	}
	out := map[Partition]int64{}
	offsets.Each(func(o kadm.ListedOffset) { out[Partition{o.Topic, o.Partition}] = o.Offset })
	return out, nil
}

// writer is a producer in one partition.
type writer struct {
	Partition
	producer uint32
}

// follower reads partitions in order.
type follower struct {
	*Reading
	next  map[Partition]int64
	last  map[writer]uint64
	holes bool // records of aborted transactions are left out
}

func (f *follower) behind() bool {
	for p, end := range f.Ends {
		if f.next[p] < end {
			return true
		}
	}
	return false
}

func (f *follower) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Errorf(format, args...))
}

func (f *follower) take(r *kgo.Record) {
	at := Place{Partition{r.Topic, r.Partition}, r.Offset}
	if want := f.next[at.Partition]; r.Offset != want && (!f.holes || r.Offset < want) {
		f.problem("%s-%d: offset %d after %d", r.Topic, r.Partition, r.Offset, want-1)
	}
	f.next[at.Partition] = r.Offset + 1
	f.Terms[at] = r.LeaderEpoch
	if r.Attrs.IsControl() {
		return
	}
	m, err := ParseValue(r.Value)
	if err != nil {
		f.problem("%s-%d offset %d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	f.Records[at] = m
	w := writer{at.Partition, m.Producer}
	if before, ok := f.last[w]; ok && before >= m.Number {
		f.problem("%s-%d offset %d: number %d of producer %d after %d", r.Topic, r.Partition, r.Offset, m.Number, m.Producer, before)
	}
	f.last[w] = m.Number
}

// Verdict compares a reading with a ledger.
type Verdict struct {
	Acked, Found int
	Below        int     // acknowledged, and below the start of the log by now
	Lost, Twice  int     // acknowledged and not at its place; at two places
	Problems     []error // the first few of each, and those of the reading
}

func (v Verdict) String() string {
	return fmt.Sprintf("%d records acknowledged (%d of them deleted since), %d found, %d lost, %d duplicated", v.Acked, v.Below, v.Found, v.Lost, v.Twice)
}

// Compare wants every acknowledged record at its offset and no record twice.
func (l *Ledger) Compare(r *Reading) Verdict {
	acked := l.Acked()
	v := Verdict{Acked: len(acked), Found: len(r.Records), Problems: r.Problems}
	for at, m := range acked {
		if start, ok := r.Starts[at.Partition]; !ok || at.Offset < start {
			v.Below++
			continue
		}
		if got, ok := r.Records[at]; !ok || got != m {
			if v.Lost++; v.Lost <= 5 {
				v.Problems = append(v.Problems, fmt.Errorf("record %+v was acknowledged at %+v, where %+v was found (%v)", m, at, got, ok))
			}
		}
	}
	seen := map[Message]Place{}
	for at, m := range r.Records {
		if before, ok := seen[m]; ok {
			if v.Twice++; v.Twice <= 5 {
				v.Problems = append(v.Problems, fmt.Errorf("record %+v is at %+v and at %+v", m, before, at))
			}
		}
		seen[m] = at
	}
	return v
}
