package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pgbroker/pgbroker/test/harness"
)

// logVerify runs "pgbroker log verify" on the log directory and returns its exit code and what it found. The verifier
// shares no code with what wrote the files.
func (n *node) logVerify(args ...string) (code int, found string) {
	n.t.Helper()
	stdout, stderr, err := command(n.t, 60*time.Second, "", harness.Binary(n.t), append([]string{"log", "verify", n.opts.dir}, args...)...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		n.t.Fatal(err)
	}
	return code, stdout + stderr
}

// verifyStopped stops the broker and fails the test unless its files hold what they claim.
func (n *node) verifyStopped(args ...string) {
	n.t.Helper()
	if _, err := n.stop(); err != nil {
		n.t.Fatal(err)
	}
	code, found := n.logVerify(args...)
	if code != 0 {
		n.t.Errorf("log verify after a clean stop: exit code %d\n%s", code, found)
	}
	n.t.Log(strings.TrimSpace(found))
}

// TestFilesOnDiskAreRight: what the broker writes in all codecs over many segments passes "log verify" beside the running
// broker, after kill -9, after the restart and after a clean stop.
func TestFilesOnDiskAreRight(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"strict", "relaxed"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, nodeOptions{set: []string{"durability=" + durability}})
			const topic = "codecs"
			n.createTopic(topic, 3, map[string]string{"segment.bytes": "1048576", "index.interval.bytes": "1024"})
			unclean := func(when string) {
				code, found := n.logVerify()
				if code != 0 && code != 10 || strings.Contains(found, "ERROR ") {
					t.Errorf("log verify %s: exit code %d\n%s", when, code, found)
				}
			}
			for round := range uint64(3) {
				produceAllCodecs(t, n, topic, round)
				unclean("beside the running broker")
				n.kill()
				unclean("after kill -9")
				n.start()
			}
			produceAllCodecs(t, n, topic, 3)
			n.verifyStopped()
		})
	}
}

// produceAllCodecs writes some batches of each codec to each partition.
func produceAllCodecs(t testing.TB, n *node, topic string, seed uint64) {
	t.Helper()
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	random := rand.New(rand.NewPCG(seed, 1))
	for c, codec := range codecs {
		client := n.client(kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
		for i := range 20 {
			var records []*kgo.Record
			for j := range 30 {
				value := make([]byte, random.IntN(4096))
				for k := range value[:len(value)/2] {
					value[k] = byte(random.Uint32()) // the rest compresses well
				}
				records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % 3), Key: fmt.Appendf(nil, "%d/%d", c, j), Value: value})
			}
			if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
