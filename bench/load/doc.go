// Package load is the client of the benchmark: it works on any broker that speaks Kafka's protocol, measures what it saw
// and checks what it got.
//
// Every case is checked: what was sent was acknowledged and can be read back, and the offsets have no gaps. A case that
// fails its check has no figures. Work is fixed for produce and consume, the rate is fixed for the end-to-end cases (open
// loop: latency counts from the time at which a record was due, so a stalled broker cannot hide), and the time is fixed for
// transactions and commits (closed loop).
package load
