package broker

// ListConfigResources (key 74), versions 0 and 1. v0 subscriptions of client metrics only (KIP-714, as
// ListClientMetricsResources) · v1 resources of the types that are asked for (KIP-1142).
// Left out: nothing.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// listedResources are the types that can be listed, in Kafka's order.
var listedResources = []kmsg.ConfigResourceType{
	kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeBrokerLogger,
	kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic,
}

func (b *Broker) handleListConfigResources(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	wanted := func(kmsg.ConfigResourceType) bool { return true }
	switch {
	case req.Version == 0:
		wanted = func(t kmsg.ConfigResourceType) bool { return t == kmsg.ConfigResourceTypeClientMetrics }
	case len(req.ResourceTypes) > 0:
		wanted = func(t kmsg.ConfigResourceType) bool { return slices.Contains(req.ResourceTypes, int8(t)) }
	}
	for _, t := range req.ResourceTypes {
		if !slices.Contains(listedResources, kmsg.ConfigResourceType(t)) {
			resp.ErrorCode = codeOf(fmt.Errorf("%w: resource type %d", errUnsupported, t))
			done(wire.Response{Msg: resp}, nil)
			return
		}
	}
	cat := b.catalog.Load()
	for _, kind := range listedResources {
		if !wanted(kind) {
			continue
		}
		for _, name := range b.resourceNames(cat, kind) {
			row := kmsg.NewListConfigResourcesResponseConfigResource()
			row.Name, row.Type = name, int8(kind)
			resp.ConfigResources = append(resp.ConfigResources, row)
		}
	}
	done(wire.Response{Msg: resp}, nil)
}

// resourceNames lists the resources of one type, sorted: those that are, or of groups and subscriptions those that have
// properties.
func (b *Broker) resourceNames(cat *catalog, kind kmsg.ConfigResourceType) []string {
	var names []string
	switch kind {
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		for _, n := range cat.brokers {
			if n.ID == b.nodeID || n.State == meta.BrokerLive {
				names = append(names, strconv.Itoa(int(n.ID)))
			}
		}
	case kmsg.ConfigResourceTypeTopic:
		for _, t := range cat.topics {
			names = append(names, t.name)
		}
	default:
		for r := range cat.resources {
			if r.Kind == meta.ResourceKind(kind) {
				names = append(names, r.Name)
			}
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}
