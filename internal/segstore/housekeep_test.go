package segstore

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// TestHousekeeper lets an hour pass: retention, checkpoints, delayed deletion
// of segments and directories, and expiry of producers come by themselves.
func TestHousekeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		cfg := testConfig()
		cfg.SegmentBytes, cfg.RetentionAge, cfg.FileDeleteDelay = 2000, 30*time.Minute, time.Minute
		s, err := Open(Options{FS: disk, Dir: "data", Durability: Relaxed, RetentionEvery: 5 * time.Minute,
			CheckpointEvery: time.Minute, ProducerExpiry: 20 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Recover(t.Context(), func(string, TopicID) LogConfig { return cfg }, nil); err != nil {
			t.Fatal(err)
		}
		defer s.Close(true, 1)
		l, err := s.Create(TopicID{1}, "t", 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.BeginTerm(1)
		mustAppend(t, l, plainBatch(BatchHeader{ProducerID: 1}, 1, 900, time.Now().UnixMilli()), 1)
		for range 9 {
			mustAppend(t, l, plainBatch(noProducer, 1, 900, time.Now().UnixMilli()), 1)
		}
		l.SetHigh(10)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if o := l.Offsets(); o.Durable != 10 {
			t.Errorf("%+v: a checkpoint makes relaxed logs durable", o)
		}
		if data, err := disk.ReadFile("data/" + recoveryPointFile); err != nil || !strings.Contains(string(data), "t 0 10\n") {
			t.Errorf("recovery points %q %v", data, err)
		}
		if l.writer != nil {
			t.Error("an idle log keeps its file open")
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := len(l.Producers()); n != 0 || l.Offsets().Start != 0 {
			t.Errorf("%d producers, %+v after 22 minutes", n, l.Offsets())
		}
		time.Sleep(14 * time.Minute)
		synctest.Wait()
		if o := l.Offsets(); o.Start != 10 || l.Segments() != 1 {
			t.Errorf("%+v, %d segments after 36 minutes", o, l.Segments())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		entries, _ := disk.ReadDir(l.dir)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), deletedSuffix) {
				t.Errorf("%s is still there", e.Name())
			}
		}
		if err := s.Delete(TopicID{1}, 0); err != nil {
			t.Fatal(err)
		}
		dirs := func() (n int) {
			entries, _ := disk.ReadDir("data")
			for _, e := range entries {
				if e.IsDir() {
					n++
				}
			}
			return n
		}
		if dirs() != 1 {
			t.Error("the directory went at once")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := dirs(); n != 0 {
			t.Errorf("%d directories left", n)
		}
	})
}

// TestUnfinishedCreateIsRemoved, and a directory with records but without a
// topic id is left alone.
func TestUnfinishedCreateIsRemoved(t *testing.T) {
	disk := vfs.NewMem()
	disk.MkdirAll("data/half-0", 0o755)
	disk.WriteFile("data/half-0/00000000000000000000.log", nil, 0o644)
	disk.MkdirAll("data/unknown-0", 0o755)
	disk.WriteFile("data/unknown-0/00000000000000000000.log", []byte("x"), 0o644)
	disk.MkdirAll("data/lost+found", 0o755)
	s := openTest(t, disk, "data", Strict, testConfig())
	defer stopTest(t, s, true)
	for path, want := range map[string]bool{"half-0": false, "unknown-0": true, "lost+found": true} {
		if _, err := disk.Stat(filepath.Join("data", path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := s.Create(TopicID{1}, "half", 0, testConfig()); err != nil {
		t.Error(err)
	}
	if _, err := s.Create(TopicID{2}, "unknown", 0, testConfig()); err == nil {
		t.Error("created over a directory that holds records")
	}
	if _, err := disk.Stat("data/half-0/" + partitionFile); err != nil {
		t.Error(err, fs.ErrNotExist)
	}
}
