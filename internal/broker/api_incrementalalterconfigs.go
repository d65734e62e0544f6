package broker

// IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339). v1 flexible.
// Left out: BROKER resources are refused, since broker properties are read at the start only; so are BROKER_LOGGER,
// CLIENT_METRICS and GROUP, which have no properties yet.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// alterTimeout bounds the wait for Postgres; the request has no timeout of its own.
const alterTimeout = 15 * time.Second

func (b *Broker) handleIncrementalAlterConfigs(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	named := make(map[resource]int, len(req.Resources))
	for _, asked := range req.Resources {
		named[resource{asked.ResourceType, asked.ResourceName}]++
	}
	for i := range req.Resources {
		asked := &req.Resources[i]
		key := resource{asked.ResourceType, asked.ResourceName}
		times := named[key]
		if times == 0 {
			continue
		}
		named[key] = 0 // one row for each resource
		var err error
		if times > 1 {
			err = fmt.Errorf("%w: the resource is named more than once", errInvalidRequest)
		} else {
			err = b.alterResource(ctx, asked, req.ValidateOnly)
		}
		b.noteUnmapped("IncrementalAlterConfigs", err)
		row := kmsg.NewIncrementalAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = asked.ResourceType, asked.ResourceName
		row.ErrorCode, row.ErrorMessage = codeOf(err), messageOf(err)
		resp.Resources = append(resp.Resources, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// alterResource makes all changes of one resource or none.
func (b *Broker) alterResource(ctx context.Context, asked *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	switch asked.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
	case kmsg.ConfigResourceTypeBroker:
		return fmt.Errorf("%w: properties of brokers are read at the start only; set them in the broker's configuration and restart it", errInvalidRequest)
	default:
		return unsupportedResource(asked.ResourceType)
	}
	end, err := b.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	t, ok := b.catalog.Load().topicByName(asked.ResourceName)
	if !ok {
		return fmt.Errorf("%w: %s", errUnknownTopic, asked.ResourceName)
	}
	set, remove, err := b.planAlter(t, asked.Configs)
	if err != nil || validateOnly || len(set)+len(remove) == 0 {
		return err
	}
	err = retryChange(ctx, func(int) error {
		c, err := b.store.SetTopicConfigs(ctx, b.owner, t.id, set, remove)
		if err != nil {
			return err
		}
		return b.serve(c)
	})
	if err != nil {
		return fmt.Errorf("alter configs of topic %s: %w", t.name, err)
	}
	return nil
}

// planAlter translates operations on a topic into properties to set and to remove, checked alone and together.
func (b *Broker) planAlter(t *topic, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	after := make(map[string]string, len(t.configs)+len(ops))
	for name, value := range t.configs {
		after[name] = value
	}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if seen[op.Name] {
			return nil, nil, fmt.Errorf("%w: %s is named more than once", errInvalidRequest, op.Name)
		}
		seen[op.Name] = true
		property, ok := config.Lookup(op.Name)
		if !ok || property.Scope&config.ScopeTopic == 0 {
			return nil, nil, fmt.Errorf("%w: unknown topic property %q", errInvalidConfig, op.Name)
		}
		if op.Op == kmsg.IncrementalAlterConfigOpDelete {
			delete(after, op.Name)
			remove = append(remove, op.Name)
			continue
		}
		value, err := b.alteredValue(t, property, op)
		if err != nil {
			return nil, nil, err
		}
		if err := config.ValidateTopic(op.Name, value); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errInvalidConfig, err)
		}
		set[op.Name], after[op.Name] = value, value
	}
	if _, err := b.cfg.Topic(after); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errInvalidConfig, err)
	}
	return set, remove, nil
}

// alteredValue is what SET, APPEND or SUBTRACT make of a property.
func (b *Broker) alteredValue(t *topic, p config.Property, op kmsg.IncrementalAlterConfigsRequestResourceConfig) (string, error) {
	if op.Value == nil {
		return "", fmt.Errorf("%w: %s has a null value, which only DELETE may have", errInvalidRequest, op.Name)
	}
	switch op.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		return *op.Value, nil
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
	default:
		return "", fmt.Errorf("%w: unknown operation %d on %s", errInvalidRequest, int8(op.Op), op.Name)
	}
	if p.Type != config.List {
		return "", fmt.Errorf("%w: APPEND and SUBTRACT need a list, and %s is none", errInvalidConfig, op.Name)
	}
	items := listItems(b.topicValue(t, op.Name))
	for _, item := range listItems(*op.Value) {
		at := slices.Index(items, item)
		switch {
		case op.Op == kmsg.IncrementalAlterConfigOpAppend && at < 0:
			items = append(items, item)
		case op.Op == kmsg.IncrementalAlterConfigOpSubtract && at >= 0:
			items = slices.Delete(items, at, at+1)
		}
	}
	return strings.Join(items, ","), nil
}

// topicValue is the value in effect: the topic's own or the default.
func (b *Broker) topicValue(t *topic, name string) string {
	for _, e := range b.cfg.DescribeTopic(t.configs) {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
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
