package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
)

// Bounds of what clients can have stored: resources of one kind, and the bytes of one value and of one name.
const (
	maxConfigResources = 10_000
	maxConfigValue     = 32 << 10
	maxConfigName      = 900
)

// alterTimeout bounds the wait for Postgres; the requests have no timeout of their own.
const alterTimeout = 15 * time.Second

// configResource is one resource as a request changes its properties.
type configResource struct {
	what      string                         // "topic a", for messages
	current   map[string]string              // what was set on it
	effective func(name string) string       // the value that holds, which APPEND and SUBTRACT change
	isList    func(name string) bool         // whether they may
	known     func(name string) error        // whether there is such a property, for every operation
	check     func(name, value string) error // whether a value is good alone
	together  func(after map[string]string) error
	store     func(ctx context.Context, set map[string]string, remove []string) (meta.Catalog, error)
}

// configResource finds a resource. Those that are not topics need not have been named before.
func (b *Broker) configResource(kind kmsg.ConfigResourceType, name string) (*configResource, error) {
	cat := b.catalog.Load()
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if name == "" {
			return nil, fmt.Errorf("%w: properties for all topics are properties of brokers", errInvalidRequest)
		}
		t, ok := cat.topicByName(name)
		if !ok {
			return nil, fmt.Errorf("%w: %s", errUnknownTopic, name)
		}
		return b.topicResource(cat, t), nil
	case kmsg.ConfigResourceTypeBroker:
		if name != "" {
			if err := b.checkBrokerName(name); err != nil {
				return nil, err
			}
			name = strconv.Itoa(int(b.nodeID))
		}
		return b.brokerResource(cat, name), nil
	case kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics:
		if name == "" || len(name) > maxConfigName {
			return nil, fmt.Errorf("%w: a name of 1 to %d bytes is needed", errInvalidRequest, maxConfigName)
		}
		if kind == kmsg.ConfigResourceTypeGroupConfig {
			return b.groupResource(cat, name), nil
		}
		return b.clientMetricsResource(cat, name), nil
	}
	return nil, unsupportedResource(kind)
}

func (b *Broker) topicResource(cat *catalog, t *topic) *configResource {
	return &configResource{
		what: "topic " + t.name, current: t.configs, isList: isListProperty,
		effective: func(name string) string { return valueIn(cat.cfg.DescribeTopic(t.configs), name) },
		known: func(name string) error {
			if p, ok := config.Lookup(name); !ok || p.Scope&config.ScopeTopic == 0 {
				return fmt.Errorf("%w: unknown topic config name: %s", errInvalidConfig, name)
			}
			return nil
		},
		check: func(name, value string) error { return wrap(errInvalidConfig, config.ValidateTopic(name, value)) },
		together: func(after map[string]string) error {
			_, err := cat.cfg.Topic(after)
			return wrap(errInvalidConfig, err)
		},
		store: func(ctx context.Context, set map[string]string, remove []string) (meta.Catalog, error) {
			return b.store.SetTopicConfigs(ctx, b.owner, t.id, set, remove)
		},
	}
}

// brokerResource is this broker, or the default of all brokers, whose name is empty.
func (b *Broker) brokerResource(cat *catalog, name string) *configResource {
	own, all := cat.brokerConfigs(b.nodeID)
	r := &configResource{what: "broker " + name, current: own, isList: isListProperty}
	if name == "" {
		r.what, r.current = "all brokers", all
	}
	r.effective = func(name string) string { return valueIn(cat.cfg.DescribeBroker(), name) }
	r.check = func(name, value string) error {
		if p, ok := config.Lookup(name); !ok || p.Scope&config.ScopeBroker == 0 {
			return wrap(errInvalidConfig, config.ValidateBroker(name, value))
		}
		return wrap(errInvalidRequest, config.ValidateBroker(name, value))
	}
	r.together = func(after map[string]string) error {
		own, all := own, all
		if name == "" {
			all = after
		} else {
			own = after
		}
		next, _ := b.cfg.With(own, all)
		return wrap(errInvalidRequest, next.Check())
	}
	r.store = b.storeResource(cat, meta.Resource{Kind: meta.ResourceBroker, Name: name})
	return r
}

func (b *Broker) groupResource(cat *catalog, name string) *configResource {
	at := meta.Resource{Kind: meta.ResourceGroup, Name: name}
	return &configResource{
		what: "group " + name, current: cat.resources[at], isList: isListProperty, store: b.storeResource(cat, at),
		effective: func(property string) string { return valueIn(cat.cfg.DescribeGroup(cat.resources[at]), property) },
		check:     func(name, value string) error { return wrap(errInvalidConfig, cat.cfg.ValidateGroup(name, value)) },
	}
}

// clientMetricsResource has no lists that could be appended to, in Kafka neither.
func (b *Broker) clientMetricsResource(cat *catalog, name string) *configResource {
	at := meta.Resource{Kind: meta.ResourceClientMetrics, Name: name}
	return &configResource{
		what: "client metrics " + name, current: cat.resources[at], store: b.storeResource(cat, at),
		isList: func(string) bool { return false },
		check: func(name, value string) error {
			err := config.ValidateClientMetrics(name, value)
			if errors.Is(err, config.ErrInterval) || errors.Is(err, config.ErrUnknownProperty) {
				return wrap(errInvalidRequest, err)
			}
			return wrap(errInvalidConfig, err)
		},
	}
}

// storeResource writes the properties of one resource; a new one must have room.
func (b *Broker) storeResource(cat *catalog, at meta.Resource) func(context.Context, map[string]string, []string) (meta.Catalog, error) {
	return func(ctx context.Context, set map[string]string, remove []string) (meta.Catalog, error) {
		if err := cat.roomFor(at); err != nil {
			return meta.Catalog{}, err
		}
		return b.store.SetResourceConfigs(ctx, b.owner, []meta.ResourceChange{{Resource: at, Set: set, Remove: remove}})
	}
}

// roomFor refuses a resource too many.
func (c *catalog) roomFor(at meta.Resource) error {
	if _, known := c.resources[at]; known || len(c.resources) < maxConfigResources {
		return nil
	}
	same := 0
	for r := range c.resources {
		if r.Kind == at.Kind {
			same++
		}
	}
	if same >= maxConfigResources {
		return fmt.Errorf("%w: %d resources of this type have properties already", errPolicy, same)
	}
	return nil
}

// brokerConfigs are what was set while brokers ran: for this one, and for all.
func (c *catalog) brokerConfigs(id int32) (own, all map[string]string) {
	return c.resources[meta.Resource{Kind: meta.ResourceBroker, Name: strconv.Itoa(int(id))}], c.resources[meta.Resource{Kind: meta.ResourceBroker}]
}

// alterConfigs makes all changes of one resource or none. plan says what to set and what to remove.
func (b *Broker) alterConfigs(ctx context.Context, kind kmsg.ConfigResourceType, name string, validateOnly bool,
	plan func(*configResource) (set map[string]string, remove []string, err error),
) error {
	end, err := b.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	r, err := b.configResource(kind, name)
	if err != nil {
		return err
	}
	set, remove, err := plan(r)
	if err != nil {
		return err
	}
	if err := r.checkAll(set, remove); err != nil || validateOnly || len(set)+len(remove) == 0 {
		return err
	}
	err = retryChange(ctx, func(int) error {
		c, err := r.store(ctx, set, remove)
		if err != nil {
			return err
		}
		return b.serve(c)
	})
	if err != nil {
		return fmt.Errorf("alter configs of %s: %w", r.what, err)
	}
	return nil
}

// checkAll checks new values, in the order of their names so that one mistake gives one error, and what comes of them.
func (r *configResource) checkAll(set map[string]string, remove []string) error {
	after := maps.Clone(r.current)
	if after == nil {
		after = map[string]string{}
	}
	for _, name := range remove {
		delete(after, name)
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if len(set[name]) > maxConfigValue || len(name) > maxConfigName {
			return fmt.Errorf("%w: a value may have %d bytes", errInvalidConfig, maxConfigValue)
		}
		if err := r.check(name, set[name]); err != nil {
			return err
		}
		after[name] = set[name]
	}
	if r.together == nil {
		return nil
	}
	return r.together(after)
}

func isListProperty(name string) bool {
	p, ok := config.Lookup(name)
	return ok && p.Type == config.List
}

// valueIn is the value of one entry; empty when there is none.
func valueIn(entries []config.Entry, name string) string {
	for _, e := range entries {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// wrap gives an error its class; nil stays nil.
func wrap(class, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", class, err)
}

func listItems(value string) []string {
	var items []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// configKey names a resource in a request.
type configKey struct {
	kind kmsg.ConfigResourceType
	name string
}

// eachResource calls alter once for each resource of a request, in order; each row of one that is named again is refused.
func eachResource(keys []configKey, alter func(i int) error, row func(k configKey, err error)) {
	times := make(map[configKey]int, len(keys))
	for _, k := range keys {
		times[k]++
	}
	for i, k := range keys {
		if times[k] > 1 {
			row(k, fmt.Errorf("%w: the resource is named more than once", errInvalidRequest))
			continue
		}
		row(k, alter(i))
	}
}

// consumerTimes are the timeouts of one group's KIP-848 members, with what was set on the group.
func (b *Broker) consumerTimes(group string) coordinator.ConsumerTimes {
	cat := b.catalog.Load()
	own := cat.resources[meta.Resource{Kind: meta.ResourceGroup, Name: group}]
	if own == nil {
		return coordinator.ConsumerTimes{} // the broker's
	}
	g := cat.cfg.Group(own)
	return coordinator.ConsumerTimes{Session: g.ConsumerSessionTimeout, Interval: g.ConsumerHeartbeatInterval}
}
