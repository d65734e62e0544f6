package load_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/bench/floor"
	"github.com/pgbroker/pgbroker/bench/load"
)

// startFloor serves a floor for the test and returns its address.
func startFloor(t *testing.T, sync bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- floor.Serve(ctx, l, t.TempDir(), sync) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// watch counts how often the measured part began and ended.
type watch struct{ begun, ended int }

func (w *watch) Begin() error { w.begun++; return nil }
func (w *watch) End() error   { w.ended++; return nil }

func run(t *testing.T, s load.Spec) (load.Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w := &watch{}
	out, err := load.Run(ctx, s, w)
	if err == nil && (w.begun != 1 || w.ended != 1) {
		t.Errorf("%s: the measured part began %d times and ended %d times", s.Kind, w.begun, w.ended)
	}
	return out, err
}

func topic(t *testing.T, bootstrap, name string, partitions int32) {
	t.Helper()
	if err := load.CreateTopic(t.Context(), bootstrap, name, partitions); err != nil {
		t.Fatal(err)
	}
}

// TestCasesOnTheFloor runs what a floor can do, from end to end, and sees every record counted.
func TestCasesOnTheFloor(t *testing.T) {
	for _, sync := range []bool{false, true} {
		bootstrap := startFloor(t, sync)
		topic(t, bootstrap, "many", 4)
		s := load.Spec{Kind: load.Produce, Bootstrap: bootstrap, Topic: "many", Partitions: 4, Clients: 2, RecordSize: 1000, BatchBytes: 64 << 10, Records: 5001}
		out, err := run(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if out.Records != 5001 || out.Bytes != 5001000 || out.Requests == 0 || out.Values["p50_ms"] <= 0 || out.Values["mib_s"] <= 0 {
			t.Errorf("produce: %+v", out)
		}
		s.Kind, s.Clients, s.Passes = load.Consume, 3, 2
		if out, err = run(t, s); err != nil {
			t.Fatal(err)
		}
		if out.Records != 10002 || out.Requests == 0 {
			t.Errorf("consume: %+v", out)
		}
		s.Records++
		if _, err = run(t, s); err == nil || !strings.Contains(err.Error(), "5002 records written, 5001 read back") {
			t.Errorf("a missing record: %v", err)
		}
		s.Records, s.RecordSize = 5001, 999
		if _, err = run(t, s); err == nil || !strings.Contains(err.Error(), "has 1000 bytes, not 999") {
			t.Errorf("records of another size: %v", err)
		}

		topic(t, bootstrap, "one", 1)
		s = load.Spec{Kind: load.Sync, Bootstrap: bootstrap, Topic: "one", Partitions: 1, Clients: 1, RecordSize: 100, BatchBytes: 64 << 10, Records: 50}
		if out, err = run(t, s); err != nil || out.Requests != 50 || out.Values["call_p99_ms"] <= 0 {
			t.Errorf("sync: %+v, %v", out, err)
		}
		// The topic is not empty any more, so records that others wrote are found.
		if _, err = run(t, s); err == nil || !strings.Contains(err.Error(), "70 records written, 140 read back") {
			t.Errorf("records of somebody else: %v", err)
		}

		topic(t, bootstrap, "pace", 1)
		s = load.Spec{Kind: load.Paced, Bootstrap: bootstrap, Topic: "pace", Partitions: 1, Clients: 1, RecordSize: 100, BatchBytes: 64 << 10, Rate: 1000, Seconds: 0.5}
		if out, err = run(t, s); err != nil || out.Records != 500 {
			t.Errorf("paced: %+v, %v", out, err)
		}

		topic(t, bootstrap, "e2e", 1)
		s = load.Spec{Kind: load.E2E, Bootstrap: bootstrap, Topic: "e2e", Partitions: 1, Clients: 1, RecordSize: 100, BatchBytes: 64 << 10, Rate: 500, Seconds: 1}
		if out, err = run(t, s); err != nil || out.Records != 500 || out.Values["p99_ms"] <= 0 {
			t.Errorf("e2e: %+v, %v", out, err)
		}
	}
}

func TestWhatABrokerCannotDoIsAnError(t *testing.T) {
	bootstrap := startFloor(t, false)
	topic(t, bootstrap, "x", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := load.Run(ctx, load.Spec{Kind: load.Commit, Bootstrap: bootstrap, Topic: "x", Partitions: 1, Clients: 1, Batch: 1, Seconds: 0.1}, &watch{})
	if err == nil {
		t.Error("a floor has no offsets, yet it committed some")
	}
	if _, err = load.Run(ctx, load.Spec{Kind: "dance"}, &watch{}); err == nil {
		t.Error("an unknown kind of case ran")
	}
}
