package broker

// CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (keys 38 to 41,
// KIP-48), versions 1 to 3, 2, 2 and 3. v2 flexible · v3 a token for somebody else (KIP-373).
// Left out: delegation tokens. A client that has not authenticated may not ask for them, in Kafka neither:
// DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

var errTokensNotAllowed = errors.New("delegation tokens are not available on this listener")

// The principal of a client that has not authenticated (Kafka's KafkaPrincipal.ANONYMOUS).
const (
	principalType = "User"
	anonymous     = "ANONYMOUS"
)

func (b *Broker) handleCreateDelegationToken(_ context.Context, r *wire.Request, done wire.Done) {
	resp := r.Body.ResponseKind().(*kmsg.CreateDelegationTokenResponse)
	resp.ErrorCode, resp.HMAC = codeOf(errTokensNotAllowed), []byte{}
	resp.PrincipalType, resp.PrincipalName = principalType, anonymous
	resp.TokenRequesterPrincipalType, resp.TokenRequesterPrincipalName = principalType, anonymous
	resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = -1, -1, -1
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleRenewDelegationToken(_ context.Context, r *wire.Request, done wire.Done) {
	resp := r.Body.ResponseKind().(*kmsg.RenewDelegationTokenResponse)
	resp.ErrorCode, resp.ExpiryTimestamp = codeOf(errTokensNotAllowed), -1
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleExpireDelegationToken(_ context.Context, r *wire.Request, done wire.Done) {
	resp := r.Body.ResponseKind().(*kmsg.ExpireDelegationTokenResponse)
	resp.ErrorCode, resp.ExpiryTimestamp = codeOf(errTokensNotAllowed), -1
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleDescribeDelegationToken(_ context.Context, r *wire.Request, done wire.Done) {
	resp := r.Body.ResponseKind().(*kmsg.DescribeDelegationTokenResponse)
	resp.ErrorCode = codeOf(errTokensNotAllowed)
	done(wire.Response{Msg: resp}, nil)
}
