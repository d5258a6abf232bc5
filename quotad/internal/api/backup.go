package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
)

// Backup implements the admin service.
func (s *Service) Backup(context.Context, *connect.Request[adminv1.BackupRequest], *connect.ServerStream[adminv1.BackupResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New("todo"))
}

// Restore implements the admin service.
func (s *Service) Restore(context.Context, *connect.ClientStream[adminv1.RestoreRequest]) (*connect.Response[adminv1.RestoreResponse], error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("todo"))
}
