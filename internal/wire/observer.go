package wire

import "time"

// Names of the limits, as in metrics and logs.
const (
	LimitConnections     = "max.connections"
	LimitConnectionsByIP = "max.connections.per.ip"
	LimitConnectionRate  = "connection_creation_rate"
	LimitRequestBytes    = "socket.request.max.bytes"
	LimitQueuedBytes     = "queued.max.request.bytes"
	LimitIdle            = "connections.max.idle.ms"
	LimitStalledWrite    = "stalled.write"
)

// RequestStats is one finished request.
type RequestStats struct {
	Key, Version int16
	Name         string // FetchFollower for a replica's Fetch, else the name of the key
	// Total is from the complete frame to the written reply: Queue until its turn came, Handler until it was
	// decided, Send until it was on the socket, behind earlier replies.
	Total, Queue, Handler, Send time.Duration
	BytesIn, BytesOut           int64 // with headers and lengths
	Failed                      bool  // no reply was sent because the connection ended
}

// Observer hears what happens on sockets. Calls overlap and must be quick.
type Observer interface {
	ConnOpened(listener string)
	ConnClosed(listener string, software Software)
	RequestDone(RequestStats)
	// Rejected counts a connection that was refused or closed because of the limit.
	Rejected(limit string)
}

// Software is what a client says it is (KIP-511); empty if it did not.
type Software struct{ Name, Version string }

// silent is the observer when nobody asks.
type silent struct{}

func (silent) ConnOpened(string)           {}
func (silent) ConnClosed(string, Software) {}
func (silent) RequestDone(RequestStats)    {}
func (silent) Rejected(string)             {}
