//go:build linux

package root

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

// tinyBytes is the size of the file system that is filled.
const tinyBytes = 48 << 20

// tinyDisk mounts a small file system and returns where.
func tinyDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", tinyBytes)); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fillUp writes a file until not one byte more can be written below dir.
func fillUp(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; chunk = chunk[:len(chunk)/2] {
		for err = nil; err == nil; {
			_, err = f.Write(chunk)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	var space unix.Statfs_t
	if err := unix.Statfs(dir, &space); err != nil || space.Bavail != 0 {
		t.Fatalf("%d blocks are left (%v)", space.Bavail, err)
	}
	return filler
}

// TestStartWithoutSpace: with not one free byte under its log directory a broker starts after a clean stop, since the
// marker of that gives its block back. After kill -9 it may end with one line that says why, and with smallRoom it starts.
// It serves what it has and refuses batches; when there is space again it takes them, and nothing is lost.
func TestStartWithoutSpace(t *testing.T) {
	needRoom(t)
	t.Run("clean stop", func(t *testing.T) {
		t.Parallel()
		x := newTiny(t)
		if err := x.broker.Stop(); err != nil {
			t.Fatal(err)
		}
		fillUp(t, x.disk)
		x.broker.MustStart()
		x.servesReads()
		x.recovers()
	})
	t.Run("kill -9", func(t *testing.T) {
		t.Parallel()
		x := newTiny(t)
		x.broker.Kill()
		filler := fillUp(t, x.disk)
		if err := x.broker.Start(); err == nil {
			x.servesReads()
			x.recovers()
			return
		} else if !strings.Contains(err.Error(), "exit status 1") {
			t.Error(err)
		}
		said := x.broker.LogLines("error: ")
		if len(said) != 1 || !strings.Contains(said[0], "no space left on device") || !strings.Contains(said[0], x.broker.Dir()) {
			t.Errorf("it said %q", said)
		}
		if err := os.Truncate(filler, fileSize(t, filler)-smallRoom); err != nil {
			t.Fatal(err)
		}
		x.broker.MustStart()
		x.servesReads()
		x.recovers()
	})
}

// smallRoom is what a start needs at most: the files at the top of a directory with few partitions, once more.
const smallRoom = 64 << 10

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// newTiny is a broker on a tiny disk with some records.
func newTiny(t *testing.T) *tinyClient {
	t.Helper()
	x := &tinyClient{t: t, disk: tinyDisk(t)}
	x.broker = harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.URL(t), Dir: filepath.Join(x.disk, "log")})
	x.broker.MustStart()
	x.createTopic()
	x.produceSome()
	return x
}

// servesReads wants all records from a broker that started on the full disk, and batches refused.
func (c *tinyClient) servesReads() {
	c.t.Helper()
	c.readAll()
	if err := c.produce(3 * time.Second); err == nil {
		c.t.Error("a batch was taken without space")
	} else if !errors.Is(err, context.DeadlineExceeded) && !kerr.IsRetriable(err) {
		c.t.Errorf("a batch without space: %v", err)
	}
	if metrics, err := c.broker.Metrics(); err != nil || metrics[fmt.Sprintf("pgbroker_disk_full{dir=%q}", c.broker.Dir())] != 1 {
		c.t.Errorf("the metric does not tell (%v)", err)
	}
	c.readAll()
}

// recovers gives the space back and wants the broker to take batches, with all records before and after a restart.
func (c *tinyClient) recovers() {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.disk, "filler")); err != nil {
		c.t.Fatal(err)
	}
	c.produceSome()
	c.readAll()
	c.broker.Kill()
	c.broker.MustStart()
	c.readAll()
	if err := c.broker.Stop(); err != nil {
		c.t.Error(err)
	}
	if found := c.broker.VerifyFiles(); strings.Contains(found, "ERROR ") {
		c.t.Errorf("log verify: %s", found)
	}
}

// tinyClient writes numbered records to one topic and knows which were acknowledged.
type tinyClient struct {
	t      *testing.T
	disk   string
	broker *harness.Broker
	next   int
	acked  []string
}

const tinyTopic = "tiny"

func (c *tinyClient) dial(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.broker.Bootstrap()))...)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

func (c *tinyClient) createTopic() {
	c.t.Helper()
	client := c.dial()
	defer client.Close()
	if answers, err := kadm.NewClient(client).CreateTopics(c.t.Context(), 3, 1, nil, tinyTopic); err != nil || answers.Error() != nil {
		c.t.Fatal(err, answers.Error())
	}
}

// produceSome writes ten records to each partition.
func (c *tinyClient) produceSome() {
	c.t.Helper()
	for range 30 {
		if err := c.produce(20 * time.Second); err != nil {
			c.t.Fatal(err)
		}
	}
}

// produce writes the next record by a producer of its own, so that none waits for an earlier one.
func (c *tinyClient) produce(limit time.Duration) error {
	c.t.Helper()
	client := c.dial(kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	value := fmt.Sprintf("%06d", c.next)
	err := client.ProduceSync(ctx, &kgo.Record{Topic: tinyTopic, Partition: int32(c.next % 3), Value: []byte(value)}).FirstErr()
	c.next++
	if err == nil {
		c.acked = append(c.acked, value)
	}
	return err
}

// readAll wants each acknowledged record once, and none besides.
func (c *tinyClient) readAll() {
	c.t.Helper()
	client := c.dial(kgo.ConsumeTopics(tinyTopic), kgo.FetchMaxWait(100*time.Millisecond))
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	seen := map[string]int{}
	for n := 0; n < len(c.acked); {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			c.t.Fatalf("%d of %d acknowledged records were read: %v", n, len(c.acked), err)
		}
		for _, r := range fetches.Records() {
			seen[string(r.Value)]++
			n++
		}
	}
	for _, v := range c.acked {
		if seen[v] != 1 {
			c.t.Errorf("record %s is there %d times", v, seen[v])
		}
	}
}
