package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// with is a configuration with dynamic properties, all of which must be good.
func with(t *testing.T, c *Config, own, all map[string]string) *Config {
	t.Helper()
	next, errs := c.With(own, all)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return next
}

// synonymsOf writes an entry as "value source: name=value/source …".
func synonymsOf(e Entry) string {
	var out []string
	for _, s := range e.Synonyms {
		out = append(out, fmt.Sprintf("%s=%s/%d", s.Name, s.Value, s.Source))
	}
	return fmt.Sprintf("%s %d: %s", e.Value, e.Source, strings.Join(out, " "))
}

// The sources and synonyms that a real Kafka 4.4.0 gave after the same changes.
func TestDynamicPropertiesGoBeforeAllOthers(t *testing.T) {
	base := mustLoad(t, "log.segment.bytes=2000000\n", nil, nil)
	own, all := map[string]string{"log.retention.ms": "1000"}, map[string]string{"log.retention.ms": "2000", "message.max.bytes": "2000000", "log.segment.bytes": "3000000"}
	c := with(t, base, own, all)
	for _, want := range []struct{ topic, broker, both string }{
		{"retention.ms", "log.retention.ms", "1000 2: log.retention.ms=1000/2 log.retention.ms=2000/3 log.retention.hours=168/5"},
		{"max.message.bytes", "message.max.bytes", "2000000 3: message.max.bytes=2000000/3 message.max.bytes=1048588/5"},
		{"segment.bytes", "log.segment.bytes", "3000000 3: log.segment.bytes=3000000/3 log.segment.bytes=2000000/4 log.segment.bytes=1073741824/5"},
	} {
		if got := synonymsOf(entryOf(t, c.DescribeTopic(nil), want.topic)); got != want.both {
			t.Errorf("topic %s: %s, want %s", want.topic, got, want.both)
		}
		if got := synonymsOf(entryOf(t, c.DescribeBroker(), want.broker)); got != want.both {
			t.Errorf("broker %s: %s, want %s", want.broker, got, want.both)
		}
	}
	topic, err := c.Topic(nil)
	if err != nil || topic.RetentionMs != 1000 || topic.MaxMessageBytes != 2000000 || topic.SegmentBytes != 3000000 {
		t.Errorf("topic %+v, %v", topic, err)
	}
	if c.Source("log.retention.ms") != Dynamic || c.Source("message.max.bytes") != DynamicDefault || base.Source("message.max.bytes") != Default {
		t.Error("sources")
	}
	var defaults []string
	for _, e := range c.DescribeBrokerDefault() {
		defaults = append(defaults, e.Name+"="+synonymsOf(e))
	}
	if want := []string{"log.retention.ms=2000 3: log.retention.ms=2000/3", "log.segment.bytes=3000000 3: log.segment.bytes=3000000/3", "message.max.bytes=2000000 3: message.max.bytes=2000000/3"}; !slices.Equal(defaults, want) {
		t.Errorf("defaults %v", defaults)
	}
	if again := with(t, c, nil, nil); again.String("log.segment.bytes") != "2000000" || len(again.DescribeBrokerDefault()) != 0 {
		t.Error("what is no longer set still holds")
	}
}

func TestPropertiesThatCannotBeChanged(t *testing.T) {
	for _, c := range []struct {
		name, value, says string
		start             bool
	}{
		{"log.retention.ms", "5", "", false}, {"compression.type", "zstd", "", false}, {"min.insync.replicas", "2", "", false},
		{"num.io.threads", "9", "", false}, {"leader.replication.throttled.rate", "5", "", false},
		{"num.partitions", "3", "needs a start", true}, {"log.dirs", "/x", "", true}, {"listeners", "A://:1", "", true},
		{"max.connections", "3", "", true}, {"postgres.url", "x", "", true}, {"log.retention.minutes", "3", "", true}, {"ssl.key.password", "x", "", true},
		{"log.segment.bytes", "3", "must be at least 1048576", false}, {"log.segment.bytes", "x", "whole number", false},
		{"log.retention.mss", "3", "did you mean log.retention.ms?", false}, {"retention.ms", "3", "unknown broker config name", false},
	} {
		err := ValidateBroker(c.name, c.value)
		switch {
		case errors.Is(err, ErrNotDynamic) != c.start:
			t.Errorf("%s=%s: %v, want a start: %t", c.name, c.value, err, c.start)
		case !c.start && c.says == "" && err != nil, !c.start && !strings.Contains(message(err), c.says):
			t.Errorf("%s=%s: %v, want %q", c.name, c.value, err, c.says)
		}
	}
	next, errs := mustLoad(t, "", nil, nil).With(map[string]string{"num.partitions": "7", "log.roll.ms": "x", "log.retention.ms": " 5 "}, nil)
	if len(errs) != 2 || next.Int("num.partitions") != 1 || next.Int("log.retention.ms") != 5 {
		t.Errorf("%v, %d partitions", errs, next.Int("num.partitions"))
	}
	if err := with(t, mustLoad(t, "", nil, nil), map[string]string{"log.cleaner.min.compaction.lag.ms": "9"}, map[string]string{"log.cleaner.max.compaction.lag.ms": "8"}).Check(); err == nil {
		t.Error("values that exclude each other pass")
	}
}

// dynamicText has names of the table only, each once.
func TestDynamicNamesAreInTheTable(t *testing.T) {
	names := strings.Fields(dynamicText)
	for i, name := range names {
		if p := mustLookup(t, name); p.Scope&ScopeBroker == 0 || slices.Contains(names[:i], name) {
			t.Errorf("%s is no broker property, or is named twice", name)
		}
	}
	for _, name := range atStart {
		if p := mustLookup(t, name); p.Use != Used || !slices.Contains(names, name) {
			t.Errorf("%s is not one of them", name)
		}
	}
	if slices.ContainsFunc(mustLoad(t, "", nil, nil).DescribeBroker(), func(e Entry) bool { return strings.Contains(e.Name, "throttled.rate") }) {
		t.Error("limits on replication are described though they are not set")
	}
}

func TestGroupProperties(t *testing.T) {
	c := mustLoad(t, "group.consumer.heartbeat.interval.ms=6000\n", nil, nil)
	entries := c.DescribeGroup(map[string]string{"consumer.session.timeout.ms": "50000"})
	if len(entries) != 21 {
		t.Errorf("%d entries, Kafka 4.4 has 21", len(entries))
	}
	for name, want := range map[string]string{
		"consumer.session.timeout.ms":    "50000 8: consumer.session.timeout.ms=50000/8 group.consumer.session.timeout.ms=45000/5",
		"consumer.heartbeat.interval.ms": "6000 4: group.consumer.heartbeat.interval.ms=6000/4 group.consumer.heartbeat.interval.ms=5000/5",
		"share.auto.offset.reset":        "latest 5: share.auto.offset.reset=latest/5",
		"streams.assignor.name":          "sticky 5: group.streams.assignors=sticky/5",
	} {
		if got := synonymsOf(entryOf(t, entries, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, bad := range []struct{ name, value, says string }{
		{"consumer.session.timeout.ms", "5", "must be in the range 45000 to 60000 inclusive"}, {"consumer.heartbeat.interval.ms", "600000", "5000 to 15000"},
		{"share.delivery.count.limit", "50", "2 to 10"}, {"share.auto.offset.reset", "newest", "by_duration"}, {"streams.num.standby.replicas", "9", "to 2"},
		{"nope", "5", "Unknown group config name"}, {"retention.ms", "5", "Unknown group config name"}, {"consumer.session.timeout.ms", "x", "whole number"},
	} {
		if err := c.ValidateGroup(bad.name, bad.value); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(bad.says)) {
			t.Errorf("%s=%s: %v, want %q", bad.name, bad.value, err, bad.says)
		}
	}
	for name, value := range map[string]string{"consumer.session.timeout.ms": "45000", "share.isolation.level": "read_committed", "share.auto.offset.reset": "by_duration:PT1H", "share.renew.acknowledge.enable": "false"} {
		if err := c.ValidateGroup(name, value); err != nil {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for value, want := range map[string]time.Duration{"50000": 50 * time.Second, "1": 45 * time.Second, "99999999": 60 * time.Second, "x": 45 * time.Second} {
		if got := c.Group(map[string]string{"consumer.session.timeout.ms": value}).ConsumerSessionTimeout; got != want {
			t.Errorf("session timeout %s is served as %s, want %s", value, got, want)
		}
	}
	if got := c.Group(nil).ConsumerHeartbeatInterval; got != 6*time.Second {
		t.Errorf("heartbeat interval %s", got)
	}
}

func TestClientMetricsProperties(t *testing.T) {
	c := mustLoad(t, "", nil, nil)
	entries := c.DescribeClientMetrics(map[string]string{"match": "client_id=a.*"})
	if len(entries) != 3 || synonymsOf(entryOf(t, entries, "interval.ms")) != "300000 5: " || synonymsOf(entryOf(t, entries, "match")) != "client_id=a.* 7: match=client_id=a.*/7" {
		t.Errorf("%+v", entries)
	}
	for _, bad := range []struct{ name, value string }{{"interval.ms", "5"}, {"interval.ms", "3600001"}, {"interval.ms", "x"}, {"match", "nope=a"}, {"match", "client_id=a["}, {"match", "client_id"}, {"nope", "x"}} {
		err := ValidateClientMetrics(bad.name, bad.value)
		if err == nil || errors.Is(err, ErrInterval) != (bad.name == "interval.ms") || errors.Is(err, ErrUnknownProperty) != (bad.name == "nope") {
			t.Errorf("%s=%s: %v", bad.name, bad.value, err)
		}
	}
	for name, value := range map[string]string{"interval.ms": "100", "metrics": "org.apache.kafka.,x", "match": "client_id=a.*,client_source_port=9"} {
		if err := ValidateClientMetrics(name, value); err != nil {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
