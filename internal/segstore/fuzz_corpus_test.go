package segstore

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeCorpus = flag.Bool("write-corpus", false, "write the seeds of the fuzz targets to testdata")

// kafkaFolder is what a Kafka 4.4 wrote.
const kafkaFolder = "testdata/kafka-4.4"

// damaged is a file as it is, cut off, with a flipped bit and with bytes too many.
func damaged(name string, data []byte) map[string][]byte {
	all := map[string][]byte{name: data}
	if len(data) < 2 {
		return all
	}
	flipped := bytes.Clone(data)
	flipped[len(data)/2] ^= 0x20
	all[name+"-cut"], all[name+"-flipped"], all[name+"-longer"] = data[:len(data)*2/3], flipped, append(bytes.Clone(data), data[:len(data)/2]...)
	return all
}

// kafkaBatches are batches of Kafka's log, one of each kind: codec, control,
// transactional, with a producer id.
func kafkaBatches(t testing.TB) map[string][]byte {
	all := map[string][]byte{}
	for _, path := range kafkaFiles(t, "*/*.log") {
		data := readSeed(t, path)
		for len(data) >= batchOverhead {
			n := lengthOverhead + int(binary.BigEndian.Uint32(data[atLength:]))
			b, err := ParseBatch(data[:n])
			if err != nil {
				t.Fatal(err)
			}
			kind := fmt.Sprintf("kafka-attributes-%d-producer-%v", b.Attributes, b.ProducerID >= 0)
			if _, ok := all[kind]; !ok && n <= 8<<10 {
				all[kind] = data[:n]
			}
			data = data[n:]
		}
	}
	return all
}

func kafkaFiles(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(kafkaFolder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return files
}

func readSeed(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// seedFile is a corpus file in the form of the testing package.
func seedFile(values ...any) string {
	lines := []string{"go test fuzz v1"}
	for _, v := range values {
		if b, ok := v.([]byte); ok {
			lines = append(lines, fmt.Sprintf("[]byte(%q)", b))
			continue
		}
		lines = append(lines, fmt.Sprintf("%T(%v)", v, v))
	}
	return strings.Join(lines, "\n") + "\n"
}

// corpus gives the seeds of each target: pieces of files that Kafka wrote, whole and damaged.
func corpus(t testing.TB) map[string]string {
	seeds := map[string]string{}
	batches := kafkaBatches(t)
	for kind, raw := range batches {
		for name, data := range damaged(kind, raw) {
			seeds["FuzzBatch/"+name] = seedFile(data, false, 4)
		}
		b, _ := ParseBatch(raw)
		seeds["FuzzBatch/"+kind+"-compact"] = seedFile(raw, true, 0)
		seeds["FuzzInflate/"+kind] = seedFile(b.Codec(), raw[batchOverhead:])
		for name, data := range damaged(kind, plainSeed(t, &b)) {
			seeds["FuzzRecords/"+name] = seedFile(data, int(b.Records))
		}
	}
	for _, path := range kafkaFiles(t, "*/*.snapshot") {
		for name, data := range damaged("kafka-"+filepath.Base(path), readSeed(t, path)) {
			seeds["FuzzSnapshot/"+name] = seedFile(data)
		}
	}
	abort := readSeed(t, kafkaFiles(t, "*/*.txnindex")[0])
	for name, data := range damaged("kafka-txnindex", abort) {
		seeds["FuzzIndexes/"+name] = seedFile([]byte{}, data, int64(9))
	}
	for _, path := range kafkaFiles(t, "*/*.index") {
		base := strings.TrimSuffix(path, ".index")
		times := readSeed(t, base+".timeindex")
		for name, data := range damaged("kafka-"+filepath.Base(base), readSeed(t, path)) {
			if len(data) <= 4<<10 && len(times) <= 4<<10 {
				seeds["FuzzIndexes/"+name] = seedFile(data, times, int64(20))
			}
		}
	}
	texts := slices.Concat(kafkaFiles(t, "*checkpoint"), kafkaFiles(t, "*/*checkpoint"), kafkaFiles(t, "*/partition.metadata"), kafkaFiles(t, "meta.properties"))
	for _, path := range texts {
		for name, data := range damaged("kafka-"+filepath.Base(path), readSeed(t, path)) {
			seeds["FuzzCheckpoints/"+name] = seedFile(data)
		}
	}
	return seeds
}

func plainSeed(t testing.TB, b *Batch) (plain []byte) {
	err := inflate(b.Codec(), b.Raw[batchOverhead:], inflateLimit, func(p []byte) error { plain = bytes.Clone(p); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestFuzzCorpus keeps the committed seeds in step with the files of Kafka and
// the arguments of the targets. Inputs that a fuzzer found stay beside them.
func TestFuzzCorpus(t *testing.T) {
	for name, want := range corpus(t) {
		path := filepath.Join("testdata", "fuzz", name)
		if *writeCorpus {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("seed %s is out of date (%v): run go test -run TestFuzzCorpus -write-corpus", name, err)
		}
	}
}
