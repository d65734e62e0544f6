package broker

// DescribeGroups (key 15), versions 0 to 6. v3 authorized operations (KIP-430) · v4 instance ids (KIP-345) · v5
// flexible · v6 GROUP_ID_NOT_FOUND with a message for a group that does not exist (KIP-1043); before, it is Dead.
// Left out: ACLs; every operation is authorized.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDescribeGroups(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeGroupsRequest)
	b.groups.Describe(req.Groups, func(groups []coordinator.GroupDescription) {
		b.releaseGroup(nil, func(err error) {
			resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
			for i := range groups {
				if err != nil {
					groups[i] = coordinator.GroupDescription{Err: err, Group: groups[i].Group}
				}
				row := describedGroup(&groups[i], req.Version)
				if req.IncludeAuthorizedOperations && row.ErrorCode == 0 {
					row.AuthorizedOperations = groupOperations
				}
				resp.Groups = append(resp.Groups, row)
			}
			done(wire.Response{Msg: resp}, nil)
		})
	})
}

func describedGroup(g *coordinator.GroupDescription, version int16) kmsg.DescribeGroupsResponseGroup {
	row := kmsg.NewDescribeGroupsResponseGroup()
	row.Group, row.State, row.ProtocolType, row.Protocol = g.Group, g.State, g.ProtocolType, g.Protocol
	switch {
	case g.Err == nil:
	case !errors.Is(g.Err, coordinator.ErrGroupNotFound):
		row.ErrorCode, row.ErrorMessage = codeOf(g.Err), messageOf(g.Err)
	case version >= 6:
		row.ErrorCode = codeOf(g.Err)
		message := "Group " + g.Group + " not found." // Kafka's words
		row.ErrorMessage = &message
	}
	for _, m := range g.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID = m.MemberID, m.InstanceID
		member.ClientID, member.ClientHost = m.ClientID, m.ClientHost
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		row.Members = append(row.Members, member)
	}
	return row
}
