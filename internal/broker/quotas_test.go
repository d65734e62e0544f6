package broker

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// entityOf reads "user=u client-id"; a type alone is the default.
func entityOf(text string) []quotaPart {
	var parts []quotaPart
	for _, f := range strings.Fields(text) {
		kind, name, named := strings.Cut(f, "=")
		p := quotaPart{kind: kind}
		if named {
			p.name = &name
		}
		parts = append(parts, p)
	}
	return parts
}

type quotaOp struct {
	entity, key string
	value       float64 // NaN removes
}

var removed = math.NaN()

// alterQuotas sends one entry for each operation and returns "entity:code …" of the answer.
func alterQuotas(b *testBroker, version int16, validateOnly bool, ops ...quotaOp) string {
	b.t.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.ValidateOnly = validateOnly
	for _, o := range ops {
		entry := kmsg.NewAlterClientQuotasRequestEntry()
		for _, p := range entityOf(o.entity) {
			part := kmsg.NewAlterClientQuotasRequestEntryEntity()
			part.Type, part.Name = p.kind, p.name
			entry.Entity = append(entry.Entity, part)
		}
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Value, op.Remove = o.key, o.value, math.IsNaN(o.value)
		entry.Ops = append(entry.Ops, op)
		req.Entries = append(req.Entries, entry)
	}
	resp := ask[*kmsg.AlterClientQuotasResponse](b, b.handleAlterClientQuotas, version, req)
	var out []string
	for _, row := range resp.Entries {
		var e quotaEntity
		for _, p := range row.Entity {
			e = append(e, quotaPart{p.Type, p.Name})
		}
		out = append(out, fmt.Sprintf("%s:%d", e.key(), row.ErrorCode))
	}
	return strings.Join(out, " ")
}

func describeQuotas(b *testBroker, version int16, strict bool, filter ...kmsg.DescribeClientQuotasRequestComponent) string {
	b.t.Helper()
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Strict, req.Components = strict, filter
	resp := ask[*kmsg.DescribeClientQuotasResponse](b, b.handleDescribeClientQuotas, version, req)
	if resp.ErrorCode != 0 {
		return fmt.Sprint("error ", resp.ErrorCode)
	}
	var out []string
	for _, row := range resp.Entries {
		var e quotaEntity
		for _, p := range row.Entity {
			e = append(e, quotaPart{p.Type, p.Name})
		}
		text := e.key() + ":"
		for _, v := range row.Values {
			text += fmt.Sprintf("%s=%v,", v.Key, v.Value)
		}
		out = append(out, strings.TrimSuffix(text, ","))
	}
	return strings.Join(out, " ")
}

// matching is a component of a filter; an empty name is null.
func matching(kind string, match int8, name string) kmsg.DescribeClientQuotasRequestComponent {
	c := kmsg.NewDescribeClientQuotasRequestComponent()
	c.EntityType, c.MatchType = kind, kmsg.QuotasMatchType(match)
	if name != "" {
		c.Match = &name
	}
	return c
}

// Row G-18, with the codes of Kafka 4.4.0.
func TestClientQuotasAreStored(t *testing.T) {
	b := newTestBroker(t)
	for version := int16(0); version <= 1; version++ {
		if got := alterQuotas(b, version, true, quotaOp{"user=u", "producer_byte_rate", 1000}); got != "user=u:0" || describeQuotas(b, version, false) != "" {
			t.Errorf("v%d: validate only: %s, then %s", version, got, describeQuotas(b, version, false))
		}
		got := alterQuotas(b, version, false, quotaOp{"user=u", "producer_byte_rate", 1000}, quotaOp{"user", "consumer_byte_rate", 2000},
			quotaOp{"user=u client-id=c/&=", "consumer_byte_rate", 3000}, quotaOp{"client-id", "controller_mutation_rate", 0.5}, quotaOp{"ip=127.0.0.9", "connection_creation_rate", 300})
		if want := "user=u:0 user:0 client-id=c%2F%26%3D&user=u:0 client-id:0 ip=127.0.0.9:0"; got != want {
			t.Fatalf("v%d: %s, want %s", version, got, want)
		}
		if got := alterQuotas(b, version, false, quotaOp{"user=u", "request_percentage", 12.5}); got != "user=u:0" {
			t.Errorf("v%d: %s", version, got)
		}
		const both, user, all = "client-id=c%2F%26%3D&user=u:consumer_byte_rate=3000", "user=u:producer_byte_rate=1000,request_percentage=12.5", "user:consumer_byte_rate=2000"
		for _, c := range []struct {
			strict bool
			filter []kmsg.DescribeClientQuotasRequestComponent
			want   string
		}{
			{false, nil, "client-id:controller_mutation_rate=0.5 " + both + " ip=127.0.0.9:connection_creation_rate=300 " + all + " " + user},
			{true, nil, ""},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 0, "u")}, both + " " + user},
			{true, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 0, "u")}, user},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 1, "")}, all},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 2, "")}, both + " " + all + " " + user},
			{true, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 2, "")}, all + " " + user},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 2, ""), matching("client-id", 2, "")}, both},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("ip", 2, "")}, "ip=127.0.0.9:connection_creation_rate=300"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("ip", 2, ""), matching("user", 2, "")}, "error 42"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("nope", 2, "")}, "error 35"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("", 2, "")}, "error 42"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 2, ""), matching("user", 1, "")}, "error 42"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 9, "")}, "error 42"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 0, "")}, "error 42"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 1, "u")}, "error 42"},
			{false, []kmsg.DescribeClientQuotasRequestComponent{matching("user", 2, "u")}, "error 42"},
		} {
			if got := describeQuotas(b, version, c.strict, c.filter...); got != c.want {
				t.Errorf("v%d: strict %t %+v: %s, want %s", version, c.strict, c.filter, got, c.want)
			}
		}
		alterQuotas(b, version, false, quotaOp{"user=u", "producer_byte_rate", removed}, quotaOp{"user", "consumer_byte_rate", removed}, quotaOp{"user=u client-id=c/&=", "consumer_byte_rate", removed},
			quotaOp{"client-id", "controller_mutation_rate", removed}, quotaOp{"ip=127.0.0.9", "connection_creation_rate", removed})
		if got := describeQuotas(b, version, false); got != "user=u:request_percentage=12.5" {
			t.Errorf("v%d: what is left: %s", version, got)
		}
		alterQuotas(b, version, false, quotaOp{"user=u", "request_percentage", removed})
		if n := len(b.catalog.Load().resources); n != 0 {
			t.Errorf("v%d: %d resources are left", version, n)
		}
	}
}

func TestClientQuotasThatAreRefused(t *testing.T) {
	b := newTestBroker(t)
	for _, c := range []struct {
		op   quotaOp
		want *kerr.Error
	}{
		{quotaOp{"ip=nowhere", "connection_creation_rate", 1}, kerr.InvalidRequest}, {quotaOp{"ip=127.0.0.9", "producer_byte_rate", 1}, kerr.InvalidRequest},
		{quotaOp{"user=u", "connection_creation_rate", 1}, kerr.InvalidRequest}, {quotaOp{"ip=127.0.0.9 user=u", "connection_creation_rate", 1}, kerr.InvalidRequest},
		{quotaOp{"user=u", "producer_byte_rate", 0}, kerr.InvalidRequest}, {quotaOp{"user=u", "producer_byte_rate", -1}, kerr.InvalidRequest},
		{quotaOp{"user=u", "producer_byte_rate", 1.5}, kerr.InvalidRequest}, {quotaOp{"user=u", "producer_byte_rate", 1e30}, kerr.InvalidRequest},
		{quotaOp{"user=u", "request_percentage", math.Inf(1)}, kerr.InvalidRequest}, {quotaOp{"user=u", "nope", 1}, kerr.InvalidRequest},
		{quotaOp{"", "producer_byte_rate", 1}, kerr.InvalidRequest}, {quotaOp{"user=", "producer_byte_rate", 1}, kerr.InvalidRequest},
		{quotaOp{"nope=x", "producer_byte_rate", 1}, kerr.InvalidRequest}, {quotaOp{"user=" + strings.Repeat("u", maxConfigName+1), "producer_byte_rate", 1}, kerr.InvalidRequest},
		{quotaOp{"user=u", "nope", removed}, nil}, {quotaOp{"user=zzz", "producer_byte_rate", removed}, nil},
	} {
		want := ":0"
		if c.want != nil {
			want = fmt.Sprint(":", c.want.Code)
		}
		if got := alterQuotas(b, 1, false, c.op); !strings.HasSuffix(got, want) {
			t.Errorf("%.60v: %.60s, want %s", c.op, got, want)
		}
	}
	if got := alterQuotas(b, 1, false, quotaOp{"user=u", "producer_byte_rate", 1}, quotaOp{"user=u", "producer_byte_rate", 2}, quotaOp{"user=v", "producer_byte_rate", 3}); got != "user=u:42 user=v:0" {
		t.Errorf("an entity twice: %s", got)
	}
	if got := alterQuotas(b, 1, false, quotaOp{"user=x user=y", "producer_byte_rate", 77}); got != "user=y:0" {
		t.Errorf("a type twice: %s", got)
	}
	if got := describeQuotas(b, 1, false); got != "user=v:producer_byte_rate=3 user=y:producer_byte_rate=77" {
		t.Errorf("stored: %s", got)
	}
}
