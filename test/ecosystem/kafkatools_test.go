package ecosystem

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

var recordTools = flag.String("record-tools", "", "kafka: write what the tools print against a real Kafka; here: what they print against us where it differs")

// shortTools are the scripts of a short run.
var shortTools = []string{"01-empty", "02-topics", "04-groups"}

// TestKafkaTools: Kafka's command-line tools print against our broker what they print against a real Kafka 4.4, but for what
// docs/deviations.md names.
func TestKafkaTools(t *testing.T) {
	only := size(t, shortTools, nil)
	jars := script(t, "../compat/kafka/assemble")
	sum := toolsSum(t, jars)
	paths, err := filepath.Glob("testdata/kafkatools/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	named, err := toolDeviations("../../docs/deviations.md")
	if err != nil {
		t.Fatal(err)
	}
	run := newToolRun(t, jars)
	begun := time.Now()
	same, deviating := 0, 0
	for _, path := range paths {
		s, err := readToolScript(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.cases {
			name := s.name + "/" + c.name
			switch {
			case c.deviates() && !named[name] && *recordTools == "":
				t.Errorf("%s differs from Kafka, and no row of docs/deviations.md says why", name)
			case c.deviates():
				deviating++
			default:
				same++
			}
			if c.deviates() {
				delete(named, name)
			}
		}
		if only != nil && !slices.Contains(only, s.name) && *recordTools == "" {
			continue
		}
		if *recordTools != "kafka" && s.header[0] != sum {
			t.Errorf("%s was recorded with other jars: record it anew (-record-tools kafka)\n  %s\n  %s", s.path, s.header[0], sum)
		}
		run.script(s)
		if *recordTools != "" {
			s.header[0] = sum
			if err := s.write(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range named {
		if *recordTools == "" {
			t.Errorf("docs/deviations.md names %s, which does not differ", name)
		}
	}
	t.Logf("%d calls in %.1f s; in all scripts %d cases are the same, %d deviate with a reason", run.calls, time.Since(begun).Seconds(), same, deviating)
}

// toolsSum names the Kafka that answered: the checksums of the jars of its tools and of its broker.
func toolsSum(t *testing.T, jars string) string {
	t.Helper()
	sum := "# Apache Kafka 4.4.0"
	for _, jar := range []string{"kafka-tools-4.4.0.jar", "kafka_2.13-4.4.0.jar"} {
		b, err := os.ReadFile(filepath.Join(jars, jar))
		if err != nil {
			t.Fatal(err)
		}
		sum += fmt.Sprintf(", %s %x", jar, sha256.Sum256(b))
	}
	return sum
}

// serveSettings are what ../compat/kafka/serve sets for a real Kafka, as far as the tools show it.
var serveSettings = []string{"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4", "offsets.topic.replication.factor=1",
	"transaction.state.log.num.partitions=4", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1"}

// newToolRun starts the broker, a real one to record it, and the JVM of the tools.
func newToolRun(t *testing.T, jars string) *toolRun {
	t.Helper()
	r := &toolRun{t: t, files: map[string]string{}}
	if *recordTools == "kafka" {
		dir, port := filepath.Join(t.TempDir(), "kafka"), harness.FreePort(t)
		r.bootstrap, r.dir, r.port = fmt.Sprintf("127.0.0.1:%d", port), filepath.Join(dir, "logs"), port
		serveKafka(t, port, dir)
	} else {
		b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"), Set: serveSettings})
		b.MustStart()
		r.bootstrap, r.dir = b.Bootstrap(), b.Dir()
		_, port, _ := strings.Cut(r.bootstrap, ":")
		_, _ = fmt.Sscan(port, &r.port)
	}
	r.client = newToolClient(t, r.bootstrap)
	eventually(t, time.Minute, "the broker answers", func() bool {
		meta, err := kadm.NewClient(r.client).BrokerMetadata(t.Context())
		r.cluster = meta.Cluster
		return err == nil && len(meta.Brokers) == 1
	})
	r.shell(jars)
	return r
}

// serveKafka runs a real Kafka until the test ends.
func serveKafka(t *testing.T, port int, dir string) {
	t.Helper()
	var log harness.Buffer
	cmd := exec.Command("../compat/kafka/serve", fmt.Sprint(port), dir)
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Kafka's log (end):\n%s", harness.Tail(log.String(), 20))
		}
	})
}
