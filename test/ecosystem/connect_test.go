package ecosystem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pgbroker/pgbroker/test/harness"
)

// worker is a Kafka Connect worker of a distributed cluster, or another program with a REST interface over HTTP.
type worker struct {
	*program
	url string
}

// connect starts a worker of the cluster "connect" and waits until it has read its topics to their ends and answers.
func connect(t *testing.T, b *harness.Broker, classpath string) worker {
	t.Helper()
	w := worker{url: fmt.Sprint("http://127.0.0.1:", harness.FreePort(t))}
	config := filepath.Join(t.TempDir(), "worker.properties")
	settings := "bootstrap.servers=" + b.Bootstrap() + "\nlisteners=" + w.url + `
group.id=connect
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=3
status.storage.partitions=2
offset.flush.interval.ms=500
session.timeout.ms=6000
heartbeat.interval.ms=500
scheduled.rebalance.max.delay.ms=0
exactly.once.source.support=enabled
plugin.discovery=only_scan
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
`
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	w.program = jvm(t, classpath, "org.apache.kafka.connect.cli.ConnectDistributed", nil, config)
	w.answers(t, "/connectors")
	return w
}

// answers waits until the program's REST interface answers at a path.
func (w worker) answers(t *testing.T, path string) {
	t.Helper()
	eventually(t, 2*time.Minute, "REST answers", func() bool {
		select {
		case <-w.exited:
			t.Fatalf("%s ended before it answered", filepath.Base(w.cmd.Path))
		default:
		}
		_, err := w.call(t, http.MethodGet, path, "")
		return err == nil
	})
}

// call sends a request, with a JSON body when there is one; an answer of 400 or above is an error.
func (w worker) call(t *testing.T, method, path, body string) ([]byte, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Timeout: 90 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode >= 400 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}

// connector creates or changes a connector, again while the cluster is rebalancing (409).
func (w worker) connector(t *testing.T, name string, config map[string]string) {
	t.Helper()
	body, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(300 * time.Millisecond) {
		_, err := w.call(t, http.MethodPut, "/connectors/"+name+"/config", string(body))
		if err == nil {
			return
		}
		if time.Now().After(end) || !strings.Contains(err.Error(), " 409 ") {
			t.Fatal(err)
		}
	}
}

// restartFailed restarts the failed tasks of a connector, as an operator does, and says how many there were. What cannot be
// asked now is not counted.
func (w worker) restartFailed(t *testing.T, name string) (failed int) {
	t.Helper()
	text, err := w.call(t, http.MethodGet, "/connectors/"+name+"/status", "")
	var status struct {
		Tasks []struct{ State, Trace string }
	}
	if err != nil || json.Unmarshal(text, &status) != nil {
		return 0
	}
	for _, task := range status.Tasks {
		if task.State == "FAILED" {
			first, _, _ := strings.Cut(task.Trace, "\n")
			t.Logf("a task of %s failed: %s", name, first)
			failed++
		}
	}
	if failed > 0 {
		if _, err := w.call(t, http.MethodPost, "/connectors/"+name+"/restart?includeTasks=true&onlyFailed=true", ""); err != nil {
			t.Logf("restart of %s: %v", name, err)
			return 0
		}
	}
	return failed
}

// TestConnect: a distributed Kafka Connect worker copies a growing file to a topic, exactly once, and the topic to another file,
// while the broker is killed, and at length the worker too. The topic has each line once and in order for a reader with
// read_committed. The file of the sink, which promises at least once, has each line, for the first time in order.
func TestConnect(t *testing.T) {
	n, kills, within := size(t, 600, 12000), size(t, 1, 15), size(t, 5*time.Second, 60*time.Second)
	classpath := script(t, "java/prepare", "connect")
	b := start(t)
	w := connect(t, b, classpath)
	checkInternalTopics(t, b)
	create(t, b, 1, "lines")
	dir := t.TempDir()
	input, output := filepath.Join(dir, "input"), filepath.Join(dir, "output")
	if err := os.WriteFile(input, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.connector(t, "source", map[string]string{"connector.class": "FileSource", "tasks.max": "1",
		"file": input, "topic": "lines", "exactly.once.support": "required", "transaction.boundary": "poll"})
	w.connector(t, "sink", map[string]string{"connector.class": "FileSink", "tasks.max": "1",
		"file": output, "topics": "lines", "consumer.override.isolation.level": "read_committed", "consumer.override.session.timeout.ms": "10000"})

	failed, hit, workers := 0, 0, 1
	settled := func(holds func(lines []string) bool) func() bool {
		return func() bool {
			failed += w.restartFailed(t, "source") + w.restartFailed(t, "sink")
			return holds(linesOf(t, output))
		}
	}
	var writer sync.WaitGroup
	writer.Go(func() { grow(t, input, 0, n, within) })
	defer writer.Wait()
	for range size(t, 0, 2) {
		hit += during(t, b, kills/3, func() { time.Sleep(within / 6) })
		w.kill() // its transaction stays open until the next producer of the task fences it
		seen := len(linesOf(t, output))
		// A broker that starts gives each member a session anew: the dead worker's ends only in a life that is longer than one.
		w = connect(t, b, classpath)
		workers++
		eventually(t, 2*time.Minute, "the sink goes on", settled(func(lines []string) bool { return len(lines) > seen }))
	}
	hit += during(t, b, kills-hit, func() { writer.Wait() })
	want := numbered(n)
	eventually(t, 3*time.Minute, "all lines are in the sink's file", settled(func(lines []string) bool { return len(distinct(lines)) >= n }))
	w.stop(t)
	var got []string
	for _, r := range readAll(t, b, "lines").all {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the topic has %d lines, want %d: %s", len(got), n, difference(got, want))
	}
	all := linesOf(t, output)
	if first := distinct(all); !slices.Equal(first, want) {
		t.Errorf("the sink's file has %d lines, want %d: %s", len(first), n, difference(first, want))
	}
	t.Logf("%d lines, %d kills of the broker, %d workers one after another, %d failed tasks restarted, the sink wrote %d lines again", n, hit, workers,
		failed, len(all)-n)
	if hit == 0 {
		t.Error("the broker was never killed")
	}
}

// checkInternalTopics: the worker's own topics are compacted, as it asked for.
func checkInternalTopics(t *testing.T, b *harness.Broker) {
	t.Helper()
	adm, policies := kadm.NewClient(client(t, b)), map[string]string{}
	eventually(t, time.Minute, "the worker's topics are there", func() bool {
		configs, err := adm.DescribeTopicConfigs(t.Context(), "connect-configs", "connect-offsets", "connect-status")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configs {
			for _, entry := range c.Configs {
				if entry.Key == "cleanup.policy" {
					policies[c.Name] = entry.MaybeValue()
				}
			}
		}
		return len(policies) == 3
	})
	want := map[string]string{"connect-configs": "compact", "connect-offsets": "compact", "connect-status": "compact"}
	if !maps.Equal(policies, want) {
		t.Errorf("cleanup policies %v, want %v", policies, want)
	}
}

func line(i int) string { return fmt.Sprintf("line %06d", i) }

// numbered are the first n lines.
func numbered(n int) (lines []string) {
	for i := range n {
		lines = append(lines, line(i))
	}
	return lines
}

// grow appends the lines of the numbers from up to before to to a file, whole lines at a steady pace, within about that time.
func grow(t *testing.T, name string, from, to int, within time.Duration) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	tick := time.NewTicker(within / time.Duration(to-from))
	defer tick.Stop()
	for i := from; i < to; i++ {
		<-tick.C
		if _, err := fmt.Fprintln(file, line(i)); err != nil {
			t.Error(err)
			return
		}
	}
}

// linesOf are the whole lines of a file that may still be growing, or not be there yet.
func linesOf(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for l := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSuffix(l, "\n"))
	}
	return lines
}

// distinct leaves out what was there before.
func distinct(lines []string) (first []string) {
	seen := map[string]bool{}
	for _, l := range lines {
		if !seen[l] {
			seen[l] = true
			first = append(first, l)
		}
	}
	return first
}
