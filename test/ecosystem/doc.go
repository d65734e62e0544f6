// Package ecosystem runs what others built on Kafka against a real broker beside a real Postgres, most of it while the broker
// is killed: Kafka Streams with exactly_once_v2, Kafka Connect, MirrorMaker 2, Kafka's verifiable tools, Spring, Confluent's
// Parallel Consumer, the Apicurio registry, rsyslog, Telegraf, franz-go's own test suites, and the broker behind pgbouncer. The tests decide by what is in the logs afterwards, not by what the
// programs say. Kafka's command-line tools are compared with a recording of a real Kafka.
//
// PGBROKER_ECOSYSTEM=short runs one short case of each (in "make compat"), =long is "make ecosystem". Without it all are
// skipped: they need Java, Maven and packages from the network.
package ecosystem
