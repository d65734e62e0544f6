// Package config holds one table of properties: Kafka's names, types, defaults and bounds, and a few of ours.
//
// Everything that speaks of a setting derives from the table: the program's start, DescribeConfigs and
// IncrementalAlterConfigs, `pgbroker config`, and the generated docs/configuration.md. The Kafka rows were read from the
// ConfigDef objects of the released 4.4.0 jars (org.apache.kafka.storage.internals.log.LogConfig and
// kafka.server.KafkaConfig); the texts are ours.
//
// Sources, later wins: defaults, a .properties file, the environment (KAFKA_CFG_…, then KAFKA_…, then PGBROKER_…), and
// key=value pairs of --set. What the code does not read but Kafka knows is accepted with one warning. An unknown key is
// an error, except in KAFKA_… variables, where container platforms put strangers.
//
// The package does no I/O of its own and keeps no state: a Config does not change after Load.
package config
