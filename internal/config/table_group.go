package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// groupProperties are the settings of one group, with the names, types and defaults of Kafka 4.4.0's GroupConfig. Where
// the broker has properties of the same name with "min." and "max." in it, those are the bounds.
var groupProperties = []Property{
	{Name: "consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.consumer.heartbeat.interval.ms",
		Doc: "Heartbeat interval given to the group's members (KIP-848)."},
	{Name: "consumer.session.timeout.ms", Type: Int, Default: "45000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.consumer.session.timeout.ms",
		Doc: "Time without a heartbeat after which a member of the group is removed (KIP-848)."},
	{Name: "consumer.assignment.interval.ms", Type: Int, Default: "1000", Min: at(0), Scope: ScopeGroup, BrokerName: "group.consumer.assignment.interval.ms", Use: Accepted,
		Doc: "Assignments are computed with the heartbeat that makes them necessary."},
	{Name: "errors.deadletterqueue.copy.record.enable", Type: Boolean, Default: "false", Scope: ScopeGroup, Use: Accepted, Doc: noShareGroups},
	{Name: "errors.deadletterqueue.topic.name", Type: String, Scope: ScopeGroup, Use: Accepted, Doc: noShareGroups, empty: true},
	{Name: "share.assignment.interval.ms", Type: Int, Default: "1000", Min: at(0), Scope: ScopeGroup, BrokerName: "group.share.assignment.interval.ms", Use: Accepted, Doc: noShareGroups},
	{Name: "share.auto.offset.reset", Type: String, Default: "latest", Scope: ScopeGroup, Use: Accepted, Doc: noShareGroups, check: checkShareReset},
	{Name: "share.delivery.count.limit", Type: Int, Default: "5", Min: at(1), Scope: ScopeGroup, BrokerName: "group.share.delivery.count.limit", Use: Accepted, Doc: noShareGroups},
	{Name: "share.heartbeat.interval.ms", Type: Int, Default: "5000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.share.heartbeat.interval.ms", Use: Accepted, Doc: noShareGroups},
	{Name: "share.isolation.level", Type: String, Default: "read_uncommitted", Valid: []string{"read_committed", "read_uncommitted"}, Scope: ScopeGroup, Use: Accepted, Doc: noShareGroups},
	{Name: "share.partition.max.record.locks", Type: Int, Default: "2000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.share.partition.max.record.locks", Use: Accepted, Doc: noShareGroups},
	{Name: "share.record.lock.duration.ms", Type: Int, Default: "30000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.share.record.lock.duration.ms", Use: Accepted, Doc: noShareGroups},
	{Name: "share.renew.acknowledge.enable", Type: Boolean, Default: "true", Scope: ScopeGroup, Use: Accepted, Doc: noShareGroups},
	{Name: "share.session.timeout.ms", Type: Int, Default: "45000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.share.session.timeout.ms", Use: Accepted, Doc: noShareGroups},
	{Name: "streams.assignment.interval.ms", Type: Int, Default: "1000", Min: at(0), Scope: ScopeGroup, BrokerName: "group.streams.assignment.interval.ms", Use: Accepted, Doc: noStreamsGroups},
	{Name: "streams.assignor.name", Type: String, Default: "sticky", Scope: ScopeGroup, BrokerName: "group.streams.assignors", Use: Accepted, Doc: noStreamsGroups},
	{Name: "streams.heartbeat.interval.ms", Type: Int, Default: "5000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.streams.heartbeat.interval.ms", Use: Accepted, Doc: noStreamsGroups},
	{Name: "streams.initial.rebalance.delay.ms", Type: Int, Default: "3000", Min: at(0), Scope: ScopeGroup, BrokerName: "group.streams.initial.rebalance.delay.ms", Use: Accepted, Doc: noStreamsGroups},
	{Name: "streams.num.standby.replicas", Type: Int, Default: "0", Min: at(0), Scope: ScopeGroup, BrokerName: "group.streams.num.standby.replicas", Use: Accepted, Doc: noStreamsGroups},
	{Name: "streams.rack.aware.assignment.tags", Type: List, Scope: ScopeGroup, BrokerName: "group.streams.rack.aware.assignment.tags", Use: Accepted, Doc: noStreamsGroups},
	{Name: "streams.session.timeout.ms", Type: Int, Default: "45000", Min: at(1), Scope: ScopeGroup, BrokerName: "group.streams.session.timeout.ms", Use: Accepted, Doc: noStreamsGroups},
}

const (
	noShareGroups   = "Share groups are not available yet."
	noStreamsGroups = "Streams groups are not available yet."
	noTelemetry     = "Client telemetry is not available: subscriptions are kept and nobody asks for them."
)

// clientMetricsProperties are the settings of one subscription of client metrics (KIP-714).
var clientMetricsProperties = []Property{
	{Name: "interval.ms", Type: Int, Default: "300000", Min: at(100), Max: at(3_600_000), Scope: ScopeClientMetrics, Use: Accepted, Doc: noTelemetry},
	{Name: "match", Type: List, Scope: ScopeClientMetrics, Use: Accepted, check: checkClientMatch, Doc: noTelemetry},
	{Name: "metrics", Type: List, Scope: ScopeClientMetrics, Use: Accepted, Doc: noTelemetry},
}

// clientMatchKeys are what a subscription can select clients by (Kafka's ClientMetricsConfigs).
var clientMatchKeys = map[string]bool{
	"client_instance_id": true, "client_id": true, "client_software_name": true, "client_software_version": true,
	"client_source_address": true, "client_source_port": true,
}

func checkClientMatch(value string) error {
	if value == "" {
		return nil
	}
	for item := range strings.SplitSeq(value, ",") {
		key, pattern, ok := strings.Cut(item, "=")
		if !ok || !clientMatchKeys[strings.TrimSpace(key)] {
			return fmt.Errorf("illegal client matching pattern: %s", item)
		}
		if _, err := regexp.Compile(pattern); err != nil {
			return fmt.Errorf("illegal client matching pattern: %s", item)
		}
	}
	return nil
}

// checkShareReset is Kafka's ShareGroupAutoOffsetResetStrategy.
func checkShareReset(value string) error {
	switch {
	case value == "latest", value == "earliest", strings.HasPrefix(value, "by_duration:P"):
		return nil
	}
	return fmt.Errorf("must be latest, earliest or by_duration:<ISO-8601 duration>")
}

// ValidateGroup checks a property of a group, within the bounds that the broker sets.
func (c *Config) ValidateGroup(name, value string) error {
	p, ok := Lookup(name)
	if !ok || p.Scope&ScopeGroup == 0 {
		return fmt.Errorf("unknown group config name: %s", name)
	}
	kept, err := p.parse(value)
	if err != nil {
		return fmt.Errorf("invalid value %s for configuration %s: %w", value, name, err)
	}
	low, high, bounded := c.groupBounds(&p)
	if n, err := strconv.ParseInt(kept, 10, 64); bounded && err == nil && (n < low || n > high) {
		return fmt.Errorf("%s must be in the range %d to %d inclusive", name, low, high)
	}
	return nil
}

// groupBounds are the broker's limits on a group's property: group.consumer.session.timeout.ms has
// group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms.
func (c *Config) groupBounds(p *Property) (low, high int64, bounded bool) {
	low, high = -1<<63, 1<<63-1
	kind, name, ok := strings.Cut(strings.TrimPrefix(p.BrokerName, "group."), ".")
	if !ok || p.BrokerName == "" {
		return low, high, false
	}
	if lowest := "group." + kind + ".min." + name; table().byName[lowest] != nil {
		low, bounded = c.Int64(lowest), true
	}
	highest := "group." + kind + ".max." + name
	if name == "num.standby.replicas" {
		highest = "group.streams.max.standby.replicas"
	}
	if table().byName[highest] != nil {
		high, bounded = c.Int64(highest), true
	}
	return low, high, bounded
}

// ErrInterval: Kafka answers a bad interval of client metrics with another code than other bad values.
var ErrInterval = fmt.Errorf("the interval must be between 100 and 3600000 (1 hour)")

// ValidateClientMetrics checks a property of a subscription. A bad interval wraps ErrInterval.
func ValidateClientMetrics(name, value string) error {
	p, ok := Lookup(name)
	if !ok || p.Scope&ScopeClientMetrics == 0 {
		return fmt.Errorf("unknown client metrics configuration: %s: %w", name, ErrUnknownProperty)
	}
	_, err := p.parse(value)
	if err != nil && name == "interval.ms" {
		return fmt.Errorf("invalid value %s for %s: %w", value, name, ErrInterval)
	}
	return err
}

// ErrUnknownProperty: there is no property of that name.
var ErrUnknownProperty = fmt.Errorf("unknown property")

// Group holds the effective values of one group.
type Group struct {
	ConsumerSessionTimeout    time.Duration
	ConsumerHeartbeatInterval time.Duration
}

// Group returns the effective values of a group with these overrides. One that was good once and is outside of today's
// bounds counts as the nearest bound; one that does not parse counts as not set.
func (c *Config) Group(overrides map[string]string) Group {
	value := func(name string) time.Duration {
		p := table().byName[name]
		n := c.Int64(p.BrokerName)
		if text, ok := overrides[name]; ok {
			if kept, err := p.parse(text); err == nil {
				n, _ = strconv.ParseInt(kept, 10, 64)
				low, high, _ := c.groupBounds(p)
				n = max(low, min(n, high))
			}
		}
		return time.Duration(n) * time.Millisecond
	}
	return Group{ConsumerSessionTimeout: value("consumer.session.timeout.ms"), ConsumerHeartbeatInterval: value("consumer.heartbeat.interval.ms")}
}
