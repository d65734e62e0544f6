package logtool

import (
	"encoding/json"
	"testing"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// fuzzFile runs both tools on a folder in which one file holds what the fuzzer made: neither may panic or fail.
func fuzzFile(t *testing.T, name string, data []byte) {
	f := newFolder()
	f.files[name] = data
	disk := f.disk(t)
	if _, err := Verify(t.Context(), VerifyOptions{FS: disk, Dir: "data"}, func(Finding) error { return nil }); err != nil {
		t.Fatal(err)
	}
	dumpQuietly(t, disk, "data/"+name)
}

func dumpQuietly(t *testing.T, disk vfs.FS, path string) {
	_, err := Dump(t.Context(), DumpOptions{FS: disk, Path: path, Records: true}, func(it Item) error {
		_ = it.Text()
		_, err := json.Marshal(it)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzLog: the first batch gets a good CRC, else that hides all behind it.
func FuzzLog(f *testing.F) {
	good := newFolder()
	f.Add(good.log(0))
	for _, s := range append(good.segments[0], good.segments[1]...) {
		s.base = 0
		f.Add(s.encode())
	}
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > headerSize {
			if b, _, _ := parseHeader(data); b.size >= headerSize && b.size <= len(data) {
				withCRC(data[:b.size])
			}
		}
		fuzzFile(t, seg0+logSuffix, data)
	})
}

func fuzzNamed(f *testing.F, names ...string) {
	for i, name := range names {
		f.Add(i, newFolder().files[name])
	}
	f.Fuzz(func(t *testing.T, i int, data []byte) {
		if i < 0 || i >= len(names) {
			t.Skip()
		}
		fuzzFile(t, names[i], data)
	})
}

func FuzzIndexes(f *testing.F) {
	fuzzNamed(f, seg0+indexSuffix, seg0+timeSuffix, seg0+abortSuffix)
}

func FuzzTextFiles(f *testing.F) {
	fuzzNamed(f, "orders-0/"+termsName, "orders-0/"+partitionMetaName, recoveryPointName, logStartName, metaName, cleanName, runName)
}

// FuzzSnapshot: with a good CRC, which else hides all behind it.
func FuzzSnapshot(f *testing.F) {
	f.Add(newFolder().files[seg1+snapshotSuffix])
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzFile(t, seg1+snapshotSuffix, sealed(data, 2, 6))
	})
}

// FuzzStateFile: a good header, then one frame with a good CRC, then anything.
func FuzzStateFile(f *testing.F) {
	f.Add(newFolder().files[stateName][27:], []byte{})
	f.Fuzz(func(t *testing.T, entries, rest []byte) {
		fuzzFile(t, stateName, append(append(stateHead("c"), frameOf(entries)...), rest...))
	})
}

// FuzzKafkaRecords: records of Kafka's own topics, whatever they hold, neither panic nor claim memory.
func FuzzKafkaRecords(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 7}, []byte{0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 1, 'm', 0, 0, 0, 0, 0, 0, 3, 232})
	f.Add([]byte{0, 2, 0, 1, 'g'}, []byte{1, kraftTopic, 0, 2, 't', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0})
	f.Add([]byte{}, []byte{1, kraftConfig, 0, kraftForTopic, 2, 't', 2, 'k', 2, 'v', 0})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if o, ok, err := parseCommitted(key, value); ok && err == nil && len(o.value.Metadata) > len(value) {
			t.Errorf("%+v", o)
		}
		s := kraftState{names: map[topicID]string{}, partitions: map[topicID]map[int32]bool{}, configs: map[string]map[string]string{}}
		_ = s.replay(value) // an error is a fine answer
	})
}
