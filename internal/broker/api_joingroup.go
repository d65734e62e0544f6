package broker

// JoinGroup (key 11), versions 0 to 9. v1 rebalance timeout (KIP-62) · v4 members must know their id (KIP-394) · v5
// static members (KIP-345) · v6 flexible · v7 protocol type in the answer (KIP-559) · v8 reason (KIP-800) · v9 skipped
// assignment (KIP-814).
// Not pipelined: what follows a Join on its connection waits until the group has come together.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/coordinator"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleJoinGroup(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.JoinGroupRequest)
	join := coordinator.JoinRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID,
		ClientID: r.ClientID, ClientHost: clientHost(r.Conn),
		SessionTimeout:   time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		RebalanceTimeout: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType:     req.ProtocolType, Version: req.Version, Reason: orEmpty(req.Reason),
	}
	if req.Version == 0 {
		join.RebalanceTimeout = join.SessionTimeout
	}
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, meta.MemberProtocol{Name: p.Name, Metadata: p.Metadata})
	}
	b.groups.Join(join, func(reply coordinator.JoinReply) {
		b.releaseGroup(reply.Err, func(err error) {
			done(wire.Response{Msg: joinResponse(req, reply, err)}, nil)
		})
	})
}

func joinResponse(req *kmsg.JoinGroupRequest, reply coordinator.JoinReply, err error) *kmsg.JoinGroupResponse {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.MemberID = reply.MemberID
	if err != nil {
		resp.ErrorCode, resp.Generation = codeOf(err), -1
		return resp
	}
	resp.Generation, resp.LeaderID, resp.SkipAssignment = reply.Generation, reply.Leader, reply.SkipAssignment
	resp.ProtocolType, resp.Protocol = &reply.ProtocolType, &reply.Protocol
	for _, m := range reply.Members {
		row := kmsg.NewJoinGroupResponseMember()
		row.MemberID, row.InstanceID, row.ProtocolMetadata = m.MemberID, m.InstanceID, m.Metadata
		resp.Members = append(resp.Members, row)
	}
	return resp
}
