package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
)

const (
	ofBroker  = kmsg.ConfigResourceTypeBroker
	ofTopic   = kmsg.ConfigResourceTypeTopic
	ofGroup   = kmsg.ConfigResourceTypeGroupConfig
	ofMetrics = kmsg.ConfigResourceTypeClientMetrics
	ofLogger  = kmsg.ConfigResourceTypeBrokerLogger
)

// alter runs IncrementalAlterConfigs on one resource and returns its code.
func (b *testBroker) alter(kind kmsg.ConfigResourceType, name string, ops ...configOp) int16 {
	b.t.Helper()
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](b, b.handleIncrementalAlterConfigs, 1, alterRequest(kind, name, ops...))
	if len(resp.Resources) != 1 || resp.Resources[0].ResourceType != kind || resp.Resources[0].ResourceName != name {
		b.t.Fatalf("%+v", resp.Resources)
	}
	return resp.Resources[0].ErrorCode
}

// described is "value source" of a property as DescribeConfigs tells it; "" when it is not told, "null 5" for null.
func (b *testBroker) described(kind kmsg.ConfigResourceType, name, property string) string {
	b.t.Helper()
	row := describeConfigs(b, 4, kind, name)
	if row.ErrorCode != 0 {
		return fmt.Sprint("error ", row.ErrorCode)
	}
	for _, c := range row.Configs {
		if c.Name == property {
			value := "null"
			if c.Value != nil {
				value = *c.Value
			}
			return fmt.Sprint(value, " ", int8(c.Source))
		}
	}
	return ""
}

// What is set on one broker goes before what is set on all, which goes before its own configuration, live; another process
// on the same store has it, too.
func TestBrokerPropertiesAreSetLive(t *testing.T) {
	b := newTestBroker(t, "log.segment.bytes=2000000")
	b.create("a", 1, nil)
	b.create("own", 1, map[string]string{"retention.ms": "77"})
	for _, step := range []struct {
		broker    string
		op        configOp
		topic     string // retention.ms of a afterwards
		ofBroker  string // log.retention.ms of broker 1
		retention int64
	}{
		{"", configOp{opSet, "log.retention.ms", "2000"}, "2000 3", "2000 3", 2000},
		{"1", configOp{opSet, "log.retention.ms", "1000"}, "1000 2", "1000 2", 1000},
		{"", configOp{opSet, "log.retention.ms", "3000"}, "1000 2", "1000 2", 1000},
		{"1", configOp{opDelete, "log.retention.ms", "null"}, "3000 3", "3000 3", 3000},
		{"1", configOp{opDelete, "log.retention.ms", "null"}, "3000 3", "3000 3", 3000},
		{"1", configOp{opDelete, "never.heard.of", "null"}, "3000 3", "3000 3", 3000},
		{"", configOp{opDelete, "log.retention.ms", "null"}, "604800000 5", "null 5", 604800000},
	} {
		if got := b.alter(ofBroker, step.broker, step.op); got != 0 {
			t.Fatalf("%q %v: code %d", step.broker, step.op, got)
		}
		if got := b.described(ofTopic, "a", "retention.ms"); got != step.topic {
			t.Errorf("%q %v: topic: %s, want %s", step.broker, step.op, got, step.topic)
		}
		if got := b.described(ofBroker, "1", "log.retention.ms"); got != step.ofBroker {
			t.Errorf("%q %v: broker: %s, want %s", step.broker, step.op, got, step.ofBroker)
		}
		if a, _ := b.catalog.Load().topicByName("a"); a.effective.RetentionMs != step.retention {
			t.Errorf("%q %v: %d ms are served, want %d", step.broker, step.op, a.effective.RetentionMs, step.retention)
		}
		if got := b.described(ofTopic, "own", "retention.ms"); got != "77 1" {
			t.Errorf("the topic's own value: %s", got)
		}
	}
	if got := b.alter(ofBroker, "1", configOp{opAppend, "log.cleanup.policy", "compact"}); got != 0 || b.described(ofTopic, "a", "cleanup.policy") != "delete,compact 2" {
		t.Errorf("append: code %d, %s", got, b.described(ofTopic, "a", "cleanup.policy"))
	}
	if got := b.alter(ofBroker, "", configOp{opSet, "num.io.threads", "9"}); got != 0 || b.described(ofBroker, "", "num.io.threads") != "9 3" || b.described(ofBroker, "", "num.partitions") != "" {
		t.Errorf("defaults of all: code %d, %s", got, b.described(ofBroker, "", "num.io.threads"))
	}
	again := startTestBroker(t, b.disk.CrashCopy(testRand(1)), b.store, "log.segment.bytes=2000000")
	if got := again.described(ofTopic, "a", "cleanup.policy"); got != "delete,compact 2" {
		t.Errorf("after a start: %s", got)
	}
}

func TestBrokerPropertiesThatAreRefused(t *testing.T) {
	b := newTestBroker(t)
	for _, c := range []struct {
		broker string
		op     configOp
		want   *kerr.Error
	}{
		{"1", configOp{opSet, "num.partitions", "3"}, kerr.InvalidRequest}, {"", configOp{opSet, "listeners", "PLAINTEXT://:1"}, kerr.InvalidRequest},
		{"1", configOp{opSet, "log.segment.bytes", "3"}, kerr.InvalidRequest}, {"1", configOp{opSet, "log.segment.bytes", "x"}, kerr.InvalidRequest},
		{"", configOp{opSet, "postgres.url", "x"}, kerr.InvalidRequest}, {"1", configOp{opAppend, "log.segment.bytes", "1"}, kerr.InvalidConfig},
		{"1", configOp{opSet, "no.such.property", "1"}, kerr.InvalidConfig}, {"2", configOp{opSet, "log.segment.bytes", "3000000"}, kerr.InvalidRequest},
		{"1", configOp{opSet, "log.retention.ms", "null"}, kerr.InvalidRequest}, {"1", configOp{9, "log.retention.ms", "1"}, kerr.InvalidRequest},
		{"1", configOp{opSet, "log.retention.ms", strings.Repeat("9", maxConfigValue+1)}, kerr.InvalidConfig},
	} {
		wantCode(t, fmt.Sprintf("%q %.60v", c.broker, c.op), b.alter(ofBroker, c.broker, c.op), c.want)
	}
	wantCode(t, "good and bad", b.alter(ofBroker, "1", configOp{opSet, "log.retention.ms", "1"}, configOp{opSet, "log.segment.bytes", "1"}), kerr.InvalidRequest)
	wantCode(t, "excluding each other", b.alter(ofBroker, "1", configOp{opSet, "log.cleaner.min.compaction.lag.ms", "9"}, configOp{opSet, "log.cleaner.max.compaction.lag.ms", "8"}), kerr.InvalidRequest)
	if n := len(b.catalog.Load().resources); n != 0 || b.store.Calls()["SetResourceConfigs"] != 0 {
		t.Errorf("%d resources, %d writes", n, b.store.Calls()["SetResourceConfigs"])
	}
}

// Rows that somebody else's SQL made unusable do not stop a broker.
func TestBadStoredBrokerProperties(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	c, err := b.store.SetResourceConfigs(t.Context(), b.owner, []meta.ResourceChange{{
		Resource: meta.Resource{Kind: meta.ResourceBroker}, Set: map[string]string{"log.retention.ms": "5", "num.partitions": "9", "log.roll.ms": "x", "junk": "1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Broker.serve(c); err != nil {
		t.Fatal(err)
	}
	if got := b.described(ofTopic, "a", "retention.ms"); got != "5 3" {
		t.Errorf("the good one: %s", got)
	}
	if b.cfg.Int("num.partitions") != 1 || b.catalog.Load().cfg.Int("num.partitions") != 1 {
		t.Error("a property that needs a start was taken over")
	}
}

func TestGroupAndClientMetricsProperties(t *testing.T) {
	b := newTestBroker(t)
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		op   configOp
		want *kerr.Error
		then string
	}{
		{ofGroup, "g", configOp{opSet, "consumer.session.timeout.ms", "50000"}, nil, "50000 8"},
		{ofGroup, "g", configOp{opSet, "consumer.session.timeout.ms", "5"}, kerr.InvalidConfig, "50000 8"},
		{ofGroup, "g", configOp{opSet, "consumer.heartbeat.interval.ms", "600000"}, kerr.InvalidConfig, "5000 5"},
		{ofGroup, "g", configOp{opSet, "nope", "5"}, kerr.InvalidConfig, ""},
		{ofGroup, "h", configOp{opDelete, "consumer.session.timeout.ms", "null"}, nil, "45000 5"},
		{ofGroup, "g", configOp{opAppend, "consumer.session.timeout.ms", "5"}, kerr.InvalidConfig, "50000 8"},
		{ofGroup, strings.Repeat("g", maxConfigName+1), configOp{opSet, "consumer.session.timeout.ms", "50000"}, kerr.InvalidRequest, "45000 5"},
		{ofMetrics, "m", configOp{opSet, "interval.ms", "5000"}, nil, "5000 7"},
		{ofMetrics, "m", configOp{opSet, "interval.ms", "5"}, kerr.InvalidRequest, "5000 7"},
		{ofMetrics, "m", configOp{opSet, "match", "client_id=a.*"}, nil, "client_id=a.* 7"},
		{ofMetrics, "m", configOp{opSet, "match", "nope=a.*"}, kerr.InvalidConfig, "client_id=a.* 7"},
		{ofMetrics, "m", configOp{opSet, "nope", "x"}, kerr.InvalidRequest, ""},
		{ofMetrics, "m", configOp{opAppend, "metrics", "b"}, kerr.InvalidConfig, " 5"},
		{ofMetrics, "m", configOp{opDelete, "match", "null"}, nil, " 5"},
	} {
		wantCode(t, fmt.Sprintf("%.9s %v", c.name, c.op), b.alter(c.kind, c.name, c.op), c.want)
		if got := b.described(c.kind, c.name, c.op.name); got != c.then {
			t.Errorf("%.9s after %v: %q, want %q", c.name, c.op, got, c.then)
		}
	}
	if got := b.consumerTimes("g"); got.Session != 50*time.Second || got.Interval != 5*time.Second {
		t.Errorf("the coordinator is told %+v", got)
	}
	if got := b.consumerTimes("h"); got != (coordinator.ConsumerTimes{}) {
		t.Errorf("the coordinator is told %+v of a group without properties", got)
	}
	if got := b.alter(ofGroup, "g", configOp{opDelete, "consumer.session.timeout.ms", "null"}); got != 0 || len(b.catalog.Load().resources) != 1 {
		t.Errorf("code %d, %v", got, b.catalog.Load().resources)
	}
}

func TestResourcesAreBounded(t *testing.T) {
	b := newTestBroker(t)
	full := &catalog{resources: map[meta.Resource]map[string]string{}}
	for i := range maxConfigResources {
		full.resources[meta.Resource{Kind: meta.ResourceGroup, Name: fmt.Sprint(i)}] = nil
	}
	if err := full.roomFor(meta.Resource{Kind: meta.ResourceGroup, Name: "new"}); codeOf(err) != kerr.PolicyViolation.Code {
		t.Errorf("one too many: %v", err)
	}
	for _, r := range []meta.Resource{{Kind: meta.ResourceGroup, Name: "7"}, {Kind: meta.ResourceClientMetrics, Name: "new"}} {
		if err := full.roomFor(r); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	if err := b.catalog.Load().roomFor(meta.Resource{Kind: meta.ResourceGroup}); err != nil {
		t.Error(err)
	}
}

// replace runs AlterConfigs on one resource and returns its code.
func (b *testBroker) replace(version int16, validateOnly bool, kind kmsg.ConfigResourceType, name string, pairs ...string) int16 {
	b.t.Helper()
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name = pairs[i]
		if pairs[i+1] != "null" {
			c.Value = &pairs[i+1]
		}
		r.Configs = append(r.Configs, c)
	}
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources, req.ValidateOnly = append(req.Resources, r), validateOnly
	resp := ask[*kmsg.AlterConfigsResponse](b, b.handleAlterConfigs, version, req)
	if len(resp.Resources) != 1 {
		b.t.Fatalf("%+v", resp.Resources)
	}
	return resp.Resources[0].ErrorCode
}

func TestAlterConfigs(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, map[string]string{"cleanup.policy": "compact"})
	for version := int16(0); version <= 2; version++ {
		for _, c := range []struct {
			dry   bool
			kind  kmsg.ConfigResourceType
			name  string
			pairs []string
			want  *kerr.Error
			then  string // retention.ms, cleanup.policy of a
		}{
			{false, ofTopic, "a", []string{"retention.ms", "5000", "cleanup.policy", "compact"}, nil, "5000 1, compact 1"},
			{true, ofTopic, "a", []string{"retention.ms", "6000"}, nil, "5000 1, compact 1"},
			{false, ofTopic, "a", []string{"retention.ms", "7000"}, nil, "7000 1, delete 5"},
			{true, ofTopic, "a", []string{"retention.ms", "-7"}, kerr.InvalidConfig, "7000 1, delete 5"},
			{false, ofTopic, "a", []string{"retention.ms", "null"}, kerr.InvalidRequest, "7000 1, delete 5"},
			{false, ofTopic, "a", []string{"nope", "x"}, kerr.InvalidConfig, "7000 1, delete 5"},
			{false, ofTopic, "a", []string{"retention.ms", "1", "retention.ms", "2"}, kerr.InvalidRequest, "7000 1, delete 5"},
			{false, ofTopic, "unknown", []string{"retention.ms", "1"}, kerr.UnknownTopicOrPartition, "7000 1, delete 5"},
			{false, ofTopic, "", []string{"retention.ms", "1"}, kerr.InvalidRequest, "7000 1, delete 5"},
			{false, ofLogger, "1", []string{"root", "INFO"}, kerr.InvalidRequest, "7000 1, delete 5"},
			{false, 99, "m", []string{"interval.ms", "1"}, kerr.InvalidRequest, "7000 1, delete 5"},
			{false, ofTopic, "a", nil, nil, "604800000 5, delete 5"},
			{false, ofBroker, "1", []string{"log.retention.ms", "99", "num.io.threads", "3"}, nil, "99 2, delete 5"},
			{false, ofBroker, "1", []string{"num.io.threads", "3"}, nil, "604800000 5, delete 5"},
			{false, ofBroker, "1", nil, nil, "604800000 5, delete 5"},
			{false, ofGroup, "g", []string{"consumer.session.timeout.ms", "46000"}, nil, "604800000 5, delete 5"},
			{false, ofGroup, "g", nil, nil, "604800000 5, delete 5"},
		} {
			wantCode(t, fmt.Sprintf("v%d %+v", version, c), b.replace(version, c.dry, c.kind, c.name, c.pairs...), c.want)
			if got := b.described(ofTopic, "a", "retention.ms") + ", " + b.described(ofTopic, "a", "cleanup.policy"); got != c.then {
				t.Errorf("v%d after %+v: %s", version, c, got)
			}
		}
	}
	if n := len(b.catalog.Load().resources); n != 0 {
		t.Errorf("%d resources are left", n)
	}
}

func TestListConfigResources(t *testing.T) {
	b := newTestBroker(t)
	b.create("b", 1, nil)
	b.create("a", 1, nil)
	b.alter(ofGroup, "g", configOp{opSet, "consumer.session.timeout.ms", "50000"})
	b.alter(ofMetrics, "m", configOp{opSet, "interval.ms", "5000"})
	for _, c := range []struct {
		version int16
		types   []int8
		want    string
	}{
		{0, nil, "0 m/0"}, {1, nil, "0 g/32 m/16 1/8 1/4 a/2 b/2"}, {1, []int8{2}, "0 a/2 b/2"}, {1, []int8{2, 2, 4}, "0 1/4 a/2 b/2"}, {1, []int8{16}, "0 m/16"},
		{1, []int8{32}, "0 g/32"}, {1, []int8{0}, "35"}, {1, []int8{2, 99}, "35"}, {1, []int8{64}, "35"},
	} {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.ResourceTypes = c.types
		resp := ask[*kmsg.ListConfigResourcesResponse](b, b.handleListConfigResources, c.version, r)
		got := fmt.Sprint(resp.ErrorCode)
		for _, row := range resp.ConfigResources {
			if c.version == 0 {
				row.Type = 0
			}
			got += fmt.Sprintf(" %s/%d", row.Name, row.Type)
		}
		if got != c.want {
			t.Errorf("v%d %v: %s, want %s", c.version, c.types, got, c.want)
		}
	}
}

func TestLogLevel(t *testing.T) {
	b := newTestBroker(t)
	level := new(slog.LevelVar)
	b.logLevel, b.log = level, slog.New(slog.NewTextHandler(discard{}, &slog.HandlerOptions{Level: level}))
	for _, c := range []struct {
		broker string
		op     configOp
		want   *kerr.Error
		then   string
	}{
		{"1", configOp{opSet, "root", "DEBUG"}, nil, "DEBUG 6"}, {"1", configOp{opSet, "root", "error"}, nil, "ERROR 6"},
		{"1", configOp{opSet, "root", "nope"}, kerr.InvalidConfig, "ERROR 6"}, {"1", configOp{opSet, "kafka.server.KafkaApis", "INFO"}, kerr.InvalidConfig, "ERROR 6"},
		{"1", configOp{opDelete, "root", "null"}, kerr.InvalidRequest, "ERROR 6"}, {"1", configOp{opAppend, "root", "INFO"}, kerr.InvalidRequest, "ERROR 6"},
		{"2", configOp{opSet, "root", "INFO"}, kerr.InvalidRequest, "ERROR 6"}, {"", configOp{opSet, "root", "INFO"}, kerr.InvalidRequest, "ERROR 6"},
		{"1", configOp{opSet, "root", "INFO"}, nil, "INFO 6"},
	} {
		wantCode(t, fmt.Sprint(c.op), b.alter(ofLogger, c.broker, c.op), c.want)
		if got := b.described(ofLogger, "1", "root"); got != c.then {
			t.Errorf("after %v: %s, want %s", c.op, got, c.then)
		}
	}
	if b.log.Enabled(context.Background(), slog.LevelDebug) || !b.log.Enabled(context.Background(), slog.LevelInfo) {
		t.Error("the log does not follow")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
