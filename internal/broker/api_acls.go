package broker

// DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31), versions 1 to 3. v1 pattern types (KIP-290) · v2 flexible ·
// v3 user resources (KIP-373).
// Left out: ACLs. Every request is answered with SECURITY_DISABLED, as by a Kafka without an authorizer. A request with
// an element that Kafka does not know does not parse there: the connection is closed.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// errNoAuthorizer is the answer to whoever asks for access control.
var errNoAuthorizer = errors.New("no authorizer is configured")

// The highest number of each kind of element (Kafka's ResourceType, PatternType, AclOperation, AclPermissionType). 0 is
// UNKNOWN.
const (
	lastACLResource   = 7
	lastACLPattern    = 4
	lastACLOperation  = 15
	lastACLPermission = 3
)

func (b *Broker) handleDescribeACLs(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeACLsRequest)
	if err := knownACL(req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType); err != nil {
		done(wire.Response{}, fmt.Errorf("describe ACLs: %w", err))
		return
	}
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode, resp.ErrorMessage = codeOf(errNoAuthorizer), messageOf(errNoAuthorizer)
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleCreateACLs(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.CreateACLsRequest)
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for _, c := range req.Creations {
		if err := knownACL(c.ResourceType, c.ResourcePatternType, c.Operation, c.PermissionType); err != nil {
			done(wire.Response{}, fmt.Errorf("create ACLs: %w", err))
			return
		}
		row := kmsg.NewCreateACLsResponseResult()
		row.ErrorCode, row.ErrorMessage = codeOf(errNoAuthorizer), messageOf(errNoAuthorizer)
		resp.Results = append(resp.Results, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleDeleteACLs(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	for _, f := range req.Filters {
		if err := knownACL(f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType); err != nil {
			done(wire.Response{}, fmt.Errorf("delete ACLs: %w", err))
			return
		}
		row := kmsg.NewDeleteACLsResponseResult()
		row.ErrorCode, row.ErrorMessage = codeOf(errNoAuthorizer), messageOf(errNoAuthorizer)
		resp.Results = append(resp.Results, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// knownACL refuses elements that are UNKNOWN, or that this version of Kafka does not have.
func knownACL(resource kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, operation kmsg.ACLOperation, permission kmsg.ACLPermissionType) error {
	for _, e := range []struct {
		what        string
		value, last int8
	}{
		{"resource type", int8(resource), lastACLResource}, {"pattern type", int8(pattern), lastACLPattern},
		{"operation", int8(operation), lastACLOperation}, {"permission type", int8(permission), lastACLPermission},
	} {
		if e.value < 1 || e.value > e.last {
			return fmt.Errorf("%w: unknown %s %d", errInvalidRequest, e.what, e.value)
		}
	}
	return nil
}
