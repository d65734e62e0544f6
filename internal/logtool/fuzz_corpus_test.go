package logtool

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var writeCorpus = flag.Bool("write-corpus", false, "write the seeds of the fuzz targets to testdata")

// corpus gives the seeds of each target: files that Kafka 4.4 wrote, whole, cut off, with a flipped bit and with bytes
// too many.
func corpus(t *testing.T) map[string]string {
	seeds := map[string]string{}
	add := func(target, pattern string, arguments func(data []byte) []any) {
		files, err := filepath.Glob(filepath.Join(golden, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for kind, damaged := range damages(data) {
				seeds[target+"/kafka-"+filepath.Base(path)+kind] = seedFile(arguments(damaged)...)
			}
		}
	}
	only := func(data []byte) []any { return []any{data} }
	as := func(i int) func([]byte) []any { return func(data []byte) []any { return []any{i, data} } }
	add("FuzzLog", "*/*.log", only)
	add("FuzzSnapshot", "*/*.snapshot", only)
	add("FuzzIndexes", "*/*.timeindex", as(1))
	add("FuzzIndexes", "*/*.txnindex", as(2))
	add("FuzzTextFiles", "*/leader-epoch-checkpoint", as(0))
	add("FuzzTextFiles", "*/partition.metadata", as(1))
	add("FuzzTextFiles", "recovery-point-offset-checkpoint", as(2))
	add("FuzzTextFiles", "log-start-offset-checkpoint", as(3))
	add("FuzzTextFiles", "meta.properties", as(4))
	state := newFolder().files[stateName] // which is pgbroker's own
	for kind, damaged := range damages(state[27:]) {
		seeds["FuzzStateFile/state"+kind] = seedFile(damaged, state[:27])
	}
	return seeds
}

func damages(data []byte) map[string][]byte {
	all := map[string][]byte{"": data}
	if len(data) > 1 {
		flipped := bytes.Clone(data)
		flipped[len(data)/2] ^= 0x20
		all["-cut"], all["-flipped"], all["-longer"] = data[:len(data)*2/3], flipped, append(bytes.Clone(data), data[:len(data)/2]...)
	}
	return all
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

// TestFuzzCorpus keeps the committed seeds in step with the files of Kafka and the arguments of the targets. Inputs that
// a fuzzer found stay beside them.
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
