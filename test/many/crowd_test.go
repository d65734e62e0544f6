//go:build linux

package many

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	crowdAddresses = 10 // of clients; the kernel gives each address its own ports
	crowdLimit     = 30 * time.Second
)

// crowd is many clients with a connection each. They are plain sockets: what they cost must not hide what the broker's
// ends cost.
type crowd struct {
	t     *testing.T
	conns []net.Conn
	asked atomic.Int64 // produces and fetches that were answered
	worst atomic.Int64 // of them, nanoseconds
}

// address is where the crowd's nth group of clients comes from.
func address(n int) string { return fmt.Sprintf("127.0.0.%d", 11+n) }

// newCrowd connects n clients, each of which learns the versions as every client does first.
func newCrowd(t *testing.T, broker string, n int) *crowd {
	t.Helper()
	c := &crowd{t: t, conns: make([]net.Conn, n)}
	t.Cleanup(c.close)
	const dialers = 16
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < n; i += dialers {
				conn, err := dialFrom(t.Context(), address(i%crowdAddresses), broker)
				if err == nil {
					c.conns[i] = conn
					err = greet(conn)
				}
				if err != nil {
					t.Errorf("client %d of %d: %v", i, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return c
}

func (c *crowd) close() {
	for _, conn := range c.conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// work has the clients produce a record and read it back, a few of them at any time and one after the other, until ctx
// ends. The rest of the crowd is idle meanwhile.
func (c *crowd) work(ctx context.Context, topics []string) (wait func()) {
	const rows, pause = 8, 2 * time.Millisecond
	var wg sync.WaitGroup
	for row := range rows {
		wg.Go(func() {
			for i := row; ctx.Err() == nil; i += rows {
				began := time.Now()
				if err := produceAndFetch(c.conns[i%len(c.conns)], topics[i%len(topics)]); err != nil {
					c.t.Errorf("client %d: %v", i%len(c.conns), err)
					return
				}
				c.asked.Add(1)
				took := int64(time.Since(began))
				for was := c.worst.Load(); took > was && !c.worst.CompareAndSwap(was, took); was = c.worst.Load() {
				}
				time.Sleep(pause) // they share the processors with what they ask
			}
		})
	}
	return wg.Wait
}

// dialFrom connects from one address of this machine.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: crowdLimit}
	return d.DialContext(ctx, "tcp", to)
}

// greet is ApiVersions.
func greet(conn net.Conn) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "crowd", "1"
	resp, err := exchange(conn, req)
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.ApiVersionsResponse).ErrorCode; code != 0 {
		return fmt.Errorf("ApiVersions: code %d", code)
	}
	return nil
}

// produceAndFetch writes a record to partition 0 and reads the batch it became.
func produceAndFetch(conn net.Conn, topic string) error {
	resp, err := exchange(conn, produceOne(topic))
	if err != nil {
		return fmt.Errorf("produce to %s: %w", topic, err)
	}
	wrote := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if wrote.ErrorCode != 0 {
		return fmt.Errorf("produce to %s: code %d", topic, wrote.ErrorCode)
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxBytes, fetch.MinBytes, fetch.MaxWaitMillis, fetch.SessionEpoch = 12, 1<<20, 1, 1000, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = wrote.BaseOffset, 4096
	part := kmsg.NewFetchRequestTopic()
	part.Topic, part.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	fetch.Topics = append(fetch.Topics, part)
	if resp, err = exchange(conn, fetch); err != nil {
		return fmt.Errorf("fetch from %s: %w", topic, err)
	}
	read := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if read.ErrorCode != 0 || len(read.RecordBatches) < 8 || int64(binary.BigEndian.Uint64(read.RecordBatches)) != wrote.BaseOffset {
		return fmt.Errorf("fetch from %s at %d: code %d, %d bytes", topic, wrote.BaseOffset, read.ErrorCode, len(read.RecordBatches))
	}
	return nil
}

// produceOne is a Produce of one record of one byte to partition 0.
func produceOne(topic string) *kmsg.ProduceRequest {
	const crcAt, attributesAt, headerBytes = 17, 21, 49 // of a batch; headerBytes follow its length
	body := []byte{0, 0, 0, 1, 2, 'x', 0}               // attributes, deltas, no key, value, no headers
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{Magic: 2, PartitionLeaderEpoch: -1, FirstTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: append(binary.AppendVarint(nil, int64(len(body))), body...)}
	batch.Length = int32(headerBytes + len(batch.Records))
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))

	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, 1, 10_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = raw
	part := kmsg.NewProduceRequestTopic()
	part.Topic, part.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = append(req.Topics, part)
	return req
}

// exchange sends a request of a flexible version and reads its answer.
func exchange(conn net.Conn, req kmsg.Request) (kmsg.Response, error) {
	_ = conn.SetDeadline(time.Now().Add(crowdLimit))
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("crowd")).AppendRequest(nil, req, 7)); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	header := 5 // correlation id, no tags
	if req.Key() == int16(kmsg.ApiVersions) {
		header = 4 // KIP-511: its header stays at version 0
	}
	if len(answer) < header || binary.BigEndian.Uint32(answer) != 7 {
		return nil, fmt.Errorf("an answer of %d bytes to something else", len(answer))
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, resp.ReadFrom(answer[header:])
}
