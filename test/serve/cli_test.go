package serve

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

// commandLine runs client commands against one broker.
type commandLine struct {
	t *testing.T
	n *node
}

func (c commandLine) run(stdin string, args ...string) result {
	c.t.Helper()
	return runCommand(c.t, []string{"PGBROKER_BROKERS=" + c.n.bootstrap}, stdin, harness.Binary(c.t), args...)
}

// ok runs a command that must succeed and returns what it printed with runs of spaces as one.
func (c commandLine) ok(stdin string, args ...string) string {
	c.t.Helper()
	return squeeze(c.run(stdin, args...).must(c.t))
}

func squeeze(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

// want compares what a command printed.
func (c commandLine) want(want string, args ...string) {
	c.t.Helper()
	if got := c.ok("", args...); got != want {
		c.t.Errorf("%q printed:\n%s\nwant:\n%s", args, got, want)
	}
}

func TestTopicCommands(t *testing.T) {
	t.Parallel()
	c := commandLine{t, serve(t, database(t))}
	c.ok("", "topic", "create", "orders", "users", "-p", "3", "-c", "cleanup.policy=compact")
	if again := c.run("", "topic", "create", "orders", "more"); again.code != 1 || !strings.Contains(again.errs, "orders") || !strings.Contains(again.errs, "exists") {
		t.Errorf("create again: exit code %d\n%s", again.code, again.errs)
	}
	c.ok("", "topic", "create", "orders", "--if-not-exists")
	c.want("NAME PARTITIONS REPLICAS\nmore 1 1\norders 3 1\nusers 3 1", "topic", "list")
	c.ok("", "topic", "alter", "orders", "-c", "retention.ms=5000", "--unset", "cleanup.policy", "-p", "4")
	if out := c.ok("", "topic", "describe", "orders"); !strings.HasPrefix(out, "topic orders: 4 partitions, 1 replica\n") || !strings.Contains(out, "retention.ms 5000") || strings.Contains(out, "compact") {
		t.Errorf("describe after alter:\n%s", out)
	}
	for _, bad := range [][]string{
		{"topic", "alter", "orders", "-c", "retention.ms=soon"}, {"topic", "alter", "orders", "-p", "2"},
		{"topic", "describe", "ordres"}, {"topic", "create", "bad/name"},
	} {
		if r := c.run("", bad...); r.code != 1 || len(r.errorLines()) != 1 {
			t.Errorf("%q: exit code %d\n%s", bad, r.code, r.errs)
		}
	}
	c.ok("a\nb\n", "produce", "orders")
	preview := c.run("", "topic", "delete", "orders", "more")
	if preview.code != 2 || !strings.Contains(squeeze(preview.out), "orders 4 2 preview") || !strings.Contains(preview.errs, "--yes") {
		t.Errorf("delete without --yes: exit code %d\n%s%s", preview.code, preview.out, preview.errs)
	}
	c.ok("", "topic", "delete", "orders", "more", "--yes")
	c.want("topic/users", "topic", "list", "-o", "name")
}

// TestRoundTripInJSON: bytes that are no text, null and empty keys and values, repeated headers, times and partitions come
// out as they went in.
func TestRoundTripInJSON(t *testing.T) {
	t.Parallel()
	n := serve(t, database(t))
	c := commandLine{t, n}
	n.createTopics(3, "from", "to")
	at := time.UnixMilli(1700000000123)
	var sent []*kgo.Record
	for i, r := range []kgo.Record{
		{Key: []byte("k"), Value: []byte(`{"a": "ä\n"}`)},
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte{0xff, 0x00}, Value: []byte("\xc3\x28 no text")},
		{Value: []byte("h"), Headers: []kgo.RecordHeader{{Key: "x", Value: []byte("1")}, {Key: "x", Value: []byte("2")}, {Key: "", Value: nil}, {Key: "b", Value: []byte{0x80}}}},
		{Value: []byte(strings.Repeat("long ", 50_000))},
	} {
		r.Topic, r.Partition, r.Timestamp = "from", int32(i%3), at.Add(time.Duration(i)*time.Second)
		sent = append(sent, &r)
	}
	producer := n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.ProduceSync(t.Context(), sent...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	first := c.run("", "consume", "from", "-f", "json").must(t)
	if lines := strings.Count(first, "\n"); lines != len(sent) {
		t.Fatalf("%d lines for %d records", lines, len(sent))
	}
	c.run(first, "produce", "to", "-f", "json").must(t)

	reader := n.client(kgo.ConsumeTopics("to"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := map[string]bool{}
	for len(got) < len(sent) {
		fetches := reader.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			got[record(r)] = true
		}
	}
	for _, r := range sent {
		if !got[record(r)] {
			t.Errorf("lost or changed: %.300s", record(r))
		}
	}
	second := c.run("", "consume", "to", "-f", "json").must(t)
	if a, b := sortedLines(first), sortedLines(strings.ReplaceAll(second, `"topic":"to"`, `"topic":"from"`)); a != b {
		t.Errorf("the copy reads otherwise:\n%.2000s\nfirst:\n%.2000s", b, a)
	}
}

// record is all of a record that the round trip must keep, null told from empty.
func record(r *kgo.Record) string {
	text := fmt.Sprintf("%d %d %t %q %t %q", r.Partition, r.Timestamp.UnixMilli(), r.Key == nil, r.Key, r.Value == nil, r.Value)
	for _, h := range r.Headers {
		text += fmt.Sprintf(" %q=%t %q", h.Key, h.Value == nil, h.Value)
	}
	return text
}

func TestGroupCommands(t *testing.T) {
	t.Parallel()
	n := serve(t, database(t))
	c := commandLine{t, n}
	n.createTopics(1, "orders")
	c.ok("1\n2\n3\n4\n5\n", "produce", "orders")
	c.want("1\n2\n3", "consume", "orders", "-g", "billing", "-n", "3")
	c.want("NAME STATE PROTOCOL COORDINATOR\nbilling Empty consumer 1", "group", "list")
	lag := func() string {
		var doc struct{ Items []struct{ Lag int } }
		if err := json.Unmarshal([]byte(c.run("", "group", "lag", "billing", "-o", "json").must(t)), &doc); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(doc.Items)
	}
	if got := lag(); got != "[{2}]" {
		t.Errorf("lag %s", got)
	}
	c.want("GROUP TOPIC PARTITION NOW THEN REPLAYS SKIPS\nbilling orders 0 3 1 2 0", "group", "reset-offsets", "billing", "--to", "1")
	if got := lag(); got != "[{2}]" {
		t.Errorf("a preview moved the lag to %s", got)
	}
	c.ok("", "group", "reset-offsets", "billing", "--to", "1", "--execute")
	if got := lag(); got != "[{4}]" {
		t.Errorf("lag after the reset: %s", got)
	}
	c.want("2\n3\n4\n5", "consume", "orders", "-g", "billing")

	member := n.client(kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("billing"), kgo.ClientID("worker"))
	c.ok("6\n", "produce", "orders")
	if got := member.PollRecords(t.Context(), 1).Records(); len(got) != 1 || string(got[0].Value) != "6" {
		t.Fatalf("consumed %v", got)
	}
	inUse := c.run("", "group", "reset-offsets", "billing", "--to", "start", "--execute")
	if inUse.code != 1 || len(inUse.errorLines()) != 1 || !strings.Contains(inUse.errs, "worker") {
		t.Errorf("reset of a group with members: exit code %d\n%s", inUse.code, inUse.errs)
	}
	member.Close()
	await(t, "the group to be empty", func() bool { return strings.Contains(c.ok("", "group", "list"), "billing Empty") })
	if r := c.run("", "group", "delete", "billing"); r.code != 2 || !strings.Contains(r.errs, "--yes") {
		t.Errorf("delete without --yes: exit code %d\n%s", r.code, r.errs)
	}
	c.ok("", "group", "delete", "billing", "--yes")
	c.want("", "group", "list", "-o", "name")
}

// TestStatus: exit codes that scripts and health checks rely on.
func TestStatus(t *testing.T) {
	t.Parallel()
	n := serve(t, database(t))
	c := commandLine{t, n}
	n.createTopics(2, "orders")
	lines := strings.Split(c.ok("", "status"), "\n")
	if len(lines) != 5 || !strings.HasSuffix(lines[1], " ok 1 1 2 0") || lines[4] != fmt.Sprintf("1 %s - controller", n.bootstrap) {
		t.Errorf("status: %q", lines)
	}
	wait := []string{"status", "--wait", "ready", "--http", n.httpURL, "--for"}
	c.ok("", append(wait, "10s")...)
	n.terminate()
	if r := c.run("", "status"); r.code != 3 || len(r.errorLines()) != 1 || !strings.Contains(r.errs, n.bootstrap) {
		t.Errorf("status without a broker: exit code %d\n%s", r.code, r.errs)
	}
	if r := c.run("", append(wait, "300ms")...); r.code != 3 || r.took < 300*time.Millisecond || r.took > 10*time.Second || !strings.Contains(r.errs, "not ready after 300ms") {
		t.Errorf("status --wait without a broker: exit code %d after %s\n%s", r.code, r.took, r.errs)
	}

	// It also waits through a start.
	port := harness.FreePort(t)
	waited := make(chan result, 1)
	go func() {
		waited <- c.run("", "status", "--wait", "ready", "--for", "30s", "--http", fmt.Sprintf("127.0.0.1:%d", port))
	}()
	serveIn(t, database(t), filepath.Join(t.TempDir(), "log"), nil, fmt.Sprintf("http.listen=127.0.0.1:%d", port))
	if r := <-waited; r.code != 0 {
		t.Errorf("status --wait through a start: exit code %d\n%s", r.code, r.errs)
	}
}
