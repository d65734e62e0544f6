// Package floor is the least that a broker can be: it moves the bytes through a socket, a CRC and a file, and does nothing
// else. It speaks just enough of Kafka's protocol to be fed and read by the same client as the brokers, so that what a
// broker costs beyond it is the broker's.
//
// One file a partition, one goroutine a connection, no index, no producer state (a duplicate is stored twice), no fetch
// sessions, nothing survives a restart. With Sync one fdatasync covers all requests that were in the socket's buffer.
// It is no broker: use it for nothing else.
package floor
