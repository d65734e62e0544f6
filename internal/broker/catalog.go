package broker

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// catalog is what requests are served from. It never changes; a new one replaces it.
type catalog struct {
	cluster meta.Cluster
	brokers []meta.Broker
	byName  map[string]*topic
	byID    map[meta.UUID]*topic
	topics  []*topic // by name
	// cfg is the configuration with what was set while brokers ran, resources all that was set on other than topics.
	cfg       *config.Config
	resources map[meta.Resource]map[string]string
	limits    quotaTable // nil: no quota has to be enforced
}

// topic is one topic at one catalog version. Its partitions outlive the version.
type topic struct {
	id         meta.UUID
	name       string
	configs    map[string]string // overridden properties only
	effective  config.Topic
	partitions []*partition // index = partition id
	counters   *topicCounters
}

func (c *catalog) topicByName(name string) (*topic, bool) {
	t, ok := c.byName[name]
	return t, ok
}

func (c *catalog) topicByID(id meta.UUID) (*topic, bool) {
	t, ok := c.byID[id]
	return t, ok
}

// partition finds a partition, or ok=false.
func (t *topic) partition(id int32) (*partition, bool) {
	if id < 0 || int(id) >= len(t.partitions) {
		return nil, false
	}
	return t.partitions[id], true
}

// partitionKey names a partition for ever.
type partitionKey struct {
	topic     meta.UUID
	partition int32
}

// newCatalog builds the next snapshot and keeps the partitions that the last one had.
func (b *Broker) newCatalog(m meta.Catalog) (*catalog, error) {
	next := &catalog{
		cluster: m.Cluster,
		brokers: m.Brokers,
		byName:  make(map[string]*topic, len(m.Topics)),
		byID:    make(map[meta.UUID]*topic, len(m.Topics)),
		topics:  make([]*topic, 0, len(m.Topics)),

		resources: m.Resources,
	}
	next.cfg, next.limits = b.liveConfig(next), newQuotaTable(next)
	last := b.catalog.Load()
	for i := range m.Topics {
		row := &m.Topics[i]
		effective, err := next.cfg.Topic(row.Configs)
		if err != nil {
			// Only somebody else's SQL can have put it there. One bad row must not stop every other topic.
			b.log.Error("a topic has a bad property; it is served with the broker's defaults", "topic", row.Name, "err", err)
			if effective, err = next.cfg.Topic(nil); err != nil {
				return nil, fmt.Errorf("defaults of topics: %w", err)
			}
		}
		t := &topic{id: row.ID, name: row.Name, configs: row.Configs, effective: effective}
		var old *topic
		if last != nil {
			old = last.byID[row.ID]
		}
		if old != nil {
			t.counters = old.counters
		} else {
			t.counters = new(topicCounters)
		}
		for n := range row.Partitions {
			var p *partition
			if old != nil && n < len(old.partitions) {
				p = old.partitions[n]
			} else {
				p = newPartition(b, row.ID, row.Name, int32(n))
			}
			t.partitions = append(t.partitions, p)
		}
		next.byName[t.name], next.byID[t.id] = t, t
		next.topics = append(next.topics, t)
	}
	sort.Slice(next.topics, func(i, j int) bool { return next.topics[i].name < next.topics[j].name })
	return next, nil
}

// liveConfig is the configuration at a version of the catalog. What somebody else's SQL made unusable does not count.
func (b *Broker) liveConfig(c *catalog) *config.Config {
	live, errs := b.cfg.With(c.brokerConfigs(b.nodeID))
	if err := live.Check(); err != nil {
		live, errs = b.cfg, append(errs, err)
	}
	for _, err := range errs {
		b.log.Error("a property that was set on brokers is left out", "err", err)
	}
	return live
}

// logConfig translates a topic's properties into the log's.
func logConfig(t config.Topic) segstore.LogConfig {
	return segstore.LogConfig{
		SegmentBytes:       int64(t.SegmentBytes),
		SegmentAge:         millis(t.SegmentMs),
		SegmentJitter:      millis(t.SegmentJitterMs),
		IndexBytes:         int64(t.IndexBytes),
		IndexIntervalBytes: int64(t.IndexIntervalBytes),
		RetentionBytes:     t.RetentionBytes,
		RetentionAge:       millis(t.RetentionMs),
		Delete:             t.CleanupDelete,
		Compact:            t.CleanupCompact,
		MaxBatchBytes:      t.MaxMessageBytes,
		FlushMessages:      t.FlushMessages,
		FlushAge:           millis(t.FlushMs),
		FileDeleteDelay:    millis(t.FileDeleteDelayMs),
		LogAppendTime:      t.MessageTimestampType == config.LogAppendTime,
		TimestampBeforeMax: millis(t.TimestampBeforeMaxMs),
		TimestampAfterMax:  millis(t.TimestampAfterMaxMs),
		Compression:        t.CompressionType,
		GzipLevel:          t.CompressionGzipLevel,
		LZ4Level:           t.CompressionLz4Level,
		ZstdLevel:          t.CompressionZstdLevel,
		MaxInflatedBytes:   t.MaxDecompressedMessageBytes,
		MinDirtyRatio:      t.MinCleanableDirtyRatio,
		MinCompactionLag:   millis(t.MinCompactionLagMs),
		MaxCompactionLag:   millis(t.MaxCompactionLagMs),
		DeleteRetention:    millis(t.DeleteRetentionMs),
	}
}

// millis turns Kafka's milliseconds into a Duration; what does not fit means never.
func millis(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
