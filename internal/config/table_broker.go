package config

// brokerProperties are the broker settings that the code reads, with the names, types, defaults and bounds of Kafka
// 4.4.0's KafkaConfig. A default that differs from Kafka's says so in its text.
var brokerProperties = []Property{
	// Who and where.
	{Name: "node.id", Type: Int, Default: "1", Min: at(0), Scope: ScopeBroker, Aliases: []string{"broker.id"},
		Doc: "Number of this broker in its cluster. Kafka has no default; 1 here."},
	{Name: "broker.id", Type: Int, Scope: ScopeBroker, Min: at(0), Doc: "Older name of node.id."},
	{Name: "broker.rack", Type: String, Scope: ScopeBroker, Doc: "Rack that clients are told."},
	{Name: "log.dirs", Type: List, Scope: ScopeBroker, Aliases: []string{"log.dir"},
		Doc: "Directory of the record data. Kafka's default is below /tmp; none here."},
	{Name: "log.dir", Type: List, Scope: ScopeBroker, Doc: "Older name of log.dirs."},
	{Name: "listeners", Type: List, Default: "PLAINTEXT://127.0.0.1:9092", Scope: ScopeBroker,
		Doc: "Addresses to listen on, as NAME://host:port; no host means all addresses. Kafka's default is PLAINTEXT://:9092; this machine only here."},
	{Name: "advertised.listeners", Type: List, Scope: ScopeBroker,
		Doc: "Addresses that clients are told, by the name of the listener they came in on; those of listeners when not given."},
	{Name: "listener.security.protocol.map", Type: String, Scope: ScopeBroker,
		Default: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
		Doc:     "Protocol of each listener name. Only PLAINTEXT is available yet."},
	{Name: "controller.listener.names", Type: List, Scope: ScopeBroker,
		Doc: "Names of listeners that Kafka keeps for controllers; they are left out here."},

	// Topics.
	{Name: "auto.create.topics.enable", Type: Boolean, Default: "true", Scope: ScopeBroker, Doc: "Create a topic when a client first asks for it."},
	{Name: "delete.topic.enable", Type: Boolean, Default: "true", Scope: ScopeBroker, Doc: "Allow topics to be deleted."},
	{Name: "num.partitions", Type: Int, Default: "1", Min: at(1), Scope: ScopeBroker, Doc: "Partitions of a topic created without a number."},
	{Name: "default.replication.factor", Type: Int, Default: "1", Min: at(1), Scope: ScopeBroker, Doc: "Replicas of a topic created without a number."},

	// Defaults of topic settings.
	{Name: "log.cleanup.policy", Type: List, Default: "delete", Valid: []string{"compact", "delete"}, Scope: ScopeBroker, Doc: "Default of cleanup.policy."},
	{Name: "log.cleaner.enable", Type: Boolean, Default: "true", Scope: ScopeBroker, Doc: "Compact topics with cleanup.policy=compact."},
	{Name: "log.cleaner.dedupe.buffer.size", Type: Long, Default: "134217728", Scope: ScopeBroker,
		Doc: "Most memory for the keys of a log that is compacted, 24 bytes each at three quarters full; a log with more takes several rounds."},
	{Name: "log.cleaner.io.max.bytes.per.second", Type: Double, Default: "1.7976931348623157E308", Scope: ScopeBroker,
		Doc: "Most bytes that compaction reads and writes in a second."},
	{Name: "log.cleaner.backoff.ms", Type: Long, Default: "15000", Min: at(0), Scope: ScopeBroker,
		Doc: "How often to look for logs to compact when there was none."},
	{Name: "log.cleaner.delete.retention.ms", Type: Long, Default: "86400000", Min: at(0), Scope: ScopeBroker, Doc: "Default of delete.retention.ms."},
	{Name: "log.cleaner.max.compaction.lag.ms", Type: Long, Default: "9223372036854775807", Min: at(1), Scope: ScopeBroker, Doc: "Default of max.compaction.lag.ms."},
	{Name: "log.cleaner.min.cleanable.ratio", Type: Double, Default: "0.5", Min: at(0), Max: at(1), Scope: ScopeBroker, Doc: "Default of min.cleanable.dirty.ratio."},
	{Name: "log.cleaner.min.compaction.lag.ms", Type: Long, Default: "0", Min: at(0), Scope: ScopeBroker, Doc: "Default of min.compaction.lag.ms."},
	{Name: "log.flush.interval.messages", Type: Long, Default: "9223372036854775807", Min: at(1), Scope: ScopeBroker, Doc: "Default of flush.messages."},
	{Name: "log.flush.interval.ms", Type: Long, Scope: ScopeBroker, Min: at(0), Aliases: []string{"log.flush.scheduler.interval.ms"}, Doc: "Default of flush.ms."},
	{Name: "log.flush.scheduler.interval.ms", Type: Long, Default: "9223372036854775807", Scope: ScopeBroker, Doc: "Default of log.flush.interval.ms."},
	{Name: "log.index.interval.bytes", Type: Int, Default: "4096", Min: at(0), Scope: ScopeBroker, Doc: "Default of index.interval.bytes."},
	{Name: "log.index.size.max.bytes", Type: Int, Default: "10485760", Min: at(4), Scope: ScopeBroker, Doc: "Default of segment.index.bytes."},
	{Name: "log.message.timestamp.after.max.ms", Type: Long, Default: "3600000", Min: at(0), Scope: ScopeBroker, Doc: "Default of message.timestamp.after.max.ms."},
	{Name: "log.message.timestamp.before.max.ms", Type: Long, Default: "9223372036854775807", Min: at(0), Scope: ScopeBroker, Doc: "Default of message.timestamp.before.max.ms."},
	{Name: "log.message.timestamp.type", Type: String, Default: CreateTime, Valid: []string{CreateTime, LogAppendTime}, Scope: ScopeBroker, Doc: "Default of message.timestamp.type."},
	{Name: "log.preallocate", Type: Boolean, Default: "false", Scope: ScopeBroker, Doc: "Default of preallocate."},
	{Name: "log.retention.bytes", Type: Long, Default: "-1", Scope: ScopeBroker, Doc: "Default of retention.bytes."},
	{Name: "log.retention.ms", Type: Long, Scope: ScopeBroker, Min: at(-1), Aliases: []string{"log.retention.minutes", "log.retention.hours"}, Doc: "Default of retention.ms; goes before log.retention.minutes."},
	{Name: "log.retention.minutes", Type: Int, Scope: ScopeBroker, Min: at(-1), Doc: "Default of retention.ms in minutes; goes before log.retention.hours."},
	{Name: "log.retention.hours", Type: Int, Default: "168", Scope: ScopeBroker, Min: at(-1), Doc: "Default of retention.ms in hours."},
	{Name: "log.roll.ms", Type: Long, Scope: ScopeBroker, Min: at(1), Aliases: []string{"log.roll.hours"}, Doc: "Default of segment.ms; goes before log.roll.hours."},
	{Name: "log.roll.hours", Type: Int, Default: "168", Min: at(1), Scope: ScopeBroker, Doc: "Default of segment.ms in hours."},
	{Name: "log.roll.jitter.ms", Type: Long, Scope: ScopeBroker, Min: at(0), Aliases: []string{"log.roll.jitter.hours"}, Doc: "Default of segment.jitter.ms; goes before log.roll.jitter.hours."},
	{Name: "log.roll.jitter.hours", Type: Int, Default: "0", Min: at(0), Scope: ScopeBroker, Doc: "Default of segment.jitter.ms in hours."},
	{Name: "log.segment.bytes", Type: Int, Default: "1073741824", Min: at(1 << 20), Scope: ScopeBroker, Doc: "Default of segment.bytes."},
	{Name: "log.segment.delete.delay.ms", Type: Long, Default: "60000", Min: at(0), Scope: ScopeBroker, Doc: "Default of file.delete.delay.ms."},
	{Name: "message.max.bytes", Type: Int, Default: "1048588", Min: at(0), Scope: ScopeBroker, Doc: "Default of max.message.bytes."},
	{Name: "log.retention.check.interval.ms", Type: Long, Default: "300000", Min: at(1), Scope: ScopeBroker, Doc: "How often old segments are looked for."},
	{Name: "log.flush.offset.checkpoint.interval.ms", Type: Int, Default: "60000", Min: at(0), Scope: ScopeBroker, Doc: "How often it is written down how far each log is surely on disk."},
	{Name: "num.recovery.threads.per.data.dir", Type: Int, Default: "2", Min: at(1), Scope: ScopeBroker, Doc: "Logs that are checked at a time at a start."},

	// Limits on clients.
	{Name: "socket.request.max.bytes", Type: Int, Default: "104857600", Min: at(1), Scope: ScopeBroker, Doc: "Largest request; a connection that announces a larger one is closed."},
	{Name: "queued.max.request.bytes", Type: Long, Default: "268435456", Min: at(-1), Scope: ScopeBroker,
		Doc: "Bytes of requests in memory at a time, over all connections; further ones wait unread. Kafka's default is -1, without limit; 256 MiB here."},
	{Name: "socket.receive.buffer.bytes", Type: Int, Default: "102400", Min: at(-1), Scope: ScopeBroker, Doc: "SO_RCVBUF of client connections; -1 leaves it to the system."},
	{Name: "socket.send.buffer.bytes", Type: Int, Default: "102400", Min: at(-1), Scope: ScopeBroker, Doc: "SO_SNDBUF of client connections; -1 leaves it to the system."},
	{Name: "max.connections", Type: Int, Default: "2147483647", Min: at(0), Scope: ScopeBroker, Doc: "Connections of all clients; further ones are closed."},
	{Name: "max.connections.per.ip", Type: Int, Default: "2147483647", Min: at(0), Scope: ScopeBroker, Doc: "Connections of one client address; further ones are closed."},
	{Name: "connections.max.idle.ms", Type: Long, Default: "600000", Scope: ScopeBroker, Doc: "Time without a request after which a connection is closed; negative is never."},
	{Name: "fetch.max.bytes", Type: Int, Default: "57671680", Min: at(1024), Scope: ScopeBroker, Doc: "Most record bytes in one fetch answer."},
	{Name: "max.incremental.fetch.session.cache.slots", Type: Int, Default: "1000", Min: at(0), Scope: ScopeBroker, Doc: "Incremental fetch sessions kept."},

	// Groups and offsets.
	{Name: "group.initial.rebalance.delay.ms", Type: Int, Default: "3000", Min: at(0), Scope: ScopeBroker, Doc: "How long an empty classic group waits for more members before its first rebalance."},
	{Name: "group.max.session.timeout.ms", Type: Int, Default: "1800000", Min: at(1), Scope: ScopeBroker, Doc: "Longest session.timeout.ms of a classic member."},
	{Name: "group.min.session.timeout.ms", Type: Int, Default: "6000", Min: at(1), Scope: ScopeBroker, Doc: "Shortest session.timeout.ms of a classic member."},
	{Name: "group.max.size", Type: Int, Default: "2147483647", Min: at(1), Scope: ScopeBroker, Doc: "Members of one classic group."},
	{Name: "group.consumer.assignors", Type: List, Default: "uniform,range", Scope: ScopeBroker, Doc: "Server-side assignors of consumer groups, the default first."},
	{Name: "group.consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Min: at(1), Scope: ScopeBroker, Doc: "Heartbeat interval given to members of consumer groups."},
	{Name: "group.consumer.max.heartbeat.interval.ms", Type: Int, Default: "15000", Min: at(1), Scope: ScopeBroker, Doc: "Longest heartbeat interval a group may set."},
	{Name: "group.consumer.min.heartbeat.interval.ms", Type: Int, Default: "5000", Min: at(1), Scope: ScopeBroker, Doc: "Shortest heartbeat interval a group may set."},
	{Name: "group.consumer.session.timeout.ms", Type: Int, Default: "45000", Min: at(1), Scope: ScopeBroker, Doc: "Time without a heartbeat after which a member of a consumer group is removed."},
	{Name: "group.consumer.max.session.timeout.ms", Type: Int, Default: "60000", Min: at(1), Scope: ScopeBroker, Doc: "Longest session timeout a group may set."},
	{Name: "group.consumer.min.session.timeout.ms", Type: Int, Default: "45000", Min: at(1), Scope: ScopeBroker, Doc: "Shortest session timeout a group may set."},
	{Name: "group.consumer.max.size", Type: Int, Default: "2147483647", Min: at(1), Scope: ScopeBroker, Doc: "Members of one consumer group."},
	{Name: "offset.metadata.max.bytes", Type: Int, Default: "4096", Min: at(0), Scope: ScopeBroker, Doc: "Longest metadata text of a committed offset."},
	{Name: "offsets.retention.minutes", Type: Int, Default: "10080", Min: at(1), Scope: ScopeBroker, Doc: "How long the offsets of a group without members are kept."},
	{Name: "offsets.retention.check.interval.ms", Type: Long, Default: "600000", Min: at(1), Scope: ScopeBroker, Doc: "How often expired offsets are looked for."},
	{Name: "offsets.commit.timeout.ms", Type: Int, Default: "5000", Min: at(1), Scope: ScopeBroker, Doc: "Longest wait of an offset commit for Postgres before the client is told to retry."},

	// Producers and transactions.
	{Name: "producer.id.expiration.ms", Type: Int, Default: "86400000", Min: at(1), Scope: ScopeBroker, Doc: "How long a partition remembers an idle producer, to recognise its retries."},
	{Name: "transactional.id.expiration.ms", Type: Int, Default: "604800000", Min: at(1), Scope: ScopeBroker, Doc: "How long an idle transactional id is kept."},
	{Name: "transaction.max.timeout.ms", Type: Int, Default: "900000", Min: at(1), Scope: ScopeBroker, Doc: "Longest transaction.timeout.ms of a producer."},

	// The broker's lease in Postgres.
	{Name: "broker.heartbeat.interval.ms", Type: Int, Default: "500", Min: at(1), Scope: ScopeBroker, Doc: "How often the broker renews its lease in Postgres. Kafka's default is 2000; 500 here."},
	{Name: "broker.session.timeout.ms", Type: Int, Default: "3000", Min: at(1), Scope: ScopeBroker, Doc: "Length of that lease. Kafka's default is 9000; 3000 here."},
}

// ourProperties are those that Kafka does not have.
var ourProperties = []Property{
	{Name: "postgres.url", Type: Password, Scope: ScopeBroker, Sensitive: true,
		Doc: "Connection of the Postgres beside the broker, as a URL or as keywords; several hosts are tried in turn."},
	{Name: "postgres.pooler", Type: Boolean, Default: "false", Scope: ScopeBroker,
		Doc: "The URL leads to a pooler in transaction mode: keep no state in sessions."},
	{Name: "postgres.wait.ms", Type: Long, Default: "30000", Min: at(0), Scope: ScopeBroker, Doc: "How long a start waits for Postgres before it fails."},
	{Name: "durability", Type: String, Default: "strict", Valid: []string{"strict", "relaxed"}, Scope: ScopeBroker,
		Doc: "What an answer promises: strict survives a power cut, relaxed a kill of the broker."},
	{Name: "http.listen", Type: String, Default: "127.0.0.1:9404", Scope: ScopeBroker, check: checkHostPort,
		Doc: "Address of probes and metrics; empty for none."},
}
