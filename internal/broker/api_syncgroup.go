package broker

// SyncGroup (key 14), versions 0 to 5. v3 static members (KIP-345) · v4 flexible · v5 protocol type and name, which
// must be given and be the group's (KIP-559).
// Not pipelined, as JoinGroup.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleSyncGroup(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.SyncGroupRequest)
	answer := func(reply coordinator.SyncReply) {
		b.releaseGroup(reply.Err, func(err error) {
			resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
			if err != nil {
				resp.ErrorCode = codeOf(err)
			} else {
				resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &reply.ProtocolType, &reply.Protocol, reply.Assignment
			}
			done(wire.Response{Msg: resp}, nil)
		})
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		answer(coordinator.SyncReply{Err: coordinator.ErrInconsistentProtocol})
		return
	}
	sync := coordinator.SyncRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		ProtocolType: req.ProtocolType, Protocol: req.Protocol,
	}
	for _, a := range req.GroupAssignment {
		sync.Assignments = append(sync.Assignments, coordinator.Assignment{MemberID: a.MemberID, Bytes: a.MemberAssignment})
	}
	b.groups.Sync(sync, answer)
}
