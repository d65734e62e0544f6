// Package wire moves bytes between sockets and handlers: listeners, frames, requests in, replies out, and the limits
// on all that a client controls. It knows the codec (kmsg) and the list of APIs that it is given; it knows no topic.
//
//	frame    length int32 (what follows, 1 to socket.request.max.bytes)
//	request  key int16, version int16, correlation int32, client id nullable string,
//	         [tagged fields, in flexible versions], body
//	reply    length int32, correlation int32, [tagged fields, in flexible versions but never in ApiVersions], body
//
//	accept ── reader ─ frame ─ header ─ turn ─ decode ─ Handler
//	                                     │                 │ Done, now or later, on any goroutine
//	                                     └── queue ── out ── writer ── socket
//
// What holds:
//   - Replies leave in the order of their requests. Pipelined requests overlap with each other, any other runs alone
//     on its connection.
//   - Memory follows what has arrived, not what was announced, and is counted: frames, and what they decode to, take
//     it from one budget (queued.max.request.bytes), at most one frame beyond it. Replies of a client that does not
//     read stop its own next request; when such replies take more than requests may, together, those who take no byte of
//     a large one are closed within seconds. An idle connection holds no buffer.
//   - A request that is malformed, or of an API or version that is not served, ends its connection without an answer,
//     after the replies before it; one log line, of a bounded number a second, says what it looked like. ApiVersions
//     of an unknown version is answered (KIP-511).
//   - Each Payload handed over is released once, each frame given back once, whatever happens to the connection.
//   - A panic of a handler or of the codec ends one connection.
//
// What it does not do: TLS and SASL (a handler may keep its state with Conn.SetValue), quotas (a handler says how
// long to mute a connection), and the contents of ApiVersions, whose rows AdvertisedRanges gives.
//
// Locks: Server.mu, budget.mu and Conn.mu are never held together, and none of them over I/O, a callback or a log
// line.
package wire
