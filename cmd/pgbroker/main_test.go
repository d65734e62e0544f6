package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// newCluster starts a fake Kafka in this process and returns its bootstrap address.
func newCluster(t testing.TB, opts ...kfake.Opt) string {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(1), kfake.ClusterID("fake-cluster")}, opts...)...)
	if err != nil {
		t.Fatalf("start a fake Kafka: %v", err)
	}
	t.Cleanup(cluster.Close)
	return strings.Join(cluster.ListenAddrs(), ",")
}

// result is what one command line did.
type result struct {
	code           int
	stdout, stderr string
}

// runCmd executes a command line in this process, at most for 20 seconds.
func runCmd(t testing.TB, addr, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	if addr != "" {
		args = append(args, "-b", addr)
	}
	code := execute(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// mustRun is runCmd for a command that has to succeed; it returns stdout.
func mustRun(t testing.TB, addr, stdin string, args ...string) string {
	t.Helper()
	r := runCmd(t, addr, stdin, args...)
	if r.code != exitOK {
		t.Fatalf("pgbroker %s: exit code %d, stderr %q", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// wantRun checks the exit code and that stderr has the given parts.
func wantRun(t *testing.T, r result, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stderr %q", r.code, code, r.stderr)
	}
	for _, p := range parts {
		if !strings.Contains(r.stderr, p) {
			t.Errorf("stderr %q does not say %q", r.stderr, p)
		}
	}
}

// freePort returns an address where nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silentListener accepts connections and never answers.
func silentListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().String()
}

// signalWriter calls signal once when something is written.
type signalWriter struct {
	bytes.Buffer
	signal func()
	called atomic.Bool
}

func (w *signalWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.called.CompareAndSwap(false, true) {
		w.signal()
	}
	return n, err
}
