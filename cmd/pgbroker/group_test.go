package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLagInTime(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(2, "orders"))
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	produceKgo(t, addr,
		&kgo.Record{Topic: "orders", Value: []byte("a"), Timestamp: hours(30)},
		&kgo.Record{Topic: "orders", Value: []byte("b"), Timestamp: hours(3)},
		&kgo.Record{Topic: "orders", Partition: 1, Value: []byte("c"), Timestamp: hours(2)})
	for group, offset := range map[string]string{"first": "start", "second": "+1", "third": "end"} {
		mustRun(t, addr, "", "group", "reset-offsets", group, "--to", offset, "--topic", "orders", "--allow-new-topics", "--execute", "-q")
	}
	mustRun(t, addr, "", "group", "reset-offsets", "second", "--to", "start", "--topic", "orders:1", "--execute", "-q")
	got := mustRun(t, addr, "", "group", "lag", "first", "second", "third")
	want := "GROUP   TOPIC   LAG  BEHIND\n" +
		"first   orders  3    1d6h\n" +
		"second  orders  2    3h\n" +
		"third   orders  0    0.0s\n"
	if got != want {
		t.Errorf("lag is\n%swant\n%s", got, want)
	}
	got = mustRun(t, addr, "", "group", "lag", "second", "--partitions")
	if !strings.Contains(got, "second  orders  0          1          2    1    3h      -") || !strings.Contains(got, "second  orders  1          0          1    1    2h      -") {
		t.Errorf("lag by partition is\n%s", got)
	}
}

func TestWatchedLag(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	mustRun(t, addr, "one\n", "produce", "orders")
	mustRun(t, addr, "", "consume", "orders", "-g", "readers")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var stderr bytes.Buffer
	stdout := &signalWriter{signal: cancel}
	code := execute(ctx, []string{"group", "lag", "readers", "-w", "-b", addr}, strings.NewReader(""), stdout, &stderr)
	if code != exitInterrupted || !strings.Contains(stdout.String(), "readers  orders  0") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}
