package broker

// ListGroups (key 16), versions 0 to 5. v3 flexible · v4 states filter (KIP-518) · v5 types filter (KIP-848).
// Filters ignore case; what they do not know matches nothing.

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleListGroups(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.ListGroupsRequest)
	states, types := newFilter(req.StatesFilter), newFilter(req.TypesFilter)
	b.groups.List(func(groups []coordinator.GroupListing, err error) {
		b.releaseGroup(err, func(err error) {
			resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
			resp.ErrorCode = codeOf(err)
			for _, g := range groups {
				if err != nil || !states.passes(g.State) || !types.passes(g.Kind) {
					continue
				}
				row := kmsg.NewListGroupsResponseGroup()
				row.Group, row.ProtocolType, row.GroupState, row.GroupType = g.Group, g.ProtocolType, g.State, g.Kind
				resp.Groups = append(resp.Groups, row)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

// filter holds words in lower case; an empty one lets everything pass.
type filter map[string]bool

func newFilter(words []string) filter {
	f := make(filter, len(words))
	for _, w := range words {
		f[strings.ToLower(strings.TrimSpace(w))] = true
	}
	return f
}

func (f filter) passes(value string) bool { return len(f) == 0 || f[strings.ToLower(value)] }
