package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// dynamicText names the broker properties that Kafka 4.4.0 can change while it runs, for one broker or for all: those
// that a real one describes as not read-only and takes for the default of all brokers.
const dynamicText = `
background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
group.share.assignment.interval.ms group.streams.assignment.interval.ms log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
log.message.timestamp.type log.preallocate log.remote.copy.lag.bytes log.remote.copy.lag.ms log.retention.bytes
log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
max.decompressed.message.bytes message.max.bytes metric.reporters min.insync.replicas num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.follower.thread.pool.size remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
transaction.partition.verification.enable unclean.leader.election.enable
leader.replication.throttled.rate follower.replication.throttled.rate
replica.alter.log.dirs.io.max.bytes.per.second`

// atStart are those of them that the program reads at its start only: here they cannot be changed while it runs.
var atStart = []string{
	"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size", "log.cleaner.io.max.bytes.per.second", "max.connections",
	"max.connections.per.ip", "num.recovery.threads.per.data.dir", "producer.id.expiration.ms",
}

// hiddenProperties are limits on replication that tools set for the time of a move. Kafka describes them only while they
// are set.
var hiddenProperties = []Property{
	{Name: "leader.replication.throttled.rate", Type: Long, Min: at(0), Scope: ScopeBroker, Use: Accepted, hidden: true,
		Doc: "One broker keeps every partition: nothing to throttle."},
	{Name: "follower.replication.throttled.rate", Type: Long, Min: at(0), Scope: ScopeBroker, Use: Accepted, hidden: true,
		Doc: "One broker keeps every partition: nothing to throttle."},
	{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Min: at(0), Scope: ScopeBroker, Use: Accepted, hidden: true,
		Doc: "One broker keeps every partition: nothing to throttle."},
}

var dynamicNames = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(dynamicText) {
		names[name] = !slices.Contains(atStart, name)
	}
	return names
})

// isDynamic says whether a broker property can be changed while the broker runs.
func isDynamic(name string) bool { return dynamicNames()[name] }

// ErrNotDynamic: the property is known and cannot be changed while the broker runs.
var ErrNotDynamic = errors.New("cannot be changed while the broker runs; set it in the broker's configuration and start it again")

// ValidateBroker checks a value that a running broker, or all brokers, shall get. It wraps ErrNotDynamic for those that
// need a start.
func ValidateBroker(name, value string) error {
	p, ok := Lookup(name)
	if !ok || p.Scope&ScopeBroker == 0 {
		if near := nearest(name, ScopeBroker); near != "" {
			return fmt.Errorf("unknown broker config name: %s; did you mean %s?", name, near)
		}
		return fmt.Errorf("unknown broker config name: %s", name)
	}
	if !isDynamic(name) {
		return fmt.Errorf("%s %w", name, ErrNotDynamic)
	}
	if _, err := p.parse(value); err != nil {
		return fmt.Errorf("invalid value %s for configuration %s: %w", shown(name, value), name, err)
	}
	return nil
}

// With returns the configuration with what was set while brokers ran, which goes before all that was given at the start:
// own for this broker, before all for every one. What is unknown, not dynamic or bad is left out and complained about.
func (c *Config) With(own, all map[string]string) (*Config, []error) {
	next := &Config{set: c.set}
	var errs []error
	keep := func(values map[string]string) map[string]string {
		kept := make(map[string]string, len(values))
		for name, value := range values {
			if err := ValidateBroker(name, value); err != nil {
				errs = append(errs, err)
				continue
			}
			kept[name], _ = table().byName[name].parse(value)
		}
		return kept
	}
	next.own, next.all = keep(own), keep(all)
	return next, errs
}

// Check finds values that are good alone and bad together, as Load does.
func (c *Config) Check() error {
	errs := c.crossCheck()
	if _, err := c.Topic(nil); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
