package segstore

import (
	"sync"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// syncLedger is a disk that notes how many bytes of each file were there when a sync of it began.
type syncLedger struct {
	vfs.FS
	mu     sync.Mutex
	synced map[string]int64
}

func (l *syncLedger) OpenReadWrite(path string, create bool) (vfs.File, error) {
	f, err := l.FS.OpenReadWrite(path, create)
	if err != nil {
		return nil, err
	}
	return &ledgerFile{File: f, ledger: l, path: path}, nil
}

type ledgerFile struct {
	vfs.File
	ledger *syncLedger
	path   string
}

func (f *ledgerFile) SyncData() error { return f.note(f.File.SyncData) }
func (f *ledgerFile) Sync() error     { return f.note(f.File.Sync) }

func (f *ledgerFile) note(sync func() error) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if err := sync(); err != nil {
		return err
	}
	f.ledger.mu.Lock()
	defer f.ledger.mu.Unlock()
	f.ledger.synced[f.path] = max(f.ledger.synced[f.path], size)
	return nil
}

// TestEveryAckHasItsSync: each of many acknowledgements comes after a sync that began when its batch was in the file.
// A power cut finds a missing sync only by chance; this finds the first one.
func TestEveryAckHasItsSync(t *testing.T) {
	disk := &syncLedger{FS: vfs.NewMem(), synced: map[string]int64{}}
	s := openTest(t, disk, "data", Strict, testConfig())
	defer s.Close(true, 1)
	l, err := s.Create(TopicID{1}, "t", 0, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginTerm(1); err != nil {
		t.Fatal(err)
	}
	path := segmentFile(l.dir, 0, logSuffix)
	for range 2500 {
		a := mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), 1)
		durable := make(chan struct{})
		l.Watch(BoundDurable, a.LastOffset+1, func() { close(durable) })
		<-durable
		disk.mu.Lock()
		synced := disk.synced[path]
		disk.mu.Unlock()
		if size := l.Size(); synced < size {
			t.Fatalf("offset %d is acknowledged: the file has %d bytes, %d of them synced", a.LastOffset, size, synced)
		}
	}
}
