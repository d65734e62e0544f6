package broker

// DescribeClientQuotas (key 48, KIP-546), versions 0 and 1. v1 flexible.
// Left out: nothing.

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDescribeClientQuotas(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	if err := checkQuotaFilter(req.Components); err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
		done(wire.Response{Msg: resp}, nil)
		return
	}
	resp.ErrorMessage, resp.Entries = new(string), []kmsg.DescribeClientQuotasResponseEntry{}
	for _, q := range b.catalog.Load().quotas() {
		if !q.entity.matches(req.Components, req.Strict) {
			continue
		}
		row := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, p := range q.entity {
			part := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.kind, p.name
			row.Entity = append(row.Entity, part)
		}
		for _, key := range slices.Sorted(maps.Keys(q.values)) {
			value := kmsg.NewDescribeClientQuotasResponseEntryValue()
			value.Key, value.Value = key, q.values[key]
			row.Values = append(row.Values, value)
		}
		resp.Entries = append(resp.Entries, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// checkQuotaFilter says whether a filter makes sense.
func checkQuotaFilter(filter []kmsg.DescribeClientQuotasRequestComponent) error {
	seen := map[string]bool{}
	for _, c := range filter {
		switch {
		case c.EntityType == "":
			return fmt.Errorf("%w: the entity type is empty", errInvalidRequest)
		case seen[c.EntityType]:
			return fmt.Errorf("%w: entity type %s is given twice", errInvalidRequest, c.EntityType)
		case c.MatchType < kmsg.QuotasMatchTypeExact || c.MatchType > kmsg.QuotasMatchTypeAny:
			return fmt.Errorf("%w: unknown match type %d", errInvalidRequest, int8(c.MatchType))
		case (c.MatchType == kmsg.QuotasMatchTypeExact) != (c.Match != nil):
			return fmt.Errorf("%w: a name must be given for an exact match, and for no other", errInvalidRequest)
		case c.EntityType != quotaUser && c.EntityType != quotaClientID && c.EntityType != quotaIP:
			return fmt.Errorf("%w: %s", errQuotaType, c.EntityType)
		}
		seen[c.EntityType] = true
	}
	if seen[quotaIP] && len(seen) > 1 {
		return fmt.Errorf("%w: an ip cannot be combined with a user or client-id", errInvalidRequest)
	}
	return nil
}

// matches says whether every component of a filter selects the entity. A strict one selects no entity with other types.
func (e quotaEntity) matches(filter []kmsg.DescribeClientQuotasRequestComponent, strict bool) bool {
	for _, c := range filter {
		p, ok := e.part(c.EntityType)
		if !ok {
			return false
		}
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			ok = p.name != nil && *p.name == *c.Match
		case kmsg.QuotasMatchTypeDefault:
			ok = p.name == nil
		}
		if !ok {
			return false
		}
	}
	return !strict || len(e) == len(filter)
}
