package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Values of message.timestamp.type.
const (
	CreateTime    = "CreateTime"
	LogAppendTime = "LogAppendTime"
)

// Topic holds the effective values of one topic. Fields named …Ms are milliseconds, …Bytes bytes;
// math.MaxInt64 in FlushMessages and FlushMs means never, -1 in the Retention fields without limit.
type Topic struct {
	SegmentBytes         int
	SegmentMs            int64
	SegmentJitterMs      int64
	IndexBytes           int
	IndexIntervalBytes   int
	RetentionBytes       int64
	RetentionMs          int64
	CleanupDelete        bool
	CleanupCompact       bool
	MaxMessageBytes      int
	FlushMessages        int64
	FlushMs              int64
	FileDeleteDelayMs    int64
	MessageTimestampType string // CreateTime or LogAppendTime
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64
	CompressionType      string // uncompressed, gzip, snappy, lz4, zstd, producer
	CompressionGzipLevel int
	CompressionLz4Level  int
	CompressionZstdLevel int
	MinInsyncReplicas    int
	MinCompactionLagMs   int64
	MaxCompactionLagMs   int64
	DeleteRetentionMs    int64

	MinCleanableDirtyRatio      float64
	MaxDecompressedMessageBytes int
	Preallocate                 bool
	UncleanLeaderElection       bool
}

// Topic returns the effective values for a topic with these overrides. An override that is unknown or bad, or two that
// exclude each other, is an error.
func (c *Config) Topic(overrides map[string]string) (Topic, error) {
	kept, err := parseTopic(overrides)
	if err != nil {
		return Topic{}, err
	}
	v := topicValues{c, kept}
	t := Topic{
		SegmentBytes:         int(v.int("segment.bytes")),
		SegmentMs:            v.int("segment.ms"),
		SegmentJitterMs:      v.int("segment.jitter.ms"),
		IndexBytes:           int(v.int("segment.index.bytes")),
		IndexIntervalBytes:   int(v.int("index.interval.bytes")),
		RetentionBytes:       v.int("retention.bytes"),
		RetentionMs:          v.int("retention.ms"),
		CleanupDelete:        v.has("cleanup.policy", "delete"),
		CleanupCompact:       v.has("cleanup.policy", "compact"),
		MaxMessageBytes:      int(v.int("max.message.bytes")),
		FlushMessages:        v.int("flush.messages"),
		FlushMs:              v.int("flush.ms"),
		FileDeleteDelayMs:    v.int("file.delete.delay.ms"),
		MessageTimestampType: v.text("message.timestamp.type"),
		TimestampBeforeMaxMs: v.int("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:  v.int("message.timestamp.after.max.ms"),
		CompressionType:      v.text("compression.type"),
		CompressionGzipLevel: int(v.int("compression.gzip.level")),
		CompressionLz4Level:  int(v.int("compression.lz4.level")),
		CompressionZstdLevel: int(v.int("compression.zstd.level")),
		MinInsyncReplicas:    int(v.int("min.insync.replicas")),
		MinCompactionLagMs:   v.int("min.compaction.lag.ms"),
		MaxCompactionLagMs:   v.int("max.compaction.lag.ms"),
		DeleteRetentionMs:    v.int("delete.retention.ms"),

		MinCleanableDirtyRatio:      v.float("min.cleanable.dirty.ratio"),
		MaxDecompressedMessageBytes: int(v.int("max.decompressed.message.bytes")),
		Preallocate:                 v.text("preallocate") == "true",
		UncleanLeaderElection:       v.text("unclean.leader.election.enable") == "true",
	}
	if t.MinCompactionLagMs > t.MaxCompactionLagMs {
		return Topic{}, fmt.Errorf("invalid value %d for configuration min.compaction.lag.ms: must not be above max.compaction.lag.ms, which is %d",
			t.MinCompactionLagMs, t.MaxCompactionLagMs)
	}
	return t, nil
}

// ValidateTopic checks one override of a topic. An unknown name is an error.
func ValidateTopic(name, value string) error {
	_, err := parseTopicValue(name, value)
	return err
}

// parseTopic checks overrides in the order of their names, so that the same mistake always gives the same error.
func parseTopic(overrides map[string]string) (map[string]string, error) {
	kept := make(map[string]string, len(overrides))
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		value, err := parseTopicValue(name, overrides[name])
		if err != nil {
			return nil, err
		}
		kept[name] = value
	}
	return kept, nil
}

func parseTopicValue(name, value string) (string, error) {
	p, ok := Lookup(name)
	if !ok || p.Scope&ScopeTopic == 0 {
		if near := nearest(name, ScopeTopic); near != "" {
			return "", fmt.Errorf("unknown topic config name: %s; did you mean %s?", name, near)
		}
		return "", fmt.Errorf("unknown topic config name: %s", name)
	}
	kept, err := p.parse(value)
	if err != nil {
		return "", fmt.Errorf("invalid value %s for configuration %s: %w", value, name, err)
	}
	return kept, nil
}

// topicValues finds a topic's values: its own, the broker's default, Kafka's default.
type topicValues struct {
	broker *Config
	own    map[string]string
}

func (v topicValues) text(name string) string {
	if value, ok := v.own[name]; ok {
		return value
	}
	p := table().byName[name]
	if p.BrokerName == "" {
		return p.Default
	}
	return v.broker.String(p.BrokerName)
}

func (v topicValues) int(name string) int64 {
	n, err := strconv.ParseInt(v.text(name), 10, 64)
	if err != nil {
		panic("config: " + name + " is not a number")
	}
	return n
}

func (v topicValues) float(name string) float64 {
	f, err := strconv.ParseFloat(v.text(name), 64)
	if err != nil {
		panic("config: " + name + " is not a number")
	}
	return f
}

func (v topicValues) has(name, item string) bool {
	return slices.Contains(strings.Split(v.text(name), ","), item)
}
