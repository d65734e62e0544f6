package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// serve accepts connections until the test ends and returns the address.
func (b *testBroker) serve() string {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	if err := b.server.Listen(ctx, []wire.Listener{{Name: "PLAINTEXT", Address: "127.0.0.1:0"}}); err != nil {
		b.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(ctx) }()
	b.t.Cleanup(func() {
		stop()
		b.server.Close()
		<-served
	})
	return b.server.Addr("PLAINTEXT").String()
}

// rawClient is a connection that sends and reads frames.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	sent int32 // correlation id of the last request
}

func dial(t *testing.T, address string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	return &rawClient{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// frame encodes the next request.
func (c *rawClient) frame(version int16, req kmsg.Request) []byte {
	c.sent++
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.sent)
}

func (c *rawClient) send(frames ...[]byte) {
	c.t.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	if _, err := c.conn.Write(all); err != nil {
		c.t.Fatal(err)
	}
}

// next reads a frame: its correlation id and what follows.
func (c *rawClient) next() (int32, []byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.in, body); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(body)), body[4:], nil
}

// read wants the answer to the request of a correlation id next.
func read[R kmsg.Response](c *rawClient, correlation int32, version int16, req kmsg.Request) R {
	c.t.Helper()
	req.SetVersion(version)
	id, body, err := c.next()
	if err != nil || id != correlation {
		c.t.Fatalf("correlation id %d, want %d, %v", id, correlation, err)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() { // its header never has tags
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatal(err)
	}
	return resp.(R)
}

// closed wants the connection to be closed with nothing more to read.
func (c *rawClient) closed(what string) {
	c.t.Helper()
	if id, _, err := c.next(); err == nil {
		c.t.Errorf("%s: answered (correlation id %d), want a closed connection", what, id)
	} else if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		c.t.Errorf("%s: the connection stays open", what)
	}
}

// eventually waits for what no event tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// B-17, B-18: acks=0 is silent and keeps the order; a refusal closes the connection after the answers before it.
func TestAcksNoneOnTheWire(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	address := b.serve()
	c := dial(t, address)
	silent := b.produceRequest(produceTo{"a", 0, batchOf{}.bytes(t)})
	silent.Acks = acksNone
	empty := b.produceRequest()
	empty.Acks = acksNone
	asked := metadataOf("a")
	for version := int16(3); version <= 12; version++ {
		c.send(c.frame(version, silent), c.frame(version, empty), c.frame(9, asked))
		if got := read[*kmsg.MetadataResponse](c, c.sent, 9, asked); len(got.Topics) != 1 {
			t.Errorf("v%d: %+v", version, got)
		}
	}
	b.awaitHigh(b.leader("a", 0), 10)

	answered := b.produceRequest() // acks=all without topics has an answer
	for _, acks := range []int16{acksLeader, acksAll} {
		answered.Acks = acks
		c.send(c.frame(9, answered))
		if got := read[*kmsg.ProduceResponse](c, c.sent, 9, answered); len(got.Topics) != 0 {
			t.Errorf("acks %d: %+v", acks, got)
		}
	}

	refused := b.produceRequest(produceTo{"none", 0, batchOf{}.bytes(t)})
	refused.Acks = acksNone
	c.send(c.frame(9, asked), c.frame(9, refused), c.frame(9, asked))
	read[*kmsg.MetadataResponse](c, c.sent-2, 9, asked)
	c.closed("acks=0 with an error")
}

// Produce requests of one connection are all under way at once, and are answered in their order even when a later one is
// decided first. What follows them waits.
func TestPipelinedProducesKeepTheirOrder(t *testing.T) {
	b, gate := newGatedBroker(t)
	c := dial(t, b.serve())
	release := gate.hold()
	defer release()
	asked := metadataOf("a")
	var frames [][]byte
	requests := make([]*kmsg.ProduceRequest, 0, 20)
	for i := range 20 {
		topic := "a"
		if i%5 == 4 {
			topic = "none" // decided at once
		}
		r := b.produceRequest(produceTo{topic, int32(i % 2), batchOf{}.bytes(t)})
		requests = append(requests, r)
		frames = append(frames, c.frame(9, r))
	}
	c.send(append(frames, c.frame(9, asked))...)
	eventually(t, "16 appends while the first waits", func() bool { return b.end("a", 0)+b.end("a", 1) == 16 })
	_ = c.conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if _, err := c.in.Peek(1); err == nil {
		t.Fatal("answered before the fsync")
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(15 * time.Second))
	release()
	next := map[int32]int64{}
	for i, r := range requests {
		row := read[*kmsg.ProduceResponse](c, int32(i+1), 9, r).Topics[0].Partitions[0]
		if i%5 == 4 {
			wantCode(t, "unknown topic", row.ErrorCode, kerr.UnknownTopicOrPartition)
			continue
		}
		if row.ErrorCode != 0 || row.BaseOffset != next[row.Partition] {
			t.Errorf("request %d: %+v, want offset %d", i, row, next[row.Partition])
		}
		next[row.Partition]++
	}
	read[*kmsg.MetadataResponse](c, 21, 9, asked)
}

// A client that hangs up while its batches wait loses nothing but the answers, and disturbs nobody.
func TestClientHangsUpWhileProduceWaits(t *testing.T) {
	b, gate := newGatedBroker(t)
	address := b.serve()
	release := gate.hold()
	defer release()
	c := dial(t, address)
	r := b.produceRequest(produceTo{"a", 0, batchOf{producer: 5}.bytes(t)})
	c.send(c.frame(9, r))
	eventually(t, "the append", func() bool { return b.end("a", 0) > 0 })
	_ = c.conn.Close()
	other := dial(t, address)
	asked := metadataOf("a")
	other.send(other.frame(9, asked))
	read[*kmsg.MetadataResponse](other, 1, 9, asked)
	release()
	b.awaitHigh(b.leader("a", 0), 1)
	other.send(other.frame(9, r)) // the retry
	row := read[*kmsg.ProduceResponse](other, 2, 9, r).Topics[0].Partitions[0]
	if row.ErrorCode != 0 || row.BaseOffset != 0 {
		t.Errorf("the retry: %+v", row)
	}
}

// A long poll holds back what follows on its connection, and ends with it.
func TestLongPollOnTheWire(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	address := b.serve()
	c := dial(t, address)
	poll, asked := b.fetchRequest(fetchFrom{"a", 0, 0}), metadataOf("a")
	poll.MaxWaitMillis = 15_000
	c.send(c.frame(13, poll), c.frame(9, asked))
	eventually(t, "the poll", func() bool { return b.parked.count() == 1 })
	b.mustProduce("a", 0, batchOf{})
	got := read[*kmsg.FetchResponse](c, 1, 13, poll)
	headersOf(t, got.Topics[0].Partitions[0].RecordBatches)
	read[*kmsg.MetadataResponse](c, 2, 9, asked)

	poll.Topics[0].Partitions[0].FetchOffset = 1
	c.send(c.frame(13, poll))
	eventually(t, "the poll", func() bool { return b.parked.count() == 1 })
	_ = c.conn.Close()
	eventually(t, "the end of a closed connection's poll", func() bool { return b.parked.count() == 0 })
}

// A session belongs to no connection: it may be used from another one.
func TestSessionFromAnotherConnection(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	address := b.serve()
	r := b.fetchRequest(fetchFrom{"a", 0, 0})
	for epoch := range int32(3) {
		c := dial(t, address)
		r.SessionEpoch = epoch
		c.send(c.frame(13, r))
		resp := read[*kmsg.FetchResponse](c, 1, 13, r)
		wantCode(t, "fetch", resp.ErrorCode, nil)
		if resp.SessionID == 0 || (epoch > 0 && resp.SessionID != r.SessionID) {
			t.Fatalf("session %d, want %d", resp.SessionID, r.SessionID)
		}
		r.SessionID, r.Topics = resp.SessionID, nil
	}
}

// an ApiVersions newer than ours is answered in the form of version 0 with our range, and the connection goes on.
// no answer to it has tags in its header.
func TestNewerAPIVersionsOnTheWire(t *testing.T) {
	b := newTestBroker(t)
	c := dial(t, b.serve())
	r := apiVersionsRequest("test", "1")
	newer := c.frame(5, r)
	newer[7] = 6 // the version, after size and key
	c.send(newer)
	got := read[*kmsg.ApiVersionsResponse](c, 1, 0, r)
	wantCode(t, "newer", got.ErrorCode, kerr.UnsupportedVersion)
	if len(got.ApiKeys) != 1 || got.ApiKeys[0].ApiKey != 18 || got.ApiKeys[0].MaxVersion != 5 || got.ApiKeys[0].MinVersion != 0 {
		t.Errorf("keys %+v", got.ApiKeys)
	}
	for version := int16(0); version <= 5; version++ {
		c.send(c.frame(version, r))
		if got := read[*kmsg.ApiVersionsResponse](c, c.sent, version, r); len(got.ApiKeys) < 20 {
			t.Errorf("v%d: %d keys", version, len(got.ApiKeys))
		}
	}
	bad := apiVersionsRequest("a b", "1") // 42, and the connection goes on
	c.send(c.frame(3, bad), c.frame(3, r))
	wantCode(t, "bad name", read[*kmsg.ApiVersionsResponse](c, c.sent-1, 3, bad).ErrorCode, kerr.InvalidRequest)
	wantCode(t, "good name", read[*kmsg.ApiVersionsResponse](c, c.sent, 3, r).ErrorCode, nil)
}

// a version outside what is served closes the connection, whatever is advertised, and so does a key that is
// not.
func TestUnservedVersionsCloseTheConnection(t *testing.T) {
	b := newTestBroker(t)
	address := b.serve()
	try := func(key, version int16) {
		t.Helper()
		c := dial(t, address)
		frame := []byte{0, 0, 0, 0, byte(key >> 8), byte(key), byte(version >> 8), byte(version), 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		c.send(frame)
		c.closed(kmsg.NameForKey(key))
	}
	for _, a := range b.apis() {
		if a.Key != kmsg.ApiVersions.Int16() {
			try(a.Key, a.Max+1)
		}
		if a.Min > 0 {
			try(a.Key, a.Min-1)
		}
	}
	for _, key := range []int16{4, 5, 6, 7, 24, 52, 56, 58, 62, 63, 67, 70, 82, 999, -1} {
		try(key, 0)
	}
}

// a flexible request's header has its tags behind a null or empty client id, too.
func TestFlexibleHeadersOnTheWire(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	c := dial(t, b.serve())
	asked := metadataOf("a")
	asked.SetVersion(9)
	for i, id := range [][]byte{{0xff, 0xff}, {0, 0}, {0, 1, 'x'}} {
		for j, tags := range [][]byte{{0}, {1, 9, 2, 7, 7}} { // none, an unknown one
			n := byte(2*i + j + 1)
			frame := append([]byte{0, 0, 0, 0, 0, 3, 0, 9, 0, 0, 0, n}, id...)
			frame = asked.AppendTo(append(frame, tags...))
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
			c.send(frame)
			if got := read[*kmsg.MetadataResponse](c, int32(n), 9, asked); len(got.Topics) != 1 || *got.Topics[0].Topic != "a" {
				t.Errorf("client id %v, tags %v: %+v", id, tags, got)
			}
		}
	}
}
