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

// topicsRoot is a log directory of a Kafka 4.4.0 after a clean stop, which test/compat/interchange/golden makes anew: three
// starts, so three leader epochs, of all that the topics' names say.
const topicsRoot = "testdata/kafka-4.4-topics"

// goldenEnds are the ends of the logs, how many segments they have, and the leader epochs' starts.
var goldenEnds = map[string]struct {
	end      int64
	segments int
	starts   []int64
}{
	"ix-codecs-0":  {90, 3, []int64{0, 30, 60}},
	"ix-codecs-1":  {90, 3, []int64{0, 30, 60}},
	"ix-txns-0":    {102, 3, []int64{0, 34, 68}},
	"ix-compact-0": {72, 2, []int64{0, 24, 48}},
	"ix-state-0":   {3, 1, []int64{0}},
}

// goldenTopics opens a copy of the directory; keep says which of the partitions' files to take, clean whether to take the
// files at the top that a clean stop leaves.
func goldenTopics(t *testing.T, clean bool, keep func(name string) bool) (*Store, *vfs.Mem) {
	t.Helper()
	disk := vfs.NewMem()
	err := filepath.WalkDir(topicsRoot, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(topicsRoot, path)
		if err != nil || strings.HasPrefix(rel, "__") {
			return err
		}
		to := filepath.Join("data", rel)
		if d.IsDir() {
			return disk.MkdirAll(to, 0o755)
		}
		top := filepath.Dir(rel) == "."
		if top && !clean && d.Name() != metaFile && d.Name() != cleanerFile || !top && !keep(d.Name()) {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.WriteFile(to, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{FS: disk, Dir: "data", Durability: Strict})
	if err == nil {
		err = s.Recover(t.Context(), goldenConfig, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(true, 0) })
	if len(s.Logs()) != len(goldenEnds) {
		t.Fatalf("%d logs", len(s.Logs()))
	}
	return s, disk
}

// goldenConfig has the index interval of each topic.
func goldenConfig(topic string, _ TopicID) LogConfig {
	cfg := testConfig()
	if topic == "ix-codecs" {
		cfg.IndexIntervalBytes = 500
	}
	return cfg
}

// eachGolden runs do for every log.
func eachGolden(t *testing.T, s *Store, do func(t *testing.T, l *Log, dir string)) {
	t.Helper()
	for _, l := range s.Logs() {
		dir := filepath.Base(l.dir)
		if l.Err() != nil {
			t.Errorf("%s: %v", dir, l.Err())
			continue
		}
		do(t, l, dir)
	}
}

func everyFile(string) bool { return true }

func onlyBatches(name string) bool {
	return strings.HasSuffix(name, logSuffix) || name == partitionFile
}

// TestServesKafkasTopics: whatever of the files is there, the bytes that Kafka wrote are served, from the same offsets and
// under the same leader epochs.
func TestServesKafkasTopics(t *testing.T) {
	for name, open := range map[string]struct {
		clean bool
		keep  func(string) bool
	}{
		"clean stop":       {true, everyFile},
		"kill":             {false, everyFile},
		"batches only":     {false, onlyBatches},
		"indexes are gone": {true, func(name string) bool { return !strings.HasSuffix(name, "index") }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := goldenTopics(t, open.clean, open.keep)
			eachGolden(t, s, func(t *testing.T, l *Log, dir string) {
				want := goldenEnds[dir]
				if o := l.Offsets(); o.End != want.end || o.Start != 0 || l.Segments() != want.segments {
					t.Errorf("%s: %+v, %d segments", dir, o, l.Segments())
				}
				var written []byte
				files, err := filepath.Glob(filepath.Join(topicsRoot, dir, "*"+logSuffix))
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(files)
				for _, f := range files {
					data, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					written = append(written, data...)
				}
				if got := readAll(t, l, 0, BoundEnd); !bytes.Equal(got, written) {
					t.Errorf("%s: %d bytes are served, Kafka wrote %d, or they differ", dir, len(got), len(written))
				}
				checkEpochs(t, l, dir, want.starts)
			})
		})
	}
}

// checkEpochs asks for the end of each leader epoch: where the next one begins.
func checkEpochs(t *testing.T, l *Log, dir string, starts []int64) {
	t.Helper()
	if len(l.terms) != len(starts) {
		t.Errorf("%s: leader epochs %v, expected starts %v", dir, l.terms, starts)
		return
	}
	for i, at := range l.terms {
		end := l.Offsets().End
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		if found, got := l.EndOfTerm(at.term); at.start != starts[i] || found != at.term || got != end {
			t.Errorf("%s: leader epoch %d begins at %d and ends at %d (%d), expected %d and %d", dir, at.term, at.start, got, found, starts[i], end)
		}
	}
}

// TestKafkasAbortedTransactions: the same ones are listed whether Kafka's index is read or ours is made from the batches.
func TestKafkasAbortedTransactions(t *testing.T) {
	list := func(clean bool, keep func(string) bool) (out []AbortedTxn) {
		s, _ := goldenTopics(t, clean, keep)
		eachGolden(t, s, func(t *testing.T, l *Log, dir string) {
			l.SetHigh(goldenEnds[dir].end)
			aborted, err := l.Aborted(0, goldenEnds[dir].end)
			if err != nil {
				t.Errorf("%s: %v", dir, err)
			}
			if o := l.Offsets(); o.Stable != o.End {
				t.Errorf("%s: a transaction is open at %d of %d", dir, o.Stable, o.End)
			}
			if dir == "ix-txns-0" {
				out = aborted
			} else if len(aborted) > 0 {
				t.Errorf("%s: aborted %v", dir, aborted)
			}
		})
		return out
	}
	kafkas, ours := list(true, everyFile), list(false, onlyBatches)
	if len(kafkas) != 15 || !slices.Equal(kafkas, ours) {
		t.Errorf("%d aborted transactions in Kafka's index: %v\nours: %v", len(kafkas), kafkas, ours)
	}
}

// sortedEntries puts a snapshot's producers in order: Kafka writes them as its hash map has them.
func sortedEntries(data []byte) []byte {
	entries := slices.Collect(slices.Chunk(data[4:], snapshotEntrySize))
	slices.SortFunc(entries, bytes.Compare)
	return append(data[:4:4], slices.Concat(entries...)...)
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	return err == nil
}

// TestRebuiltTopicsAreKafkas: what is made from the batches alone is, byte for byte, what Kafka wrote; of a snapshot the
// part that Kafka reads. Not compared is what knows more than the batches: a compacted log's snapshots, a leader epoch
// that wrote nothing, and the snapshots of stops in the middle of a segment.
func TestRebuiltTopicsAreKafkas(t *testing.T) {
	s, disk := goldenTopics(t, false, onlyBatches)
	if err := s.Close(true, 1); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for dir := range goldenEnds {
		entries, err := os.ReadDir(filepath.Join(topicsRoot, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			base, suffix, _ := parseSegmentFile(e.Name())
			snapshot := suffix == snapshotSuffix
			if snapshot && (dir == "ix-compact-0" || base != goldenEnds[dir].end && !exists(t, filepath.Join(topicsRoot, dir, e.Name()[:20]+logSuffix))) ||
				e.Name() == termFile && dir == "ix-state-0" {
				continue
			}
			want, err := os.ReadFile(filepath.Join(topicsRoot, dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got, err := disk.ReadFile(filepath.Join("data", dir, e.Name()))
			if err != nil {
				t.Error(err)
				continue
			}
			if snapshot {
				n := snapshotHeader + int(binary.BigEndian.Uint32(want[6:]))*snapshotEntrySize
				got, want = sortedEntries(got[6:min(n, len(got))]), sortedEntries(want[6:])
			}
			compared++
			if !bytes.Equal(got, want) {
				t.Errorf("%s/%s: %x, Kafka wrote %x", dir, e.Name(), got, want)
			}
		}
	}
	if compared < 40 {
		t.Errorf("only %d files were compared", compared)
	}
}

// TestKafkasProducerGoesOn: an idempotent producer that wrote to Kafka is known here: its last batch again is a duplicate,
// the next one is taken, one with a gap is not.
func TestKafkasProducerGoesOn(t *testing.T) {
	for name, keep := range map[string]func(string) bool{"snapshot": everyFile, "batches only": onlyBatches} {
		t.Run(name, func(t *testing.T) {
			s, _ := goldenTopics(t, name == "snapshot", keep)
			eachGolden(t, s, func(t *testing.T, l *Log, dir string) {
				if dir != "ix-state-0" {
					return
				}
				last := decodeHeader(readAll(t, l, 2, BoundEnd))
				term := l.LastTerm() + 1
				if _, err := l.BeginTerm(term); err != nil {
					t.Fatal(err)
				}
				again := func(sequence int32) (Appended, error) {
					h := BatchHeader{ProducerID: last.ProducerID, ProducerEpoch: last.ProducerEpoch, BaseSequence: sequence}
					return tryAppend(t, l, plainBatch(h, 1, 1, 1e12))
				}
				if d, err := again(2); err != nil || d.BaseOffset != 2 {
					t.Errorf("the last batch again: %+v %v", d, err)
				}
				if _, err := again(4); err == nil {
					t.Error("a gap was accepted")
				}
				if d, err := again(3); err != nil || d.BaseOffset != 3 {
					t.Errorf("the next batch: %+v %v", d, err)
				}
			})
		})
	}
}
