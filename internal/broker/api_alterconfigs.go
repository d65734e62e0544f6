package broker

// AlterConfigs (key 33, deprecated by KIP-339), versions 0 to 2. v2 flexible. The properties that are given become all
// that a resource has.
// Left out: nothing. Log levels cannot be set by it, in Kafka neither.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleAlterConfigs(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	keys := make([]configKey, len(req.Resources))
	for i := range req.Resources {
		keys[i] = configKey{req.Resources[i].ResourceType, req.Resources[i].ResourceName}
	}
	eachResource(keys, func(i int) error {
		return b.alterConfigs(ctx, keys[i].kind, keys[i].name, req.ValidateOnly, func(r *configResource) (map[string]string, []string, error) {
			return planReplacement(r, req.Resources[i].Configs)
		})
	}, func(k configKey, err error) {
		b.noteUnmapped("AlterConfigs", err)
		row := kmsg.NewAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = k.kind, k.name
		row.ErrorCode, row.ErrorMessage = codeOf(err), messageOf(err)
		resp.Resources = append(resp.Resources, row)
	})
	done(wire.Response{Msg: resp}, nil)
}

// planReplacement sets what is given and removes the rest.
func planReplacement(r *configResource, given []kmsg.AlterConfigsRequestResourceConfig) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	for _, c := range given {
		if _, again := set[c.Name]; again {
			return nil, nil, fmt.Errorf("%w: %s is named more than once", errInvalidRequest, c.Name)
		}
		if c.Value == nil {
			return nil, nil, fmt.Errorf("%w: %s has a null value", errInvalidRequest, c.Name)
		}
		set[c.Name] = *c.Value
	}
	for name := range r.current {
		if _, kept := set[name]; !kept {
			remove = append(remove, name)
		}
	}
	return set, remove, nil
}
