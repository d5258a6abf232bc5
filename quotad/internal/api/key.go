package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/keyring"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// secretPrefix makes a leaked key easy to find for scanners.
const secretPrefix = "sk-sluice-"

// CreateKey implements the admin service.
func (s *Service) CreateKey(ctx context.Context, req *connect.Request[adminv1.CreateKeyRequest]) (*connect.Response[adminv1.CreateKeyResponse], error) {
	m := req.Msg
	if m.GetId() == "" {
		return nil, badInput("id: required")
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	secret := secretPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(secret))
	version, err := s.edit(ctx, m.GetActor(), "create key "+m.GetId(), func(r *registry.Registry) (registry.Change, error) {
		k, ok := r.Key(m.GetId())
		switch {
		case ok && m.GetTeam() != "" && m.GetTeam() != k.Team:
			return registry.Change{}, badInput("team: key %q belongs to team %q", k.ID, k.Team)
		case ok && (m.GetApp() != "" && m.GetApp() != k.App || len(m.GetAliases()) > 0 && !slices.Equal(m.GetAliases(), k.Aliases)):
			return registry.Change{}, badInput("app, aliases: key %q is configured already: change it with apply", k.ID)
		case ok && k.Revoked && !m.GetRotate():
			return registry.Change{}, connect.NewError(connect.CodeAlreadyExists,
				errors.New("the key is revoked: --rotate (rotate: true) gives it a new secret and lets it work again"))
		case ok && k.SecretSHA256 != "" && !m.GetRotate():
			return registry.Change{}, connect.NewError(connect.CodeAlreadyExists,
				errors.New("the key already has a secret: --rotate (rotate: true) replaces it, and the old one stops working at once"))
		case !ok:
			var err error
			if k, err = freshKey(r, m); err != nil {
				return registry.Change{}, err
			}
		}
		k.SecretSHA256, k.Revoked = hex.EncodeToString(sum[:]), false
		return registry.Change{Objects: []registry.Object{k.Object()}}, nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&adminv1.CreateKeyResponse{Id: m.GetId(), Secret: secret, Version: version}), nil
}

// freshKey makes a key that no file has configured; the parser checks it and fills in the defaults.
func freshKey(r *registry.Registry, m *adminv1.CreateKeyRequest) (registry.Key, error) {
	if m.GetTeam() == "" {
		return registry.Key{}, badInput("team: required for a key that is not configured yet")
	}
	if _, ok := r.Team(m.GetTeam()); !ok {
		return registry.Key{}, missing("no team %q", m.GetTeam())
	}
	k := registry.Key{ID: m.GetId(), Team: m.GetTeam(), App: m.GetApp(), Aliases: m.GetAliases(), Outage: "share"}
	o, err := registry.ParseObject(registry.KindKey, m.GetId(), k.Object().Spec)
	if err != nil {
		return registry.Key{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	next, refusal := r.Preview(registry.Change{Objects: []registry.Object{o}})
	if refusal != nil {
		return registry.Key{}, refused(refusal)
	}
	k, _ = next.Key(m.GetId())
	return k, nil
}

// ListKeys implements the admin service.
func (s *Service) ListKeys(ctx context.Context, req *connect.Request[adminv1.ListKeysRequest]) (*connect.Response[adminv1.ListKeysResponse], error) {
	out := &adminv1.ListKeysResponse{}
	now := time.Now().UnixMilli()
	team := req.Msg.GetTeam()
	known := team == ""
	err := s.read(ctx, func(m *replica.Machine) {
		_, ok := m.Registry.Team(team)
		known = known || ok
		for _, k := range m.Registry.Keys() {
			if team != "" && team != k.Team {
				continue
			}
			out.Keys = append(out.Keys, &adminv1.KeyInfo{
				Id: k.ID, Team: k.Team, App: k.App, Aliases: k.Aliases, State: k.State(now), ExpiresMs: int64(k.Expires),
			})
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, missing("no team %q", team)
	}
	return connect.NewResponse(out), nil
}

// RevokeKey implements the admin service.
func (s *Service) RevokeKey(ctx context.Context, req *connect.Request[adminv1.RevokeKeyRequest]) (*connect.Response[adminv1.RevokeKeyResponse], error) {
	id := req.Msg.GetId()
	version, err := s.edit(ctx, req.Msg.GetActor(), "revoke key "+id, func(r *registry.Registry) (registry.Change, error) {
		k, ok := r.Key(id)
		if !ok {
			return registry.Change{}, missing("no key %q", id)
		}
		k.Revoked = true
		return registry.Change{Objects: []registry.Object{k.Object()}}, nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&adminv1.RevokeKeyResponse{Version: version}), nil
}

// readCredential takes a secret in a form that its provider has. A document becomes one line.
func readCredential(provider string, secret []byte) ([]byte, error) {
	secret = bytes.TrimSpace(secret)
	s, err := readSecret(provider, secret)
	if err == nil {
		err = checkForm(provider, s, secret)
	}
	if err != nil {
		return nil, badInput("secret: %v", err)
	}
	if !bytes.HasPrefix(secret, []byte("{")) {
		return secret, nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, secret); err != nil {
		panic("BUG: a document that was read is no JSON") // the cause could quote it
	}
	return line.Bytes(), nil
}

// SetCredential implements the admin service.
func (s *Service) SetCredential(ctx context.Context, req *connect.Request[adminv1.SetCredentialRequest]) (*connect.Response[adminv1.SetCredentialResponse], error) {
	name := req.Msg.GetName()
	var known []string
	provider := ""
	if err := s.read(ctx, func(m *replica.Machine) {
		for _, c := range m.Registry.Credentials() {
			known = append(known, c.ID)
			if c.ID == name {
				provider = c.Provider
			}
		}
	}); err != nil {
		return nil, err
	}
	if !slices.Contains(known, name) {
		return nil, missing("no credential %q: org.yaml configures %s", name, strings.Join(known, ", "))
	}
	secret, err := readCredential(provider, req.Msg.GetSecret())
	if err != nil {
		return nil, err
	}
	sealed, keyID, err := s.ring.Seal(name, secret)
	if errors.Is(err, keyring.ErrSecret) {
		return nil, badInput("secret: empty or too long")
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	res, err := s.propose(ctx, &raftlogv1.Op{Op: &raftlogv1.Op_Seal{Seal: &raftlogv1.Seal{
		Name: name, Sealed: sealed, KeyId: keyID, Actor: actorOf(ctx, req.Msg.GetActor()), AtMs: time.Now().UnixMilli(),
	}}})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&adminv1.SetCredentialResponse{Version: res.SealedVersion}), nil
}

// ListCredentials implements the admin service.
func (s *Service) ListCredentials(ctx context.Context, _ *connect.Request[adminv1.ListCredentialsRequest]) (*connect.Response[adminv1.ListCredentialsResponse], error) {
	out := &adminv1.ListCredentialsResponse{}
	err := s.read(ctx, func(m *replica.Machine) {
		users := map[string][]string{}
		for _, d := range m.Registry.Deployments() {
			users[d.Credential] = append(users[d.Credential], d.ID)
		}
		for _, c := range m.Registry.Credentials() {
			info := &adminv1.CredentialInfo{Name: c.ID, Provider: c.Provider, Deployments: users[c.ID]}
			if st, ok := m.Sealed(c.ID); ok {
				info.Version, info.SetAtMs, info.Actor = st.GetVersion(), st.GetAtMs(), st.GetActor()
			}
			out.Credentials = append(out.Credentials, info)
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}
