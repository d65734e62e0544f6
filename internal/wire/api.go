package wire

import (
	"context"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API is one row of the broker's list of APIs: dispatch, ApiVersions, metric labels and docs derive from it.
type API struct {
	Key      int16
	Min, Max int16 // versions that are decoded; any other closes the connection (ApiVersions apart)
	// AdvertisedMin is what ApiVersions shows as the minimum: Min, or less where old clients look for it
	// (Produce shows 0, KAFKA-18659).
	AdvertisedMin int16
	// Pipelined requests start while earlier pipelined ones of the same connection still wait for their reply
	// (Produce, OffsetCommit, Heartbeat). Any other request starts when all replies before it are decided.
	// Replies always leave in request order.
	Pipelined bool
	Handle    Handler
}

// Handler serves one request. It runs on the connection's reader goroutine, so a request that waits returns
// at once and calls done later. done must be called exactly once, from any goroutine. A Kafka-level failure
// is inside the response; an error means: log once and close the connection.
type Handler func(ctx context.Context, req *Request, done Done)

// Done hands over the response. The zero Response sends nothing (acks=0). With an error the replies before this
// one are sent, then the response if there is one, and the connection is closed.
type Done func(Response, error)

// Request is one decoded frame. Body's byte slices point into the frame, which lives until done was called (and
// has encoded Msg, so that a response may repeat bytes of its request). Strings are copies and live on.
type Request struct {
	Conn          *Conn
	Key, Version  int16
	CorrelationID int32
	ClientID      string // "" for null
	Body          kmsg.Request
	Received      time.Time
}

// Response is what follows the response header: either Msg, or Body already encoded for the request's version.
type Response struct {
	Msg kmsg.Response
	// Body is written in order after the header; used by Fetch to send records without copying.
	Body []Part
	// Throttle mutes the connection after the reply (client quotas); 0 none.
	Throttle time.Duration
}

// Part is a piece of a body: Bytes, or Payload when Bytes is nil.
type Part struct {
	Bytes   []byte
	Payload Payload
}

// Payload is record data that can be sent from where it lies (segstore.Records). Release is called once
// after it was written or given up.
type Payload interface {
	Len() int
	AppendTo(buf []byte) ([]byte, error)
	io.WriterTo
	Release()
}

// memoryPayload is a Payload that may lie in memory as a whole. It then leaves in one system call with the bytes
// around it: the calls saved are worth more than where the records come from (BenchmarkSendTail in segstore).
type memoryPayload interface {
	// Memory is all bytes, valid until Release, or nil if they are elsewhere.
	Memory() []byte
}

// Listener is one address to accept on.
type Listener struct {
	Name    string
	Address string // host:port, port 0 picks one
}

// Limits are what a client controls, bounded. Zero means Kafka's default for the property named, except where a
// field says otherwise.
type Limits struct {
	MaxRequestBytes    int32         // socket.request.max.bytes
	MaxConnections     int           // max.connections
	MaxConnectionsByIP int           // max.connections.per.ip
	MaxIdle            time.Duration // connections.max.idle.ms
	// queued.max.request.bytes: memory of received frames and what they decode to, over all connections. Kafka's
	// default is no limit; zero or less means DefaultQueuedBytes here. One frame may exceed it by its own size.
	QueuedBytes   int64
	MaxInFlight   int // requests of one connection that are not answered yet; 0 is DefaultMaxInFlight
	SendBuffer    int // socket.send.buffer.bytes; 0 or less leaves it to the system
	ReceiveBuffer int // socket.receive.buffer.bytes; likewise
}
