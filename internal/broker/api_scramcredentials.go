package broker

// DescribeUserScramCredentials and AlterUserScramCredentials (keys 50 and 51, KIP-554), version 0.
// Left out: credentials. There is no SASL listener that would ask for them, so none are kept: describing finds nobody,
// and setting one is refused with the mechanism's name instead of being accepted and forgotten.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

var (
	errNoCredential  = errors.New("a user credential that does not exist")
	errUserTwice     = errors.New("the same user twice in one request")
	errBadCredential = errors.New("the credential is not acceptable")
	errMechanism     = errors.New("the SASL mechanism is not available")
)

// scramMechanisms are Kafka's ScramMechanism with their fewest iterations; maxScramIterations bounds both.
var scramMechanisms = map[int8]int32{1: 4096, 2: 4096}

const maxScramIterations = 16384

func (b *Broker) handleDescribeUserSCRAMCredentials(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	resp.ErrorMessage = new(string) // as Kafka 4.4
	times := map[string]int{}
	for _, u := range req.Users {
		times[u.Name]++
	}
	for name, n := range times {
		err := fmt.Errorf("%w: %s", errNoCredential, name)
		if n > 1 {
			err = fmt.Errorf("%w: %s", errUserTwice, name)
		}
		row := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		row.User, row.ErrorCode, row.ErrorMessage = name, codeOf(err), messageOf(err)
		resp.Results = append(resp.Results, row)
	}
	slices.SortFunc(resp.Results, func(a, b kmsg.DescribeUserSCRAMCredentialsResponseResult) int { return cmp.Compare(a.User, b.User) })
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) handleAlterUserSCRAMCredentials(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AlterUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	verdicts := map[string]error{}
	judge := func(user string, err error) {
		if _, again := verdicts[user]; again {
			err = fmt.Errorf("%w: %s", errUserTwice, user)
		}
		verdicts[user] = err
	}
	for _, d := range req.Deletions {
		judge(d.Name, checkDeletion(d))
	}
	for _, u := range req.Upsertions {
		judge(u.Name, checkUpsertion(u))
	}
	for user, err := range verdicts {
		row := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		row.User, row.ErrorCode, row.ErrorMessage = user, codeOf(err), messageOf(err)
		resp.Results = append(resp.Results, row)
	}
	slices.SortFunc(resp.Results, func(a, b kmsg.AlterUserSCRAMCredentialsResponseResult) int { return cmp.Compare(a.User, b.User) })
	done(wire.Response{Msg: resp}, nil)
}

func checkDeletion(d kmsg.AlterUserSCRAMCredentialsRequestDeletion) error {
	if d.Name == "" {
		return fmt.Errorf("%w: the user name is empty", errBadCredential)
	}
	if _, known := scramMechanisms[d.Mechanism]; !known {
		return fmt.Errorf("%w: unknown SCRAM mechanism %d", errMechanism, d.Mechanism)
	}
	return fmt.Errorf("%w: %s", errNoCredential, d.Name)
}

// checkUpsertion refuses all: what Kafka would refuse, too, for its reason.
func checkUpsertion(u kmsg.AlterUserSCRAMCredentialsRequestUpsertion) error {
	fewest, known := scramMechanisms[u.Mechanism]
	switch {
	case u.Name == "":
		return fmt.Errorf("%w: the user name is empty", errBadCredential)
	case !known:
		return fmt.Errorf("%w: unknown SCRAM mechanism %d", errMechanism, u.Mechanism)
	case u.Iterations < fewest || u.Iterations > maxScramIterations:
		return fmt.Errorf("%w: %d iterations, from %d to %d are allowed", errBadCredential, u.Iterations, fewest, maxScramIterations)
	}
	return fmt.Errorf("%w: no listener of this broker uses SCRAM, so no credentials are kept", errMechanism)
}
