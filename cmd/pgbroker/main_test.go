package main

import (
	"bytes"
	"context"
	"strings"
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
