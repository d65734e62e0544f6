package broker

// AlterClientQuotas (key 49, KIP-546), versions 0 and 1. v1 flexible.
// Left out: names of hosts for ip entities, which Kafka would resolve; addresses are taken.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleAlterClientQuotas(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AlterClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	times := map[string]int{}
	entities := make([]quotaEntity, len(req.Entries))
	for i := range req.Entries {
		var parts []quotaPart
		for _, p := range req.Entries[i].Entity {
			parts = append(parts, quotaPart{p.Type, p.Name})
		}
		entities[i] = newQuotaEntity(parts)
		times[entities[i].key()]++
	}
	var changes []meta.ResourceChange
	errs := map[string]error{}
	for i := range req.Entries {
		key := entities[i].key()
		change, err := entities[i].plan(req.Entries[i].Ops)
		if times[key] > 1 {
			err = fmt.Errorf("%w: the entity is named more than once", errInvalidRequest)
		}
		if err == nil && len(change.Set) > 0 {
			err = b.catalog.Load().roomFor(change.Resource)
		}
		if err == nil {
			changes = append(changes, change)
		}
		errs[key] = err
	}
	if len(changes) > 0 && !req.ValidateOnly {
		if err := b.storeQuotas(ctx, changes); err != nil {
			b.noteUnmapped("AlterClientQuotas", err)
			for _, c := range changes {
				errs[c.Name] = err
			}
		}
	}
	for _, e := range entities {
		if times[e.key()] == 0 {
			continue
		}
		times[e.key()] = 0 // one row for each
		row := kmsg.NewAlterClientQuotasResponseEntry()
		err := errs[e.key()]
		row.ErrorCode, row.ErrorMessage = codeOf(err), messageOf(err)
		for _, p := range e {
			part := kmsg.NewAlterClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.kind, p.name
			row.Entity = append(row.Entity, part)
		}
		resp.Entries = append(resp.Entries, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// plan translates the operations on an entity; of two on one key the last one counts.
func (e quotaEntity) plan(ops []kmsg.AlterClientQuotasRequestEntryOp) (meta.ResourceChange, error) {
	change := meta.ResourceChange{Resource: meta.Resource{Kind: meta.ResourceQuota, Name: e.key()}, Set: map[string]string{}}
	if err := e.check(); err != nil {
		return change, err
	}
	for _, op := range ops {
		delete(change.Set, op.Key)
		if op.Remove {
			change.Remove = append(change.Remove, op.Key)
			continue
		}
		if err := e.checkQuota(op.Key, op.Value); err != nil {
			return change, err
		}
		change.Set[op.Key] = strconv.FormatFloat(op.Value, 'f', -1, 64)
	}
	return change, nil
}

func (b *Broker) storeQuotas(ctx context.Context, changes []meta.ResourceChange) error {
	end, err := b.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = retryChange(ctx, func(int) error {
		c, err := b.store.SetResourceConfigs(ctx, b.owner, changes)
		if err != nil {
			return err
		}
		return b.serve(c)
	})
	if err != nil {
		return fmt.Errorf("alter client quotas: %w", err)
	}
	return nil
}
