package system

import (
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
)

// TestKcat is the README's first session: produce and consume with kcat, metadata with the topic it created.
func TestKcat(t *testing.T) {
	harness.Need(t, "kcat")
	n := startNode(t, nodeOptions{})
	if out, errs, err := command(t, 20*time.Second, "hello\nworld\n", "kcat", "-P", "-b", n.bootstrap, "-t", "greetings"); err != nil {
		t.Fatalf("produce: %v\n%s%s", err, out, errs)
	}
	out, errs, err := command(t, 20*time.Second, "", "kcat", "-C", "-b", n.bootstrap, "-t", "greetings", "-o", "beginning", "-e", "-f", "%o %s\n")
	if err != nil || out != "0 hello\n1 world\n" {
		t.Fatalf("consume: %v, stdout %q\n%s", err, out, errs)
	}
	out, errs, err = command(t, 20*time.Second, "", "kcat", "-L", "-b", n.bootstrap)
	if err != nil || !strings.Contains(out, `topic "greetings" with 1 partitions`) {
		t.Fatalf("list: %v, stdout %q\n%s", err, out, errs)
	}
}

// TestRestartFindsEverything: a clean stop within its limit, and all data at the next start.
func TestRestartFindsEverything(t *testing.T) {
	harness.Need(t, "kcat")
	n := startNode(t, nodeOptions{})
	if out, errs, err := command(t, 20*time.Second, "one\ntwo\n", "kcat", "-P", "-b", n.bootstrap, "-t", "kept"); err != nil {
		t.Fatalf("produce: %v\n%s%s", err, out, errs)
	}
	took, err := n.stop()
	if err != nil || took > 10*time.Second {
		t.Fatalf("stop: %v after %s", err, took)
	}
	n.start()
	out, errs, err := command(t, 20*time.Second, "", "kcat", "-C", "-b", n.bootstrap, "-t", "kept", "-o", "beginning", "-e", "-f", "%o %s\n")
	if err != nil || out != "0 one\n1 two\n" {
		t.Fatalf("consume after restart: %v, stdout %q\n%s", err, out, errs)
	}
}
