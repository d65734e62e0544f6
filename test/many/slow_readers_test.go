//go:build linux

package many

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

const (
	slowReaders = 200
	slowAsk     = 4       // fetches that each sends at once
	slowBytes   = 1 << 20 // of each
	// slowMemory is what all of them may cost together: their sockets' buffers are the kernel's, the answers are on the
	// disk, and an answer that was begun in memory may pin what is shared with its neighbours.
	slowMemory = 64 << 20
)

// TestSlowReaders (C-24): clients that ask for records and never read them do not make the broker hold those in memory,
// neither old ones nor each its own piece of the newest ones; others are served meanwhile, and who reads at last gets all.
func TestSlowReaders(t *testing.T) {
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.Server(t).URL("postgres"),
		Set: []string{"durability=relaxed", "max.connections.per.ip=10000"}})
	b.MustStart()
	r := &run{t: t, broker: b}
	writer := r.dial(kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ConsumeTopics("others"))
	defer writer.Close()
	for _, topic := range []string{"slow", "others"} {
		if _, err := kadm.NewClient(writer).CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	writeMiB(t, writer) // the first one warms up
	before := r.measure("before")

	var readers []net.Conn
	for i := range slowReaders {
		newest := writeMiB(t, writer)
		c := dialSmall(t, b.Bootstrap())
		defer func() { _ = c.Close() }()
		for n := range slowAsk {
			from := newest
			if i%2 == 1 || n > 0 {
				from = 0
			}
			if _, err := c.Write(fetchFrame("slow", from, int32(n))); err != nil {
				t.Fatal(err)
			}
		}
		readers = append(readers, c)
	}
	var worst time.Duration
	for range 50 {
		worst = max(worst, passOne(t, writer))
	}
	during := r.measure("with slow readers")
	t.Logf("%d clients have asked for %d MiB each; a record of others passed in %s at worst", slowReaders, slowAsk, worst.Round(time.Millisecond))
	if during.connections < slowReaders {
		t.Errorf("only %.0f connections", during.connections)
	}
	if more := during.heap - before.heap; more > slowMemory {
		t.Errorf("they make the heap grow by %.0f MiB", more/(1<<20))
	}
	if more := during.resident - before.resident; more > 2*slowMemory {
		t.Errorf("they make the process grow by %.0f MiB", more/(1<<20))
	}
	if worst > 5*time.Second {
		t.Errorf("others waited for %s", worst)
	}
	for _, c := range []net.Conn{readers[0], readers[1], readers[slowReaders-1]} {
		for n := range slowAsk {
			wantRecords(t, c, int32(n))
		}
	}
}

// writeMiB writes records of slowBytes together and returns the first one's offset.
func writeMiB(t *testing.T, c *kgo.Client) int64 {
	t.Helper()
	const size = 64 << 10
	var records []*kgo.Record
	for range slowBytes / size {
		value := make([]byte, size)
		_, _ = rand.Read(value)
		records = append(records, &kgo.Record{Topic: "slow", Value: value})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results := c.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	return results[0].Record.Offset
}

// passOne writes a record and reads it, and says how long both took.
func passOne(t *testing.T, c *kgo.Client) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: "others", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n = fetches.NumRecords()
	}
	return time.Since(began)
}

// dialSmall connects with a receive buffer that is soon full.
func dialSmall(t *testing.T, address string) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if cerr := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fetchFrame is a Fetch of slowBytes from an offset of partition 0 as it goes over the wire.
func fetchFrame(topic string, from int64, correlation int32) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MaxWaitMillis, req.MinBytes, req.SessionEpoch = 12, slowBytes, 1000, 1, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = from, slowBytes
	part := kmsg.NewFetchRequestTopic()
	part.Topic, part.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	req.Topics = append(req.Topics, part)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("slow")).AppendRequest(nil, req, correlation)
}

// wantRecords reads one answer, which has to hold most of what was asked for.
func wantRecords(t *testing.T, c net.Conn, correlation int32) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	var head [9]byte // length, correlation id, no tags
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-5)
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlation {
		t.Fatalf("the answer to %d, want the one to %d", got, correlation)
	}
	answer := kmsg.NewPtrFetchResponse()
	answer.Version = 12
	if err := answer.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if p := answer.Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) < slowBytes/2 || len(p.RecordBatches) > slowBytes {
		t.Errorf("code %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
}
