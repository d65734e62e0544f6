package segstore

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// goldenDisk is a copy of testdata/kafka-4.4: the log directory of a Kafka
// 4.4.0 after a clean stop, cut down to one topic (franz-go wrote to it: all
// codecs, idempotent; then transactions of three producers, every second one
// aborted, the last left open). keep says which files to take.
func goldenDisk(t *testing.T, keep func(name string) bool) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	root := filepath.Join("testdata", "kafka-4.4")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || d.IsDir() {
			return disk.MkdirAll(filepath.Join("data", rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil || !keep(d.Name()) {
			return err
		}
		return disk.WriteFile(filepath.Join("data", rel), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

func openGolden(t *testing.T, disk *vfs.Mem) *Log {
	t.Helper()
	s := openTest(t, disk, "data", Strict, testConfig())
	t.Cleanup(func() { s.Close(true, 0) })
	logs := s.Logs()
	if len(logs) != 1 || logs[0].Err() != nil || logs[0].Topic() != "golden" {
		t.Fatalf("%d logs, %v", len(logs), logs[0].Err())
	}
	return logs[0]
}

// TestOpensKafkasFolder: after a clean stop, and as after a kill with all that
// can be rebuilt gone.
func TestOpensKafkasFolder(t *testing.T) {
	all := func(string) bool { return true }
	bare := func(name string) bool {
		return strings.HasSuffix(name, logSuffix) || name == partitionFile || name == metaFile
	}
	for name, keep := range map[string]func(string) bool{"clean": all, "rebuilt": bare} {
		t.Run(name, func(t *testing.T) {
			l := openGolden(t, goldenDisk(t, keep))
			if m, ok := l.store.Meta(); !ok || m.ClusterID != "AAAAAAAAQACAAAAAAAAAAA" || m.NodeID != 1 || len(m.DirectoryID) != 22 {
				t.Errorf("meta.properties %+v", m)
			}
			if _, ok := l.store.CleanIncarnation(); ok != (name == "clean") {
				t.Errorf("clean stop: %v", ok)
			}
			l.SetHigh(103)
			if o := l.Offsets(); o != (Offsets{Start: 0, Stable: 101, High: 103, End: 103, Durable: 103}) || l.Segments() != 5 {
				t.Errorf("%+v, %d segments", o, l.Segments())
			}
			aborted, err := l.Aborted(0, 103)
			want := []AbortedTxn{{5, 53}, {5, 59}, {5, 65}, {6, 71}, {6, 77}, {6, 83}, {7, 89}, {7, 95}}
			if err != nil || !slices.Equal(aborted, want) {
				t.Errorf("aborted %v %v", aborted, err)
			}
			checkGoldenRecords(t, readAll(t, l, 0, BoundEnd))
			if d, err := tryAppendIn(t, l, 1); err != nil || d.BaseOffset != 103 {
				t.Errorf("append to Kafka's log: %+v %v", d, err)
			}
		})
	}
}

func tryAppendIn(t *testing.T, l *Log, term int32) (Appended, error) {
	t.Helper()
	if _, err := l.BeginTerm(term); err != nil {
		return Appended{}, err
	}
	return tryAppend(t, l, plainBatch(noProducer, 1, 1, 1))
}

// checkGoldenRecords inflates all: five codecs of ten records each.
func checkGoldenRecords(t *testing.T, data []byte) {
	t.Helper()
	perCodec := map[int]int{}
	for len(data) > 0 {
		h := decodeHeader(data)
		raw := data[:h.Size()]
		data = data[h.Size():]
		if !crcGood(raw) {
			t.Fatalf("CRC at %d", h.BaseOffset)
		}
		if h.Transactional() {
			continue
		}
		err := inflate(h.Codec(), raw[batchOverhead:], inflateLimit, func(plain []byte) error {
			_, err := checkRecords(plain, h.Records, rules{needKeys: true})
			return err
		})
		if err != nil {
			t.Fatalf("codec %d: %v", h.Codec(), err)
		}
		perCodec[h.Codec()] += int(h.Records)
	}
	for codec := codecNone; codec <= codecZstd; codec++ {
		if perCodec[codec] != 10 {
			t.Errorf("%d records of codec %d", perCodec[codec], codec)
		}
	}
}

// TestRebuiltFilesAreKafkas: what we make from the batches alone is, byte for
// byte, what Kafka wrote; of the snapshots the part that Kafka reads.
func TestRebuiltFilesAreKafkas(t *testing.T) {
	disk := goldenDisk(t, func(name string) bool { return strings.HasSuffix(name, logSuffix) || name == partitionFile })
	l := openGolden(t, disk)
	if err := l.store.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("testdata", "kafka-4.4", "golden-0")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		want, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := disk.ReadFile(filepath.Join(l.dir, e.Name()))
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.HasSuffix(e.Name(), snapshotSuffix) {
			n := snapshotHeader + int(binary.BigEndian.Uint32(want[6:]))*snapshotEntrySize
			got, want = got[6:n], want[6:]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %x, Kafka wrote %x", e.Name(), got, want)
		}
	}
}
