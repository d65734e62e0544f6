package broker

// IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339). v1 flexible.
// Broker properties that the program reads at its start only are refused; see internal/config for the others. Client
// metrics are kept, nothing asks for them.
// Left out: levels of single loggers; there is one, "root" (see loggers.go).

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleIncrementalAlterConfigs(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	keys := make([]configKey, len(req.Resources))
	for i := range req.Resources {
		keys[i] = configKey{req.Resources[i].ResourceType, req.Resources[i].ResourceName}
	}
	eachResource(keys, func(i int) error {
		ops := req.Resources[i].Configs
		if keys[i].kind == kmsg.ConfigResourceTypeBrokerLogger {
			return b.alterLoggers(keys[i].name, ops, req.ValidateOnly)
		}
		return b.alterConfigs(ctx, keys[i].kind, keys[i].name, req.ValidateOnly, func(r *configResource) (map[string]string, []string, error) {
			return planOperations(r, ops)
		})
	}, func(k configKey, err error) {
		b.noteUnmapped("IncrementalAlterConfigs", err)
		row := kmsg.NewIncrementalAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = k.kind, k.name
		row.ErrorCode, row.ErrorMessage = codeOf(err), messageOf(err)
		resp.Resources = append(resp.Resources, row)
	})
	done(wire.Response{Msg: resp}, nil)
}

// planOperations translates operations into properties to set and to remove.
func planOperations(r *configResource, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if seen[op.Name] {
			return nil, nil, fmt.Errorf("%w: %s is named more than once", errInvalidRequest, op.Name)
		}
		seen[op.Name] = true
		if r.known != nil {
			if err := r.known(op.Name); err != nil {
				return nil, nil, err
			}
		}
		if op.Op == kmsg.IncrementalAlterConfigOpDelete {
			remove = append(remove, op.Name)
			continue
		}
		if set[op.Name], err = alteredValue(r, op); err != nil {
			return nil, nil, err
		}
	}
	return set, remove, nil
}

// alteredValue is what SET, APPEND or SUBTRACT make of a property.
func alteredValue(r *configResource, op kmsg.IncrementalAlterConfigsRequestResourceConfig) (string, error) {
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
	if !r.isList(op.Name) {
		return "", fmt.Errorf("%w: APPEND and SUBTRACT need a list, and %s is none", errInvalidConfig, op.Name)
	}
	items := listItems(r.effective(op.Name))
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
