package broker

// DeleteGroups (key 42), versions 0 to 3 (KIP-229). v2 flexible · v3 error message (KIP-1043). A group named twice has
// one row.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDeleteGroups(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DeleteGroupsRequest)
	names := make([]string, 0, len(req.Groups))
	seen := make(map[string]bool, len(req.Groups))
	for _, name := range req.Groups {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	b.groups.DeleteGroups(names, func(errs []error) {
		b.releaseGroup(nil, func(err error) {
			resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
			for i, name := range names {
				said := errs[i]
				if err != nil {
					said = err
				}
				row := kmsg.NewDeleteGroupsResponseGroup()
				row.Group, row.ErrorCode, row.ErrorMessage = name, codeOf(said), messageOf(said)
				resp.Groups = append(resp.Groups, row)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}
