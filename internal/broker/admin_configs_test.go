package broker

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func describeConfigs(b *testBroker, version int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	b.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	return ask[*kmsg.DescribeConfigsResponse](b, b.handleDescribeConfigs, version, req).Resources[0]
}

// topicConfig is one property of a topic as clients see it.
func topicConfig(b *testBroker, topic, key string) (value string, source kmsg.ConfigSource) {
	b.t.Helper()
	row := describeConfigs(b, 4, kmsg.ConfigResourceTypeTopic, topic, key)
	if row.ErrorCode != 0 || len(row.Configs) != 1 || row.Configs[0].Value == nil {
		b.t.Fatalf("%s of %s: %+v", key, topic, row)
	}
	return *row.Configs[0].Value, row.Configs[0].Source
}

// Rows G-06 and G-07.
func TestDescribeConfigs(t *testing.T) {
	b := newTestBroker(t, "num.partitions=4")
	b.create("a", 1, map[string]string{"cleanup.policy": "delete", "retention.ms": "1000"})
	for version := int16(1); version <= 4; version++ {
		row := describeConfigs(b, version, kmsg.ConfigResourceTypeTopic, "a")
		if row.ErrorCode != 0 || len(row.Configs) < 20 {
			t.Fatalf("v%d: code %d, %d properties", version, row.ErrorCode, len(row.Configs))
		}
		for _, c := range row.Configs {
			if version >= 3 && (c.ConfigType == 0 || c.Documentation == nil || *c.Documentation == "") {
				t.Errorf("v%d: %s has type %d and documentation %v", version, c.Name, c.ConfigType, c.Documentation)
			}
		}
	}
	if value, source := topicConfig(b, "a", "cleanup.policy"); value != "delete" || source != kmsg.ConfigSourceDynamicTopicConfig {
		t.Errorf("cleanup.policy given at creation: %s from %v", value, source)
	}
	b.create("plain", 1, nil)
	if value, source := topicConfig(b, "plain", "cleanup.policy"); value != "delete" || source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("cleanup.policy not given: %s from %v", value, source)
	}
	row := describeConfigs(b, 4, kmsg.ConfigResourceTypeTopic, "a", "cleanup.policy", "no.such.key")
	if len(row.Configs) != 1 || len(row.Configs[0].ConfigSynonyms) < 2 || row.Configs[0].ConfigSynonyms[0].Name != "cleanup.policy" {
		t.Errorf("one key: %+v", row.Configs)
	}
	row = describeConfigs(b, 4, kmsg.ConfigResourceTypeBroker, "1", "num.partitions", "default.replication.factor", "auto.create.topics.enable", "postgres.url")
	found := map[string]*string{}
	for _, c := range row.Configs {
		found[c.Name] = c.Value
	}
	if v := found["num.partitions"]; v == nil || *v != "4" || found["default.replication.factor"] == nil || found["auto.create.topics.enable"] == nil {
		t.Errorf("broker: code %d, %v", row.ErrorCode, found)
	}
	if v, ok := found["postgres.url"]; ok && v != nil {
		t.Error("the URL of Postgres, which may hold a password, is shown")
	}
}

func TestDescribeConfigsOfOtherResources(t *testing.T) {
	b := newTestBroker(t)
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want int16
	}{
		{kmsg.ConfigResourceTypeTopic, "unknown", code(kerr.UnknownTopicOrPartition)},
		{kmsg.ConfigResourceTypeTopic, "bad name", code(kerr.InvalidTopicException)},
		{kmsg.ConfigResourceTypeBroker, "", 0},
		{kmsg.ConfigResourceTypeBroker, "2", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeBroker, "one", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", 0},
		{kmsg.ConfigResourceTypeBrokerLogger, "", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeBrokerLogger, "2", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeGroupConfig, "never-used", 0},
		{kmsg.ConfigResourceTypeGroupConfig, "", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeClientMetrics, "", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeClientMetrics, "never-used", 0},
		{99, "x", code(kerr.InvalidRequest)},
	} {
		row := describeConfigs(b, 4, c.kind, c.name)
		if row.ErrorCode != c.want || row.ResourceType != c.kind || row.ResourceName != c.name {
			t.Errorf("type %d %q: %+v, want code %d", c.kind, c.name, row, c.want)
		}
	}
}

const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract
)

type configOp struct {
	op    kmsg.IncrementalAlterConfigOp
	name  string
	value string // "null" for null
}

func alterRequest(kind kmsg.ConfigResourceType, name string, ops ...configOp) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, op := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Op, c.Name = op.op, op.name
		if op.value != "null" {
			c.Value = &op.value
		}
		r.Configs = append(r.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	return req
}

func alterTopic(b *testBroker, version int16, ops ...configOp) (int16, string) {
	b.t.Helper()
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](b, b.handleIncrementalAlterConfigs, version, alterRequest(kmsg.ConfigResourceTypeTopic, "a", ops...))
	if len(resp.Resources) != 1 {
		b.t.Fatalf("%d rows", len(resp.Resources))
	}
	row := resp.Resources[0]
	if row.ErrorMessage == nil {
		return row.ErrorCode, ""
	}
	return row.ErrorCode, *row.ErrorMessage
}

// Rows G-08 and G-09.
func TestIncrementalAlterConfigs(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for version := int16(0); version <= 1; version++ {
		for _, step := range []struct {
			op   configOp
			want string // of the property afterwards
		}{
			{configOp{opAppend, "cleanup.policy", "compact"}, "delete,compact"},
			{configOp{opAppend, "cleanup.policy", "compact"}, "delete,compact"},
			{configOp{opSubtract, "cleanup.policy", "delete"}, "compact"},
			{configOp{opSubtract, "cleanup.policy", "delete"}, "compact"},
			{configOp{opSubtract, "cleanup.policy", "compact"}, ""},
			{configOp{opDelete, "cleanup.policy", "null"}, "delete"},
			{configOp{opDelete, "cleanup.policy", "null"}, "delete"},
			{configOp{opSet, "retention.ms", "-1"}, "-1"},
			{configOp{opSet, "retention.ms", "777"}, "777"},
		} {
			if got, message := alterTopic(b, version, step.op); got != 0 {
				t.Fatalf("v%d: %v: code %d %s", version, step.op, got, message)
			}
			if value, _ := topicConfig(b, "a", step.op.name); value != step.want {
				t.Fatalf("v%d: after %v it is %q, want %q", version, step.op, value, step.want)
			}
		}
	}
	if a, _ := b.catalog.Load().topicByName("a"); a.effective.RetentionMs != 777 {
		t.Errorf("retention of the served topic is %d", a.effective.RetentionMs)
	}
}

func TestIncrementalAlterConfigsRefusesAndChangesNothing(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	for _, c := range []struct {
		what string
		ops  []configOp
		want int16
		says string
	}{
		{"unknown key", []configOp{{opSet, "no.such.key", "1"}}, code(kerr.InvalidConfig), "no.such.key"},
		{"broker key", []configOp{{opSet, "num.partitions", "1"}}, code(kerr.InvalidConfig), "num.partitions"},
		{"bad number", []configOp{{opSet, "retention.ms", "soon"}}, code(kerr.InvalidConfig), "retention.ms"},
		{"below minimum", []configOp{{opSet, "retention.ms", "-2"}}, code(kerr.InvalidConfig), "retention.ms"},
		{"small segment", []configOp{{opSet, "segment.bytes", "1"}}, code(kerr.InvalidConfig), "segment.bytes"},
		{"bad list item", []configOp{{opAppend, "cleanup.policy", "burn"}}, code(kerr.InvalidConfig), "cleanup.policy"},
		{"append to a number", []configOp{{opAppend, "retention.ms", "1"}}, code(kerr.InvalidConfig), "list"},
		{"null value", []configOp{{opSet, "retention.ms", "null"}}, code(kerr.InvalidRequest), "null"},
		{"key twice", []configOp{{opSet, "retention.ms", "1"}, {opDelete, "retention.ms", "null"}}, code(kerr.InvalidRequest), "more than once"},
		{"unknown operation", []configOp{{9, "retention.ms", "1"}}, code(kerr.InvalidRequest), "operation"},
		{"good and bad", []configOp{{opSet, "retention.ms", "5"}, {opSet, "segment.bytes", "x"}}, code(kerr.InvalidConfig), "segment.bytes"},
	} {
		got, message := alterTopic(b, 1, c.ops...)
		if got != c.want || !strings.Contains(message, c.says) {
			t.Errorf("%s: code %d %q, want %d and a message that says %q", c.what, got, message, c.want, c.says)
		}
	}
	if a, _ := b.catalog.Load().topicByName("a"); len(a.configs) != 0 {
		t.Errorf("configs are %v", a.configs)
	}
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want int16
	}{
		{kmsg.ConfigResourceTypeTopic, "unknown", code(kerr.UnknownTopicOrPartition)},
		{kmsg.ConfigResourceTypeTopic, "", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeBroker, "1", code(kerr.InvalidConfig)},
		{kmsg.ConfigResourceTypeBroker, "2", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeBroker, "x", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", code(kerr.InvalidConfig)},
		{kmsg.ConfigResourceTypeGroupConfig, "g", code(kerr.InvalidConfig)},
		{kmsg.ConfigResourceTypeGroupConfig, "", code(kerr.InvalidRequest)},
		{kmsg.ConfigResourceTypeClientMetrics, "m", code(kerr.InvalidRequest)},
		{99, "m", code(kerr.InvalidRequest)},
	} {
		resp := ask[*kmsg.IncrementalAlterConfigsResponse](b, b.handleIncrementalAlterConfigs, 1, alterRequest(r.kind, r.name, configOp{opSet, "retention.ms", "1"}))
		if row := resp.Resources[0]; row.ErrorCode != r.want || row.ErrorMessage == nil {
			t.Errorf("type %d %q: %+v, want code %d", r.kind, r.name, row, r.want)
		}
	}
	twice := alterRequest(kmsg.ConfigResourceTypeTopic, "a", configOp{opSet, "retention.ms", "1"})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	if resp := ask[*kmsg.IncrementalAlterConfigsResponse](b, b.handleIncrementalAlterConfigs, 1, twice); len(resp.Resources) != 2 || resp.Resources[1].ErrorCode != code(kerr.InvalidRequest) {
		t.Errorf("the same resource twice: %+v", resp.Resources)
	}
}

func TestIncrementalAlterConfigsValidateOnly(t *testing.T) {
	b := newTestBroker(t)
	b.create("a", 1, nil)
	req := alterRequest(kmsg.ConfigResourceTypeTopic, "a", configOp{opSet, "retention.ms", "1"})
	req.ValidateOnly = true
	if resp := ask[*kmsg.IncrementalAlterConfigsResponse](b, b.handleIncrementalAlterConfigs, 1, req); resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp.Resources)
	}
	if a, _ := b.catalog.Load().topicByName("a"); len(a.configs) != 0 || b.store.Calls()["SetTopicConfigs"] != 0 {
		t.Fatal("something was set")
	}
}
