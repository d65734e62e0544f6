package logtool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// kafkaDisk is a disk in memory with Kafka's directory as kafka/, and an empty data/.
func kafkaDisk(t *testing.T) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	err := filepath.WalkDir(goldenTopics, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(goldenTopics, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return disk.MkdirAll(filepath.Join("kafka", rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.WriteFile(filepath.Join("kafka", rel), data, 0o644)
	})
	if err == nil {
		err = disk.MkdirAll("data", 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// adoptAll adopts every topic.
func adoptAll(t *testing.T, fsys vfs.FS) error {
	t.Helper()
	k, err := ReadKafka(t.Context(), fsys, "kafka", "")
	if err != nil {
		return err
	}
	for _, topic := range k.Topics {
		a, err := k.Adopt(t.Context(), topic, AdoptOptions{Dir: "data"})
		if err == nil {
			err = a.Publish()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkAdopted opens the directory as a broker does, and compares batches, byte for byte, with Kafka's.
func checkAdopted(t *testing.T, disk *vfs.Mem) {
	t.Helper()
	s, err := segstore.Open(segstore.Options{FS: disk, Dir: "data"})
	w := storeWorld{}
	if err == nil {
		err = s.Recover(t.Context(), w.config, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int64{}
	for _, l := range s.Logs() {
		if l.Err() != nil {
			t.Errorf("%s: %v", l.Topic(), l.Err())
			continue
		}
		ends[partition{l.Topic(), l.Partition()}.String()] = l.Offsets().End
	}
	if err := s.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"ix-codecs-0": 90, "ix-codecs-1": 90, "ix-txns-0": 102, "ix-compact-0": 72, "ix-state-0": 3}
	if len(ends) != len(want) {
		t.Errorf("%v", ends)
	}
	files, from := content(t, disk, "data"), content(t, disk, "kafka")
	for dir, end := range want {
		if ends[dir] != end {
			t.Errorf("%s ends at %d", dir, ends[dir])
		}
		for path, data := range from {
			if strings.HasPrefix(path, "kafka/"+dir+"/") && strings.HasSuffix(path, logSuffix) && files["data"+strings.TrimPrefix(path, "kafka")] != data {
				t.Errorf("%s differs", path)
			}
		}
	}
	list, sum := findings(t, disk, VerifyOptions{Compacted: []string{"ix-compact"}})
	if sum.Errors > 0 {
		t.Errorf("%q", list)
	}
}

// TestAdopt: Kafka's topics become ours, and its directory stays as it was. Done again it changes nothing.
func TestAdopt(t *testing.T) {
	disk := kafkaDisk(t)
	before := content(t, disk, "kafka")
	if err := adoptAll(t, disk); err != nil {
		t.Fatal(err)
	}
	checkAdopted(t, disk)
	once := content(t, disk, "data")
	if err := adoptAll(t, disk); err != nil {
		t.Fatal(err)
	}
	delete(once, "data/"+cleanName)
	twice := content(t, disk, "data")
	for path, data := range once {
		if twice[path] != data {
			t.Errorf("the second run changed %s", path)
		}
	}
	after := content(t, disk, "kafka")
	for path, data := range before {
		if after[path] != data {
			t.Errorf("Kafka's %s was changed", path)
		}
	}
}

// TestAdoptIsCutShort: calls on the disk fail, as does everything behind them; what a second run then finds is made whole.
func TestAdoptIsCutShort(t *testing.T) {
	boom := errors.New("boom")
	failed := 0
	for n := 1; ; n += 29 {
		disk := kafkaDisk(t)
		faulty := vfs.NewFaulty(disk)
		faulty.Fail(vfs.OpAny, n, boom, true)
		err := adoptAll(t, faulty)
		if faulty.Hits() == 0 {
			break
		}
		if err == nil {
			t.Fatalf("the failure of call %d was not told", n)
		}
		failed++
		if err := adoptAll(t, disk); err != nil {
			t.Fatalf("after the failure of call %d: %v", n, err)
		}
		checkAdopted(t, disk)
		if t.Failed() {
			t.Fatalf("call %d failed", n)
		}
	}
	if failed < 10 {
		t.Errorf("only %d failures", failed)
	}
}

func TestAdoptRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		topic  string // at fault
		change func(disk *vfs.Mem) error
		want   string
	}{
		"another topic of the name": {"ix-state", func(disk *vfs.Mem) error {
			return errors.Join(disk.MkdirAll("data/ix-state-0", 0o755), disk.WriteFile("data/ix-state-0/"+partitionMetaName, []byte("version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA"), 0o644))
		}, "is there and is not this topic"},
		"a partition is missing": {"ix-codecs", func(disk *vfs.Mem) error { return disk.RemoveAll("kafka/ix-codecs-0") }, "of its 2 partitions only [1] are here"},
		"corruption": {"ix-codecs", func(disk *vfs.Mem) error {
			data, err := disk.ReadFile("kafka/ix-codecs-1/00000000000000000000.log")
			if err != nil {
				return err
			}
			return disk.WriteFile("kafka/ix-codecs-1/00000000000000000000.log", flip(data, 100), 0o644)
		}, "CRC of the batch is wrong"},
	} {
		disk := kafkaDisk(t)
		if err := c.change(disk); err != nil {
			t.Fatal(err)
		}
		before := content(t, disk, "data")
		err := adoptAll(t, disk)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		for path := range content(t, disk, "data") {
			if _, ok := before[path]; !ok && strings.HasPrefix(path, "data/"+c.topic) || strings.Contains(path, ".import-") {
				t.Errorf("%s: %s is left", name, path)
			}
		}
	}
}

// TestExport: what is exported is whole and verified, with leader epoch 0, and can be adopted again.
func TestExport(t *testing.T) {
	disk := newFolder().disk(t)
	before := content(t, disk, "data")
	var done []Exported
	export := func(to string, keep bool) error {
		return Export(t.Context(), ExportOptions{FS: disk, Dir: "data", To: to, Topics: []string{"orders"}, KeepTerms: keep}, func(e Exported) error {
			done = append(done, e)
			return nil
		})
	}
	if err := errors.Join(export("out/a", false), export("out/b", true)); err != nil {
		t.Fatal(err)
	}
	if len(done) != 2 || done[0].End != 31 || done[0].TopicID != (topicID{1, 2, 3}).String() {
		t.Errorf("%+v", done)
	}
	for path, data := range content(t, disk, "data") {
		if before[path] != data {
			t.Errorf("%s was changed", path)
		}
	}
	for _, dir := range []string{"out/a", "out/b"} {
		var list []string
		s, err := Verify(t.Context(), VerifyOptions{FS: disk, Dir: dir}, func(f Finding) error { list = append(list, f.String()); return nil })
		if err != nil || s.Errors > 0 || s.Records != 31 {
			t.Errorf("%s: %+v %v %q", dir, s, err, list)
		}
	}
	kept, same := content(t, disk, "out/b"), content(t, disk, "data")
	if kept["out/b/"+seg0+logSuffix] != same["data/"+seg0+logSuffix] || kept["out/b/orders-0/"+termsName] != same["data/orders-0/"+termsName] {
		t.Error("with the leader epochs kept the files differ")
	}
	if terms := content(t, disk, "out/a")["out/a/orders-0/"+termsName]; terms != "0\n1\n0 0\n" {
		t.Errorf("leader epochs %q", terms)
	}
	if err := export("out/a", false); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("again: %v", err)
	}
	if err := Export(t.Context(), ExportOptions{FS: disk, Dir: "data", To: "out/c", Topics: []string{"none"}}, nil); err == nil {
		t.Error("a topic that is not there")
	}
	lock, err := disk.Lock("data/" + lockName)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := export("out/d", false); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
}
