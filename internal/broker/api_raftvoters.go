package broker

// AddRaftVoter, RemoveRaftVoter (keys 80 and 81, KIP-853), versions 0 to 1 and 0, and UnregisterController (key 94),
// version 0. v1 of AddRaftVoter: an answer before the voters have it (KIP-1186).
// Left out: a Raft quorum (see api_describequorum.go). What Kafka answers with a quorum that is fixed
// (kraft.version 0) is answered here.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

var (
	errOtherCluster  = errors.New("the request is for another cluster")
	errNoController  = errors.New("no such controller is registered")
	errVotersAreSet  = errors.New("there are no voters to change: Postgres keeps the metadata")
	errNoSuchVoter   = errors.New("the request names no voter")
	errSelfIsNeeded  = errors.New("the broker that answers is the controller of itself")
	errVoterNoListen = errors.New("the voter has no listener")
)

func (b *Broker) handleAddRaftVoter(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AddRaftVoterRequest)
	resp := req.ResponseKind().(*kmsg.AddRaftVoterResponse)
	err := b.checkVoter(req.ClusterID, req.VoterID, req.VoterDirectoryID)
	if errors.Is(err, errVotersAreSet) && len(req.Listeners) == 0 {
		err = fmt.Errorf("%w: %w", errInvalidRequest, errVoterNoListen)
	}
	resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleRemoveRaftVoter(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.RemoveRaftVoterRequest)
	resp := req.ResponseKind().(*kmsg.RemoveRaftVoterResponse)
	err := b.checkVoter(req.ClusterID, req.VoterID, req.VoterDirectoryID)
	resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
	done(wire.Response{Msg: resp}, nil)
}

// checkVoter says why the voters are not changed.
func (b *Broker) checkVoter(cluster *string, id int32, directory meta.UUID) error {
	if ours := b.catalog.Load().cluster.ID; cluster != nil && *cluster != ours {
		return fmt.Errorf("%w: %q, this one is %q", errOtherCluster, *cluster, ours)
	}
	if id < 0 || directory == (meta.UUID{}) {
		return fmt.Errorf("%w: %w", errInvalidRequest, errNoSuchVoter)
	}
	return fmt.Errorf("%w: %w", errUnsupported, errVotersAreSet)
}

func (b *Broker) handleUnregisterController(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.UnregisterControllerRequest)
	resp := req.ResponseKind().(*kmsg.UnregisterControllerResponse)
	err := fmt.Errorf("%w: %d", errNoController, req.ControllerID)
	if req.ControllerID == b.nodeID {
		err = fmt.Errorf("%w: %w", errInvalidRequest, errSelfIsNeeded)
	}
	resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(err)
	done(wire.Response{Msg: resp}, nil)
}
