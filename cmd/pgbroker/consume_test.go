package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestInterruptedConsume(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	mustRun(t, addr, "one\n", "produce", "orders")
	for _, extra := range [][]string{nil, {"-g", "readers"}} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var stderr bytes.Buffer
		stdout := &signalWriter{signal: cancel}
		code := execute(ctx, append([]string{"consume", "orders", "--follow", "-b", addr}, extra...), strings.NewReader(""), stdout, &stderr)
		cancel()
		if code != exitInterrupted || stdout.String() != "one\n" || stderr.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", extra, code, stdout.String(), stderr.String())
		}
	}
	// What was printed before the signal is committed.
	if out := mustRun(t, addr, "", "group", "lag", "readers", "--partitions"); !strings.Contains(out, "orders  0          1          1    0") {
		t.Errorf("the interrupted member did not commit:\n%s", out)
	}
}

// TestConsumeNoticesSilence has a broker that stops answering fetches: records must not be
// missing with exit code 0.
func TestConsumeNoticesSilence(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	addr := cluster.ListenAddrs()[0]
	mustRun(t, addr, "one\n", "produce", "orders")
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, errors.New("hang up"), true
	})
	r := runCmd(t, addr, "", "consume", "orders", "--timeout", "1s")
	wantRun(t, r, exitUnreachable, "no answer to a fetch", "missing")
}

// TestFollowOutlivesSilence has a broker that answers no fetch for a while.
func TestFollowOutlivesSilence(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	addr := cluster.ListenAddrs()[0]
	mustRun(t, addr, "one\n", "produce", "orders")
	var mute atomic.Bool
	mute.Store(true)
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, errors.New("hang up"), mute.Load()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stderr := &signalWriter{signal: func() { mute.Store(false) }} // the note ends the silence
	stdout := &signalWriter{signal: cancel}
	code := execute(ctx, []string{"consume", "orders", "-o", "0", "--follow", "--timeout", "700ms", "-b", addr}, strings.NewReader(""), stdout, stderr)
	if code != exitInterrupted || stdout.String() != "one\n" || !strings.Contains(stderr.String(), "no answer from the brokers") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

// TestSeveralBrokers reads partitions that several brokers lead.
func TestSeveralBrokers(t *testing.T) {
	addr := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "orders"))
	var input strings.Builder
	for i := range 60 {
		fmt.Fprintf(&input, "{\"partition\":%d,\"value\":\"%d\"}\n", i%6, i)
	}
	mustRun(t, addr, input.String(), "produce", "orders", "-f", "json")
	got := strings.Fields(mustRun(t, addr, "", "consume", "orders"))
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != 60 {
		t.Errorf("%d of 60 records were read", len(got))
	}
	if n := len(strings.Fields(mustRun(t, addr, "", "consume", "orders", "-g", "g", "-n", "40"))); n != 40 {
		t.Errorf("the group read %d records, want 40", n)
	}
	if n := len(strings.Fields(mustRun(t, addr, "", "consume", "orders", "-g", "g"))); n != 20 {
		t.Errorf("the group read %d more records, want 20", n)
	}
	if out := mustRun(t, addr, "", "consume", "orders", "-g", "g"); out != "" {
		t.Errorf("the group read %q again", out)
	}
	if out := mustRun(t, addr, "", "status"); !strings.Contains(out, "ok      3        1       6           1") {
		t.Errorf("status is\n%s", out)
	}
}

// TestConsumeEndsAtHoles reads a log whose last offsets hold no record for the reader.
func TestConsumeEndsAtHoles(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("t"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	transact := func(value string, end kgo.TransactionEndTry) {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	transact("kept", kgo.TryCommit)
	transact("dropped", kgo.TryAbort)
	if got := mustRun(t, addr, "", "consume", "orders", "--read-committed"); got != "kept\n" {
		t.Errorf("read committed: %q", got)
	}
	if got := mustRun(t, addr, "", "consume", "orders"); got != "kept\ndropped\n" {
		t.Errorf("read uncommitted: %q", got)
	}
	// An open transaction: its records are beyond the last stable offset.
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := mustRun(t, addr, "", "consume", "orders", "--read-committed"); got != "kept\n" {
		t.Errorf("read committed beside an open transaction: %q", got)
	}
}
