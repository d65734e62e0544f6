package segstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// manyNew are n logs to be made.
func manyNew(n int, cfg LogConfig) []NewLog {
	specs := make([]NewLog, n)
	for i := range specs {
		specs[i] = NewLog{ID: TopicID{1}, Topic: "many", Partition: int32(i), Config: cfg}
	}
	return specs
}

// TestCreateAllFaults: whatever call fails, each log is made or is not there,
// and can then be made; what was made is there after a power cut.
func TestCreateAllFaults(t *testing.T) {
	const logs = 3
	for n := 1; ; n++ {
		disk, cfg := vfs.NewMem(), testConfig()
		faulty := vfs.NewFaulty(disk)
		s := openTest(t, faulty, "data", Strict, cfg)
		faulty.Fail(vfs.OpAny, n, errors.New("broken"), false)
		made, errs := s.CreateAll(manyNew(logs, cfg))
		hit := faulty.Hits() > 0
		faulty.Heal()
		after := disk.CrashCopy(rand.New(rand.NewPCG(uint64(n), 1)))
		again := openTest(t, after, "data", Strict, cfg)
		failed := false
		for i := range logs {
			l, there := s.Get(TopicID{1}, int32(i))
			if there != (errs[i] == nil) || l != made[i] {
				t.Fatalf("call %d: log %d is there: %v, but its error is %v", n, i, there, errs[i])
			}
			if errs[i] == nil {
				if l, ok := again.Get(TopicID{1}, int32(i)); !ok || l.Err() != nil {
					t.Fatalf("call %d: log %d was made and is gone after a power cut", n, i)
				}
				continue
			}
			failed = true
			if !errors.Is(errs[i], ErrStorage) {
				t.Fatalf("call %d: %v", n, errs[i])
			}
			if _, err := s.Create(TopicID{1}, "many", int32(i), cfg); err != nil {
				t.Fatalf("call %d: log %d cannot be made afterwards: %v", n, i, err)
			}
		}
		stopTest(t, again, true)
		stopTest(t, s, true)
		if !hit {
			if failed {
				t.Fatal("no call failed, but a log was not made")
			}
			return
		}
	}
}

// TestCreateAllTakesEachNameOnce: one of two of a name is made, and the others
// are not held up.
func TestCreateAllTakesEachNameOnce(t *testing.T) {
	cfg := testConfig()
	s := openTest(t, vfs.NewMem(), "data", Strict, cfg)
	defer stopTest(t, s, true)
	specs := append(manyNew(3, cfg), NewLog{ID: TopicID{2}, Topic: "many", Partition: 1, Config: cfg})
	_, errs := s.CreateAll(specs)
	if errs[0] != nil || errs[1] != nil || errs[2] != nil || !errors.Is(errs[3], ErrExists) {
		t.Errorf("%v", errs)
	}
}

// order counts write-backs, the syncs of files, and those that come before a write-back.
type order struct {
	vfs.FS
	writeBacks, early, syncs atomic.Int32
}

func (o *order) WriteBackAll(string) { o.writeBacks.Add(1) }

func (o *order) OpenReadWrite(path string, create bool) (vfs.File, error) {
	f, err := o.FS.OpenReadWrite(path, create)
	return &orderFile{f, o}, err
}

type orderFile struct {
	vfs.File
	o *order
}

func (f *orderFile) note() {
	f.o.syncs.Add(1)
	if f.o.writeBacks.Load() == 0 {
		f.o.early.Add(1)
	}
}
func (f *orderFile) Sync() error     { f.note(); return f.File.Sync() }
func (f *orderFile) SyncData() error { f.note(); return f.File.SyncData() }

// TestManyLogsAreWrittenBackBeforeTheirSyncs: what has to sync many logs writes
// all of them first, has the file system written back, and then syncs each file
// all the same.
func TestManyLogsAreWrittenBackBeforeTheirSyncs(t *testing.T) {
	const logs = 2 * writeBackFrom
	cfg := testConfig()
	disk := &order{FS: vfs.NewMem()}
	s := openTest(t, disk, "data", Relaxed, cfg)
	check := func(what string, atLeast int32, do func()) {
		t.Helper()
		for _, n := range [...]*atomic.Int32{&disk.writeBacks, &disk.early, &disk.syncs} {
			n.Store(0)
		}
		do()
		writeBacks, early, syncs := disk.writeBacks.Load(), disk.early.Load(), disk.syncs.Load()
		if writeBacks == 0 || early > 1 || syncs < atLeast {
			t.Errorf("%s: %d write-backs, %d syncs, %d of them before it", what, writeBacks, syncs, early)
		}
	}
	var made []*Log
	check("create", logs, func() { made, _ = s.CreateAll(manyNew(logs, cfg)) })
	touch := func() {
		for i := range logs {
			l, _ := s.Get(TopicID{1}, int32(i))
			l.BeginTerm(l.LastTerm() + 1)
			mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), l.LastTerm())
		}
	}
	touch()
	// records, two indexes and a snapshot
	check("stop", 4*logs, func() { stopTest(t, s, true) })
	s = openTest(t, disk, "data", Relaxed, cfg)
	touch()
	stopTest(t, s, false)
	check("start after a kill", logs, func() {
		var err error
		if s, err = Open(Options{FS: disk, Dir: "data", Durability: Relaxed}); err != nil {
			t.Fatal(err)
		}
		if err := s.Recover(context.Background(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
			t.Fatal(err)
		}
	})
	for i := range made {
		if l, _ := s.Get(TopicID{1}, int32(i)); l.Offsets().End != 2 || l.Offsets().Durable != 2 {
			t.Errorf("log %d: %+v", i, l.Offsets())
		}
	}
	stopTest(t, s, true)
}

// TestUntouchedLogsCostNothing: logs that were never written to are written to
// by neither a stop nor a start, and hold the first record afterwards.
func TestUntouchedLogsCostNothing(t *testing.T) {
	cfg := testConfig()
	disk := &order{FS: vfs.NewMem()}
	s := openTest(t, disk, "data", Strict, cfg)
	s.CreateAll(manyNew(20, cfg))
	for _, l := range s.Logs() {
		l.BeginTerm(3)
	}
	for range 2 {
		disk.syncs.Store(0)
		stopTest(t, s, true)
		s = openTest(t, disk, "data", Strict, cfg)
		if n := disk.syncs.Load(); n > 10 { // the files at the top
			t.Errorf("%d syncs", n)
		}
	}
	l, _ := s.Get(TopicID{1}, 0)
	l.BeginTerm(4)
	mustAppend(t, l, plainBatch(noProducer, 1, 10, 1), 4)
	stopTest(t, s, true)
	s = openTest(t, disk, "data", Strict, cfg)
	defer stopTest(t, s, true)
	l, _ = s.Get(TopicID{1}, 0)
	if o := l.Offsets(); l.Err() != nil || o.End != 1 || l.LastTerm() != 4 {
		t.Errorf("%+v, term %d, %v", o, l.LastTerm(), l.Err())
	}
}
