package segstore

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/segstore/vfs"
)

// kafkaJars is the folder of Kafka's jars. They are fetched only where nothing may be skipped.
func kafkaJars(t *testing.T) string {
	t.Helper()
	all := os.Getenv("PGBROKER_TEST_REQUIRE") == "all"
	jars := os.Getenv("COMPAT_JARS")
	if jars == "" {
		jars = "../../.cache/kafka-4.4.0"
	}
	if _, err := os.Stat(filepath.Join(jars, ".stamp")); err != nil && !all {
		t.Skip("Kafka's jars are not there: test/compat/kafka/assemble fetches them")
	}
	out, err := exec.Command("../../test/compat/kafka/assemble").Output()
	if err != nil {
		t.Fatalf("test/compat/kafka/assemble: %v", err)
	}
	return strings.TrimSpace(string(out))
}

var dumpedBatch = regexp.MustCompile(`^baseOffset: (\d+) .*count: (\d+) .*compresscodec: (\w+) .*isvalid: true`)

// TestKafkaReadsRecodedBatches: Kafka's DumpLogSegments, looking into the
// batches, finds every record of every pair of codecs, valid, in the codec that
// the topic asks for, and every level.
func TestKafkaReadsRecodedBatches(t *testing.T) {
	jars := kafkaJars(t)
	dir := t.TempDir()
	s, err := Open(Options{FS: vfs.OS{}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Create(TopicID{1}, "t", 0, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginTerm(1); err != nil {
		t.Fatal(err)
	}
	const records = 300
	var want []string
	for _, level := range []int{0, 1, 7} {
		for target, name := range compressionTypes {
			for source := range compressionTypes {
				cfg := testConfig()
				cfg.Compression, cfg.GzipLevel, cfg.LZ4Level, cfg.ZstdLevel = name, level, level, level
				cfg.LogAppendTime = level == 1
				l.SetConfig(cfg)
				b, err := ParseBatch(inCodec(t, source, plainBatch(noProducer, records, 400, 1_700_000_000_000)))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.AppendLeader(b, 1); err != nil {
					t.Fatal(err)
				}
				want = append(want, fmt.Sprintf("%d %d %s", len(want)*records, records, strings.ToUpper([]string{"none", "gzip", "snappy", "lz4", "zstd"}[target])))
			}
		}
	}
	if err := s.Close(true, 0); err != nil {
		t.Fatal(err)
	}
	// The append times are years from the others, so there are several segments.
	files, err := filepath.Glob(filepath.Join(dir, "t-0", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	// the bound is for a machine that is busy with other tests
	cmd := exec.CommandContext(t.Context(), "timeout", "120", "java", "-XX:TieredStopAtLevel=1", "-cp", jars+"/*", "org.apache.kafka.tools.DumpLogSegments",
		"--deep-iteration", "--print-data-log", "--files", strings.Join(files, ","))
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("DumpLogSegments: %v\n%s", err, stderr.Bytes())
	}
	var got []string
	inside := 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := dumpedBatch.FindStringSubmatch(line); m != nil {
			got = append(got, m[1]+" "+m[2]+" "+strings.ToUpper(m[3]))
		}
		if strings.HasPrefix(line, "| offset: ") && strings.Contains(line, "valueSize: 400 ") && strings.Contains(line, "key: k payload: "+string(rune('a'+inside%records%26))) {
			inside++
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("batches\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if inside != len(want)*records {
		t.Errorf("%d records of %d; the end of the output: %s %s", inside, len(want)*records, out[max(0, len(out)-500):], stderr.Bytes())
	}
}
