package config

import (
	"math"
	"reflect"
	"testing"
)

func TestTopicDefaults(t *testing.T) {
	got, err := mustLoad(t, "", nil, nil).Topic(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Topic{
		SegmentBytes: 1 << 30, SegmentMs: 604800000, IndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		RetentionBytes: -1, RetentionMs: 604800000, CleanupDelete: true, MaxMessageBytes: 1048588,
		FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, FileDeleteDelayMs: 60000,
		MessageTimestampType: CreateTime, TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3600000,
		CompressionType: "producer", CompressionGzipLevel: -1, CompressionLz4Level: 9, CompressionZstdLevel: 3,
		MinInsyncReplicas: 1, MaxCompactionLagMs: math.MaxInt64, DeleteRetentionMs: 86400000,
		MinCleanableDirtyRatio: 0.5, MaxDecompressedMessageBytes: 2147483639,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTopicOverridesGoBeforeTheBroker(t *testing.T) {
	c := mustLoad(t, "", nil, []string{"log.retention.hours=1", "log.segment.bytes=2000000", "log.cleanup.policy=compact", "compression.type=lz4", "log.preallocate=true"})
	got, err := c.Topic(map[string]string{"segment.bytes": " 3000000", "cleanup.policy": "", "preallocate": "FALSE", "retention.bytes": "-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got.RetentionMs != 3600000 || got.SegmentBytes != 3000000 || got.CleanupCompact || got.CleanupDelete || got.CompressionType != "lz4" || got.Preallocate {
		t.Errorf("got %+v", got)
	}
}

// TestEveryTopicPropertyReachesItsField changes each used property alone and expects exactly one field to change.
func TestEveryTopicPropertyReachesItsField(t *testing.T) {
	c := mustLoad(t, "", nil, nil)
	plain, _ := c.Topic(nil)
	other := map[string]string{
		"cleanup.policy": "compact,delete", "compression.type": "zstd", "compression.gzip.level": "7", "min.cleanable.dirty.ratio": "0.25",
		"message.timestamp.type": LogAppendTime, "preallocate": "true", "unclean.leader.election.enable": "true",
		"compression.lz4.level": "5", "compression.zstd.level": "5",
	}
	fields := map[int]string{}
	for _, p := range Properties() {
		if p.Scope&ScopeTopic == 0 || p.Use != Used {
			continue
		}
		value := other[p.Name]
		if value == "" {
			value = "7654321"
		}
		changed, err := c.Topic(map[string]string{p.Name: value})
		if err != nil {
			t.Errorf("%s=%s: %v", p.Name, value, err)
			continue
		}
		before, after := reflect.ValueOf(plain), reflect.ValueOf(changed)
		var differ []int
		for i := range before.NumField() {
			if !before.Field(i).Equal(after.Field(i)) {
				differ = append(differ, i)
			}
		}
		if len(differ) != 1 {
			t.Errorf("%s=%s changes %d fields", p.Name, value, len(differ))
			continue
		}
		if fields[differ[0]] != "" {
			t.Errorf("%s and %s change the same field", p.Name, fields[differ[0]])
		}
		fields[differ[0]] = p.Name
	}
	// CleanupDelete is the one field that this walk does not reach: it shares its property with CleanupCompact.
	if want := reflect.TypeFor[Topic]().NumField() - 1; len(fields) != want {
		t.Errorf("%d fields reached, want %d", len(fields), want)
	}
}

func TestTopicMistakes(t *testing.T) {
	c := mustLoad(t, "", nil, nil)
	for _, m := range []struct {
		overrides map[string]string
		want      string
	}{
		{map[string]string{"retention.ms": "-2"}, "invalid value -2 for configuration retention.ms: must be at least -1"},
		{map[string]string{"retention.mss": "1"}, "unknown topic config name: retention.mss; did you mean retention.ms?"},
		{map[string]string{"zzzzzzzzzzzzz": "1"}, "unknown topic config name: zzzzzzzzzzzzz"},
		{map[string]string{"num.partitions": "1"}, "unknown topic config name: num.partitions"},
		{map[string]string{"segment.bytes": "x", "cleanup.policy": "y"}, "invalid value y for configuration cleanup.policy: items must be of compact, delete"},
		{map[string]string{"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
			"invalid value 9 for configuration min.compaction.lag.ms: must not be above max.compaction.lag.ms, which is 8"},
	} {
		if _, err := c.Topic(m.overrides); message(err) != m.want {
			t.Errorf("%v: %v, want %s", m.overrides, err, m.want)
		}
	}
	if err := ValidateTopic("retention.ms", "-1"); err != nil {
		t.Error(err)
	}
	if err := ValidateTopic("listeners", "PLAINTEXT://a:1"); err == nil {
		t.Error("a broker property was taken for a topic's")
	}
}
