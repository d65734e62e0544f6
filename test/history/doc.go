// Package history says whether what clients of a broker saw is possible if the broker keeps its promises.
//
// Clients record what they did: one Op, one line, for each call, with the times of its invocation and of its completion
// on one monotonic clock, and how it ended:
//
//	ok    it took effect, and this is the answer
//	fail  it surely had no effect
//	info  nobody knows; so is a call that never returned
//
// A process whose call ended with info never goes on under the same incarnation. Each record's value is unique and says
// who sent it and what it must look like (Value), so a record that is read names the send that made it.
//
// Check computes the rules; each is a function of an Index, which is the history sorted by partition, value and
// transaction. The package does no I/O but reading and writing histories, and knows no client library: a test of another
// broker can use it. The rules follow jepsen.tests.kafka and the checkers of other projects in what they want, and Kafka's
// documentation in what they allow: writes of concurrent transactions may interleave in a partition, aborted records and
// markers leave gaps, a reader without read_committed sees everything.
//
// What it does not do: it does not look at files (that is "pgbroker log verify"), at leader epochs or at more than one
// broker, and it takes no record to be deleted: histories are of topics without retention.
package history
