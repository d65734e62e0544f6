package broker

// LeaveGroup (key 13), versions 0 to 5. v3 several members, also by instance id (KIP-345) · v4 flexible · v5 reason
// (KIP-800).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleLeaveGroup(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.LeaveGroupRequest)
	leave := coordinator.LeaveRequest{Group: req.Group}
	if req.Version < 3 {
		leave.Members = []coordinator.LeaveMember{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		leave.Members = append(leave.Members, coordinator.LeaveMember{
			MemberID: m.MemberID, InstanceID: m.InstanceID, Reason: orEmpty(m.Reason),
		})
	}
	b.groups.Leave(leave, func(reply coordinator.LeaveReply) {
		b.releaseGroup(reply.Err, func(err error) {
			done(wire.Response{Msg: leaveResponse(req, reply, err)}, nil)
		})
	})
}

func leaveResponse(req *kmsg.LeaveGroupRequest, reply coordinator.LeaveReply, err error) *kmsg.LeaveGroupResponse {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	switch {
	case err != nil:
		resp.ErrorCode = codeOf(err)
	case req.Version < 3:
		resp.ErrorCode = codeOf(reply.Members[0])
	default:
		for i, m := range req.Members {
			row := kmsg.NewLeaveGroupResponseMember()
			row.MemberID, row.InstanceID, row.ErrorCode = m.MemberID, m.InstanceID, codeOf(reply.Members[i])
			resp.Members = append(resp.Members, row)
		}
	}
	return resp
}
