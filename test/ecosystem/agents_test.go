package ecosystem

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// Two agents are tested: rsyslog's output over librdkafka, and Telegraf's over sarama, which is built from source and so runs at
// length only. Vector and Fluent Bit have no package of Debian 12, PyPI, npm or Go, and Redpanda Connect's licence is not an
// open one: they are not tested.

// idleFor is how long a connection may be unused in these tests; Kafka's ten minutes are too long to wait for.
const idleFor = time.Second

func startIdle(t *testing.T) *harness.Broker {
	t.Helper()
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"), Set: []string{"group.initial.rebalance.delay.ms=0",
		fmt.Sprint("connections.max.idle.ms=", idleFor.Milliseconds())}})
	b.MustStart()
	return b
}

// ship has an agent that runs send a file that grows, with a rest in which its connections are closed as idle, while the broker
// is killed in the second half. All its lines are in the topic afterwards.
func ship(t *testing.T, b *harness.Broker, input, topic string, n, kills int, within time.Duration) (values []string) {
	t.Helper()
	count := func() int { return len(distinct(valuesOf(t, b, topic))) }
	grow(t, input, 0, n/2, within/4)
	eventually(t, time.Minute, "the first half is in the topic", func() bool { return count() >= n/2 })
	time.Sleep(2 * idleFor)
	hit := during(t, b, kills, func() { grow(t, input, n/2, n, within) })
	eventually(t, time.Minute, "all lines are in the topic", func() bool { return count() >= n })
	values = valuesOf(t, b, topic)
	want := numbered(n)
	if got := slices.Sorted(slices.Values(distinct(values))); !slices.Equal(got, want) {
		t.Errorf("%d lines arrived, want %d: %s", len(got), n, difference(got, want))
	}
	t.Logf("%d lines, %d kills of the broker, %d lines came twice", n, hit, len(values)-n)
	if hit == 0 {
		t.Error("the broker was never killed")
	}
	return values
}

func valuesOf(t *testing.T, b *harness.Broker, topic string) (values []string) {
	t.Helper()
	for _, r := range readFrom(t, b.Bootstrap(), topic) {
		values = append(values, strings.TrimSpace(string(r.Value)))
	}
	return values
}

// TestRsyslog: rsyslog sends a file by its Kafka output, over an idempotent producer of librdkafka. Each line is in the topic once,
// in order.
func TestRsyslog(t *testing.T) {
	n, kills, within := size(t, 400, 8000), size(t, 1, 10), size(t, 4*time.Second, 30*time.Second)
	root := filepath.Join(script(t, "agents/prepare", "rsyslog"), "root")
	libraries := filepath.Join(root, "usr/lib", map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]+"-linux-gnu")
	b := startIdle(t)
	create(t, b, 1, "logs")
	dir := t.TempDir()
	input, config := filepath.Join(dir, "input"), filepath.Join(dir, "rsyslog.conf")
	settings := fmt.Sprintf(`global(workDirectory="%s")
module(load="imfile")
module(load="omkafka")
template(name="line" type="string" string="%%msg%%")
input(type="imfile" file="%s" tag="input" ruleset="kafka")
ruleset(name="kafka") {
  action(type="omkafka" broker=["%s"] topic="logs" template="line" partitions.auto="on" confParam=["enable.idempotence=true", "linger.ms=5"]
    action.resumeRetryCount="-1" action.resumeInterval="1")
}
`, dir, input, b.Bootstrap())
	for name, text := range map[string]string{input: "", config: settings} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := launch(t, []string{"LD_LIBRARY_PATH=" + libraries}, filepath.Join(root, "usr/sbin/rsyslogd"), "-n", "-f", config, "-i", filepath.Join(dir, "pid"),
		"-M", filepath.Join(libraries, "rsyslog"))
	values := ship(t, b, input, "logs", n, kills, within)
	agent.stop(t)
	if want := numbered(n); !slices.Equal(values, want) {
		t.Errorf("%d lines, want %d, each once and in order: %s", len(values), n, difference(values, want))
	}
}

// TestTelegraf: Telegraf sends a file by its Kafka output and reads the topic, and one of transactions, by its Kafka input, a
// group of sarama's, into a file. It promises each line at least once. Its input is told a version of Kafka: by default it sends
// Fetch version 3, which Kafka 4 does not serve any more, and neither do we.
func TestTelegraf(t *testing.T) {
	if size(t, true, false) {
		t.Skip("Telegraf takes minutes to build: it runs at length only (make ecosystem)")
	}
	const n, kills, within = 4000, 10, 40 * time.Second
	binary := filepath.Join(script(t, "agents/prepare", "telegraf"), "telegraf")
	b := startIdle(t)
	create(t, b, 1, "logs")
	newTopic(t, b.Bootstrap(), "invoices", nil)
	settle(t, b.Bootstrap(), "invoices", 200)
	dir := t.TempDir()
	input, output, config := filepath.Join(dir, "input"), filepath.Join(dir, "output"), filepath.Join(dir, "telegraf.conf")
	settings := fmt.Sprintf(`[agent]
  interval = "1s"
  flush_interval = "1s"
  metric_buffer_limit = 100000
  omit_hostname = true
[[inputs.tail]]
  files = ["%[1]s"]
  initial_read_offset = "beginning"
  max_undelivered_lines = 5000
  name_override = "sent"
  data_format = "value"
  data_type = "string"
[[outputs.kafka]]
  brokers = ["%[2]s"]
  topic = "logs"
  required_acks = -1
  idempotent_writes = true
  namepass = ["sent"]
  data_format = "template"
  template = '{{ .Field "value" }}'
[[inputs.kafka_consumer]]
  brokers = ["%[2]s"]
  topics = ["logs", "invoices"]
  consumer_group = "telegraf"
  version = "2.8.0"
  offset = "oldest"
  max_undelivered_messages = 5000
  name_override = "received"
  data_format = "value"
  data_type = "string"
[[outputs.file]]
  files = ["%[3]s"]
  namepass = ["received"]
  data_format = "template"
  template = '''{{ .Field "value" }}
'''
`, input, b.Bootstrap(), output)
	for name, text := range map[string]string{input: "", config: settings} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := launch(t, nil, binary, "--config", config)
	ship(t, b, input, "logs", n, kills, within)
	want := append(numbered(n), func() (values []string) {
		for i := range 200 {
			values = append(values, fmt.Sprint("value-", i))
		}
		return values
	}()...)
	slices.Sort(want)
	read := func() []string {
		return slices.DeleteFunc(distinct(linesOf(t, output)), func(l string) bool { return l == "" || strings.HasPrefix(l, "value-1000") })
	}
	eventually(t, 2*time.Minute, "all is read", func() bool { return len(read()) >= len(want) })
	agent.stop(t)
	if got := slices.Sorted(slices.Values(read())); !slices.Equal(got, want) {
		t.Errorf("%d lines were read, want %d: %s", len(got), len(want), difference(got, want))
	}
}
