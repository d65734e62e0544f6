package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The exit codes of every command. Scripts rely on them, so they do not change.
const (
	exitOK           = 0   // everything that was asked for is done
	exitFailed       = 1   // something failed, also when it is one item of many
	exitUsage        = 2   // the command line or the configuration is wrong
	exitUnreachable  = 3   // no broker or Postgres answers, or it is not ready in time
	exitUnauthorized = 4   // authentication or authorisation failed
	exitWarning      = 10  // status or log verify found something that needs attention
	exitCritical     = 11  // status found something that is broken now
	exitInterrupted  = 130 // stopped by SIGINT or SIGTERM
)

// exitError is an error that fixes the exit code of the process. A nil err prints nothing,
// because what there is to say was printed before.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error of the command line or the configuration (exit code 2).
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// unreachablef returns an error for a peer that does not answer or is not ready (exit code 3).
func unreachablef(format string, args ...any) error {
	return &exitError{exitUnreachable, fmt.Errorf(format, args...)}
}

// exitCode maps an error to the exit code of the process. ctx is the context that a signal
// cancels.
func exitCode(ctx context.Context, err error) int {
	var fixed *exitError
	var netErr *net.OpError
	var firstRead *kgo.ErrFirstReadEOF
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &fixed):
		return fixed.code
	case isAuthError(err):
		return exitUnauthorized
	case errors.As(err, &firstRead), errors.As(err, &netErr),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return exitUnreachable
	}
	return exitFailed
}

// isAuthError reports whether a broker refused who the client is or what it may do.
func isAuthError(err error) bool {
	for _, code := range []*kerr.Error{
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.DelegationTokenAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// failures collects the errors of the items of one command, so that all items are tried and
// each failure is reported.
type failures struct {
	errs []error
}

func (f *failures) add(err error) {
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// err joins what was collected. Its exit code is that of the items when they agree and 1
// otherwise.
func (f *failures) err(ctx context.Context) error {
	if len(f.errs) == 0 {
		return nil
	}
	joined := errors.Join(f.errs...)
	code := exitCode(ctx, f.errs[0])
	for _, err := range f.errs[1:] {
		if exitCode(ctx, err) != code {
			code = exitFailed
		}
	}
	return &exitError{code, joined}
}

// splitJoined returns the single errors of an error made by errors.Join.
func splitJoined(err error) []error {
	var fixed *exitError
	if errors.As(err, &fixed) && fixed.err != nil {
		err = fixed.err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
