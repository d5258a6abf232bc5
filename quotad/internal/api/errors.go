package api

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// LeaderHeader carries the admin address of the leader on a follower's refusal, so that a client can follow it.
const LeaderHeader = "Sluice-Leader"

// RetryHeader (RFC 9110 10.2.3) stands on the refusal of what was not done: in so many seconds it may be asked again.
const RetryHeader = "Retry-After"

// failed turns a fault of the replica into a code. Only ErrUnknown leaves open whether something was done.
func (s *Service) failed(err error) error {
	var other replica.ErrNotLeader
	var older replica.ErrOlderBuild
	switch {
	case errors.As(err, &older):
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("nothing was done: %w", older))
	case errors.As(err, &other):
		e := connect.NewError(connect.CodeUnavailable,
			fmt.Errorf("this node does not lead: ask the leader, %s, at %s", other.LeaderID, other.AdminAddress))
		e.Meta().Set(LeaderHeader, other.AdminAddress)
		return e
	case errors.Is(err, replica.ErrUnknown):
		return connect.NewError(connect.CodeUnavailable,
			errors.New("leadership was lost while the call was under way: it may or may not have been done"))
	case errors.Is(err, replica.ErrNoLeader), errors.Is(err, replica.ErrClosed):
		return again(connect.CodeUnavailable, "no leader at present: nothing was done, try again")
	case errors.Is(err, replica.ErrBusy):
		return again(connect.CodeResourceExhausted, "too many calls at once: nothing was done, try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("no answer in time"))
	}
	return connect.NewError(connect.CodeInternal, err)
}

// again is the refusal of what was not done and may be asked again in a second.
func again(code connect.Code, message string) error {
	e := connect.NewError(code, errors.New(message))
	e.Meta().Set(RetryHeader, "1")
	return e
}

// refused turns a refusal of the configuration into a code; the message has a line for each problem.
func refused(r *registry.Refusal) error {
	if r.Reason == registry.ReasonConflict {
		return connect.NewError(connect.CodeAborted, fmt.Errorf(
			"another change came first, so nothing was done: %w; look at what changed (history) and try again", r))
	}
	return connect.NewError(connect.CodeInvalidArgument, errors.New(r.String()))
}

// refusedIn is refused for objects that came from a file: what is wrong with them is said with their place in it.
func refusedIn(file *registry.Places, r *registry.Refusal) error {
	if r.Reason == registry.ReasonConflict {
		return refused(r)
	}
	return connect.NewError(connect.CodeInvalidArgument, file.Faults(r.Problems))
}

func badInput(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

func missing(format string, args ...any) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf(format, args...))
}
