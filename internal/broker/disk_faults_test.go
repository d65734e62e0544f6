package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/pgbroker/pgbroker/internal/meta/metatest"
	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// logged is what was logged so far.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count says how many lines contain all of the words.
func (l *logged) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

// ill is a broker whose disk fails on demand. Its partitions hold a batch each, which is read from the disk, and two
// handles are kept open for all of them, so that each turn to another has to open a file.
type ill struct {
	*testBroker
	faulty *vfs.Faulty
	log    *logged
}

func newIll(t *testing.T) *ill {
	t.Helper()
	disk, store := memDirectory(t), metatest.NewMemory()
	first := startTestBroker(t, disk, store)
	first.create("a", sickPartitions, nil)
	for p := range int32(sickPartitions) {
		first.mustProduce("a", p, batchOf{})
	}
	if err := first.segments.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	x := &ill{faulty: vfs.NewFaulty(disk), log: &logged{}}
	x.testBroker = startTestBrokerWith(t, x.faulty, store, func(o *segstore.Options, reg prometheus.Registerer) {
		o.OpenFiles, o.Log, o.Observer = 2, slog.New(slog.NewTextHandler(x.log, nil)), NewLogMetrics(reg, "/log")
	})
	x.disk = disk
	return x
}

const sickRounds, sickPartitions = 10, 4

// rounds asks all partitions several times and wants these codes; nil is success.
func (x *ill) rounds(t *testing.T, produce, fetch *kerr.Error) {
	t.Helper()
	for n := range sickRounds {
		for p := range int32(sickPartitions) {
			row := x.produce(9, "a", p, batchOf{}.bytes(t))
			wantCode(t, fmt.Sprintf("produce %d to %d", n, p), row.ErrorCode, produce)
			if produce != nil && (row.BaseOffset != -1 || !kerr.IsRetriable(kerr.ErrorForCode(row.ErrorCode))) {
				t.Errorf("produce to %d: %+v", p, row)
			}
			got := x.fetchOne(12, x.fetchRequest(fetchFrom{"a", p, 0}))
			wantCode(t, fmt.Sprintf("fetch %d from %d", n, p), got.ErrorCode, fetch)
			if has := len(got.RecordBatches) > 0; has != (fetch == nil) {
				t.Errorf("fetch from %d: %d bytes", p, len(got.RecordBatches))
			}
		}
	}
}

func (x *ill) wantLogged(t *testing.T, times int, words ...string) {
	t.Helper()
	if n := x.log.count(words...); n != times {
		t.Errorf("%d lines with %q, want %d", n, words, times)
	}
}

// J-06: without a descriptor every answer is retriable, nothing is lost, and all goes on when there are some again.
func TestNoDescriptorIsLeft(t *testing.T) {
	x := newIll(t)
	x.faulty.Fail(vfs.OpOpen, 1, syscall.EMFILE, true)
	x.rounds(t, kerr.KafkaStorageError, kerr.KafkaStorageError)
	if x.faulty.Hits() == 0 {
		t.Fatal("nothing failed")
	}
	x.wantLogged(t, 1, "disk error", "op=open", "kind=handles")
	x.wantLogged(t, 1, "disk error", "op=read", "kind=handles")
	wantLines(t, scrape(t, x.registry), fmt.Sprintf(`pgbroker_disk_errors_total{dir="/log",kind="handles"} %d`, 2*sickPartitions*sickRounds), "pgbroker_log_failures_total 0")

	x.faulty.Heal()
	for p := range int32(sickPartitions) {
		if row := x.produce(9, "a", p, batchOf{}.bytes(t)); row.ErrorCode != 0 || row.BaseOffset != 1 {
			t.Errorf("produce to %d afterwards: %+v", p, row)
		}
	}
	x.rounds(t, nil, nil)
}

// A file system that takes no writes any more ends the logs that are written to, once each, and loses nothing.
func TestReadOnlyDisk(t *testing.T) {
	x := newIll(t)
	x.faulty.Fail(vfs.OpWrite, 1, syscall.EROFS, true)
	x.rounds(t, kerr.KafkaStorageError, kerr.KafkaStorageError)
	x.wantLogged(t, 1, "disk error", "op=write", "kind=readonly")
	wantLines(t, scrape(t, x.registry), `pgbroker_disk_errors_total{dir="/log",kind="readonly"} 4`, "pgbroker_log_failures_total 4")
	x.faulty.Heal()
	x.rounds(t, kerr.KafkaStorageError, kerr.KafkaStorageError) // until a restart has checked them
}

// A log directory that was moved away, or unmounted, takes no more batches: they would lie in files without a name.
func TestLogDirectoryVanishes(t *testing.T) {
	x := newIll(t)
	if err := x.disk.Rename("/log", "/elsewhere"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss to be seen", func() bool { return x.log.count("every log is failed") > 0 })
	eventually(t, "all logs to fail", func() bool { return strings.Contains(scrape(t, x.registry), "\npgbroker_log_failures_total 4\n") })
	x.rounds(t, kerr.KafkaStorageError, kerr.KafkaStorageError)
	x.wantLogged(t, 1, "every log is failed", "the log directory /log has vanished")
}
