package broker

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

func testRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// syncGate is a disk whose fsyncs of log files wait, or fail, on demand.
type syncGate struct {
	vfs.FS
	mu   sync.Mutex
	held chan struct{} // closed to let go; nil: nothing waits
	fail error
}

func (g *syncGate) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := make(chan struct{})
	g.held = held
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.held = nil
		g.mu.Unlock()
		close(held)
	})
}

func (g *syncGate) failWith(err error) {
	g.mu.Lock()
	g.fail = err
	g.mu.Unlock()
}

// OpenReadWrite gives a file whose SyncData passes the gate.
func (g *syncGate) OpenReadWrite(path string, create bool) (vfs.File, error) {
	f, err := g.FS.OpenReadWrite(path, create)
	if err == nil && strings.HasSuffix(path, ".log") {
		f = &gatedFile{f, g}
	}
	return f, err
}

type gatedFile struct {
	vfs.File
	gate *syncGate
}

func (f *gatedFile) SyncData() error {
	f.gate.mu.Lock()
	held, fail := f.gate.held, f.gate.fail
	f.gate.mu.Unlock()
	if held != nil {
		<-held
	}
	if fail != nil {
		return fail
	}
	return f.File.SyncData()
}

func newGatedBroker(t *testing.T) (*testBroker, *syncGate) {
	t.Helper()
	gate := &syncGate{FS: memDirectory(t)}
	b := startTestBrokerOn(t, gate, metatest.NewMemory())
	b.create("a", 2, nil)
	return b, gate
}

// B-09: REQUEST_TIMED_OUT while the flush hangs; the late append counts, and the retry is its duplicate. Nothing is shown
// to consumers before it is durable (D-06).
func TestTimeoutAndLateAppend(t *testing.T) {
	b, gate := newGatedBroker(t)
	release := gate.hold()
	defer release()
	batch := batchOf{producer: 1, times: []int64{1, 2}}
	for _, acks := range []int16{acksAll, acksLeader} {
		r := b.produceRequest(produceTo{"a", 0, batch.bytes(t)})
		r.TimeoutMillis, r.Acks = 30, acks
		began := time.Now()
		row := ask[*kmsg.ProduceResponse](b, b.handleProduce, 9, r).Topics[0].Partitions[0]
		wantCode(t, "while the flush hangs", row.ErrorCode, kerr.RequestTimedOut)
		if took := time.Since(began); took < 30*time.Millisecond || row.BaseOffset != -1 {
			t.Errorf("after %s: %+v", took, row)
		}
	}
	if o := b.leader("a", 0).log.Offsets(); o.End != 2 || o.High != 0 {
		t.Errorf("offsets %+v, want one batch that is not visible", o)
	}
	row := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0}))
	if row.ErrorCode != 0 || len(row.RecordBatches) != 0 || row.HighWatermark != 0 || row.LastStableOffset != 0 {
		t.Errorf("a consumer sees %+v", row)
	}
	// Between the high watermark and the end a consumer waits; it is not out of range.
	row = b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 2}))
	wantCode(t, "above the high watermark", row.ErrorCode, nil)
	if latest := b.listOffset1("a", timeLatest); latest.Offset != 0 {
		t.Errorf("the latest offset is %d", latest.Offset)
	}

	// The duplicate waits for the same watermark as its original.
	retry := askLater[*kmsg.ProduceResponse](b, b.handleProduce, 9, b.produceRequest(produceTo{"a", 0, batch.bytes(t)}))
	release()
	got := retry().Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("the retry is answered %+v", got)
	}
	if o := b.leader("a", 0).log.Offsets(); o.End != 2 || o.High != 2 {
		t.Errorf("offsets %+v, want 2", o)
	}
}

// A duplicate is not acknowledged before its original is durable.
func TestDuplicateWaitsForItsOriginal(t *testing.T) {
	b, gate := newGatedBroker(t)
	release := gate.hold()
	defer release()
	batch := batchOf{producer: 1}
	ask := func() <-chan answer {
		return b.begin(t.Context(), "PLAINTEXT", b.handleProduce, 9, b.produceRequest(produceTo{"a", 0, batch.bytes(t)}))
	}
	first, second := ask(), ask()
	select {
	case <-first:
		t.Fatal("answered before the fsync")
	case <-second:
		t.Fatal("the duplicate is answered before the fsync")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	for _, c := range []<-chan answer{first, second} {
		select {
		case a := <-c:
			if a.err != nil {
				t.Error(a.err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no answer after the fsync")
		}
	}
}

// C-16, storage errors: a failed fsync is final and answers 56 with offsets of -1, to who waits and to who comes later, in
// every request; other partitions go on.
func TestFailedFsync(t *testing.T) {
	b, gate := newGatedBroker(t)
	b.mustProduce("a", 0, batchOf{})
	poll := b.fetchRequest(fetchFrom{"a", 0, 1})
	poll.MaxWaitMillis = 15_000
	waiting := askLater[*kmsg.FetchResponse](b, b.handleFetch, 12, poll)
	gate.failWith(&fs.PathError{Op: "fsync", Err: errors.New("input/output error")})
	for range 2 {
		row := b.produce(9, "a", 0, batchOf{}.bytes(t))
		wantCode(t, "produce", row.ErrorCode, kerr.KafkaStorageError)
		if row.BaseOffset != -1 || row.LogAppendTime != -1 || row.LogStartOffset != -1 {
			t.Errorf("offsets %+v, want -1", row)
		}
	}
	row := waiting().Topics[0].Partitions[0]
	wantCode(t, "a waiting fetch", row.ErrorCode, kerr.KafkaStorageError)
	if row.HighWatermark != -1 || row.RecordBatches == nil {
		t.Errorf("a waiting fetch: %+v", row)
	}
	wantCode(t, "fetch", b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0})).ErrorCode, kerr.KafkaStorageError)
	wantCode(t, "by time", b.listOffset1("a", 0).ErrorCode, kerr.KafkaStorageError)
	gate.failWith(nil)
	wantCode(t, "the log stays failed", b.produce(9, "a", 0, batchOf{}.bytes(t)).ErrorCode, kerr.KafkaStorageError)
	wantCode(t, "another partition", b.produce(9, "a", 1, batchOf{}.bytes(t)).ErrorCode, nil)
}

// A full disk refuses appends without losing anything, and heals.
func TestFullDisk(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	b.mustProduce("a", 0, batchOf{})
	b.disk.SetCapacity(b.disk.Used())
	row := b.produce(9, "a", 0, batchOf{value: strings.Repeat("x", 100_000)}.bytes(t))
	wantCode(t, "on a full disk", row.ErrorCode, kerr.KafkaStorageError)
	if got := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0})); got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
		t.Errorf("a fetch from a full disk: %+v", got)
	}
	eventually(t, "the metric to rise", func() bool {
		return strings.Contains(scrape(t, b.registry), `pgbroker_disk_full{dir="/log"} 1`)
	})
	b.disk.SetCapacity(1 << 30)
	b.heals(t, 1)
	eventually(t, "the metric to fall", func() bool { // a refusal beside the look that found space lets it stand until the next one
		return strings.Contains(scrape(t, b.registry), `pgbroker_disk_full{dir="/log"} 0`)
	})
	if rejected := grepLines(scrape(t, b.registry), "pgbroker_disk_full_rejections_total"); len(rejected) != 1 || strings.HasSuffix(rejected[0], " 0") {
		t.Errorf("rejections: %q", rejected)
	}
}

// heals waits until a batch is taken again, which then lies at offset.
func (b *testBroker) heals(t *testing.T, offset int64) {
	t.Helper()
	eventually(t, "an append after the disk has space again", func() bool {
		row := b.produce(9, "a", 0, batchOf{}.bytes(t))
		if row.ErrorCode == 0 && row.BaseOffset != offset {
			t.Fatalf("the next batch lies at %d, want %d", row.BaseOffset, offset)
		}
		return row.ErrorCode == 0
	})
}

// Inside the reserve batches are refused with a code that clients retry; a transaction ends, reads and commits go on, and
// the metrics say so.
func TestReserveOfTheDisk(t *testing.T) {
	b := newTxnBroker(t)
	p := b.initTxn(4, "id", -1, -1)
	wantCode(t, "a transactional batch", b.produceTxn(12, "id", batchOf{producer: p.ProducerID, epoch: p.ProducerEpoch}), nil)
	if err := b.disk.WriteFile("somebody's", make([]byte, 24<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	b.disk.SetCapacity(b.disk.Used() + 1<<20) // 4 % are free
	eventually(t, "batches to be refused", func() bool { return b.segments.Space().Full })
	row := b.produce(9, "a", 0, batchOf{}.bytes(t))
	wantCode(t, "a batch", row.ErrorCode, kerr.KafkaStorageError)
	if !kerr.IsRetriable(kerr.ErrorForCode(row.ErrorCode)) || row.BaseOffset != -1 {
		t.Errorf("answered %+v", row)
	}
	end := b.endTxn(5, "id", p.ProducerID, p.ProducerEpoch, true)
	wantCode(t, "the end of the transaction", end.ErrorCode, nil)
	eventually(t, "the marker", func() bool { return b.leader("a", 0).log.Offsets().Stable == 2 })
	if got := b.fetchOne(12, b.fetchRequest(fetchFrom{"a", 0, 0})); got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
		t.Errorf("a fetch: %+v", got)
	}
	if space := b.segments.Space(); space.Refused < 1 || space.Free >= space.Reserve {
		t.Errorf("%+v", space)
	}
	b.disk.SetCapacity(1 << 30)
	b.heals(t, 2)
}

// The answer to a batch whose topic is deleted while the flush hangs is not a success.
func TestTopicDeletedWhileProduceWaits(t *testing.T) {
	b, gate := newGatedBroker(t)
	release := gate.hold()
	defer release()
	wait := askLater[*kmsg.ProduceResponse](b, b.handleProduce, 9, b.produceRequest(produceTo{"a", 0, batchOf{}.bytes(t)}))
	deleted := make(chan struct{})
	go func() {
		defer close(deleted)
		b.deleteTopics(t.Context(), []deletion{{name: new("a")}}, nil)
	}()
	eventually(t, "the deletion to reach Postgres", func() bool { return b.store.Calls()["DeleteTopics"] > 0 })
	release() // the log's directory cannot be moved away during a flush
	<-deleted
	if code := wait().Topics[0].Partitions[0].ErrorCode; code != 0 && code != kerr.NotLeaderForPartition.Code && code != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("code %d", code)
	}
	wantCode(t, "afterwards", b.produce(9, "a", 0, batchOf{}.bytes(t)).ErrorCode, kerr.UnknownTopicOrPartition)
}
