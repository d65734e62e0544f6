package main

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestDynamicCompletion(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders", "refunds"))
	mustRun(t, addr, "one\n", "produce", "orders")
	mustRun(t, addr, "", "consume", "orders", "-g", "billing")
	complete := func(addr string, words ...string) string {
		t.Setenv("PGBROKER_BROKERS", addr)
		return runCmd(t, "", "", append([]string{"__complete"}, words...)...).stdout
	}
	for _, tc := range []struct{ words, want string }{
		{"topic describe r", "refunds\n:4\n"},
		{"consume o", "orders\n:4\n"},
		{"produce o", "orders\n:4\n"},
		{"produce orders r", ":4\n"},
		{"group lag b", "billing\n:4\n"},
		{"consume orders -g b", "billing\n:4\n"},
		{"topic list -o j", strings.Join(outputFormats, "\n") + "\n:4\n"}, // the shell filters
	} {
		if got := complete(addr, strings.Fields(tc.words)...); got != tc.want {
			t.Errorf("completion of %q is %q, want %q", tc.words, got, tc.want)
		}
	}
	start := time.Now()
	if got := complete(silentListener(t), "topic", "describe", ""); got != ":4\n" {
		t.Errorf("completion without an answer is %q", got)
	}
	if took := time.Since(start); took > 2*completionTime {
		t.Errorf("completion without an answer took %s", took)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if script := mustRun(t, "", "", "completion", shell); !strings.Contains(script, "pgbroker") {
			t.Errorf("the script for %s does not name pgbroker", shell)
		}
	}
}
