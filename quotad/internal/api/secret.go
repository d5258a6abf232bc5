package api

// This file stands in both programs, which share no package: a secret that quotad takes is one that the sidecar can use.
// TestSecretsAreReadAlike at the module's root holds the two to the same text.

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// providerSecret is what a provider hands out, taken apart: a key that is sent as it is, or else what tokens are fetched
// with, or calls signed.
type providerSecret struct {
	key string

	// Of Azure: an app registration of Entra. Scope and TokenURI where they are not Azure's own.
	APIKey       string `json:"api_key"`
	TenantID     string `json:"tenant_id"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	Scope        string `json:"scope"`
	TokenURI     string `json:"token_uri"` // of Google's key files too

	// Of Bedrock: the keys of an AWS account, or of a session.
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	SessionToken    string `json:"session_token"`

	// Of Vertex: a service account's key file, or a token that somebody else renews.
	AccessToken  string `json:"access_token"`
	Type         string `json:"type"`
	ClientEmail  string `json:"client_email"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
}

// readSecret takes a secret apart in one of the forms of its provider: docs/org.md shows them. Nothing of the secret
// stands in the error.
func readSecret(provider string, text []byte) (providerSecret, error) {
	var s providerSecret
	text = bytes.TrimSpace(text)
	document := bytes.HasPrefix(text, []byte("{"))
	switch {
	case !document && provider == "vertex":
		return s, errors.New("must be a JSON object: a service account's key file, or access_token")
	case !document:
		s.key = string(text)
		return s, checkKey(s.key)
	case provider != "azure" && provider != "bedrock" && provider != "vertex":
		return s, fmt.Errorf("is a JSON object: provider %s has a key alone", provider)
	case json.Unmarshal(text, &s) != nil:
		return s, errors.New("is no JSON object of texts") // the cause could quote it
	}
	switch provider {
	case "azure":
		s.key = s.APIKey
		if s.key == "" && (s.TenantID == "" || s.ClientID == "" || s.ClientSecret == "") {
			return s, errors.New("must have api_key, or tenant_id, client_id and client_secret")
		}
	case "bedrock":
		if s.AccessKeyID == "" || s.SecretAccessKey == "" {
			return s, errors.New("must have access_key_id and secret_access_key")
		}
		if bytes.ContainsFunc([]byte(s.AccessKeyID+s.SessionToken), func(r rune) bool { return r <= ' ' || r > '~' }) {
			return s, errors.New("has an access_key_id or session_token that cannot be sent")
		}
	case "vertex":
		switch s.key = s.AccessToken; {
		case s.key != "":
		case s.Type != "service_account":
			return s, errors.New(`must have access_token, or be a key file of type "service_account"`)
		case s.ClientEmail == "":
			return s, errors.New("has no client_email")
		case !isRSA(s.PrivateKey):
			return s, errors.New("has a private_key that is no RSA key in PEM")
		}
	}
	if s.key == "" {
		return s, nil
	}
	return s, checkKey(s.key)
}

// checkKey refuses a key that cannot stand in a header field.
func checkKey(key string) error {
	if key == "" {
		return errors.New("is no key: it is empty")
	}
	for i, r := range key {
		if r < ' ' || r > '~' {
			return fmt.Errorf("is no key: byte %d cannot stand in a header field: one line of visible ASCII is wanted", i+1)
		}
	}
	return nil
}

func isRSA(text string) bool {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return false
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return true
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	_, ok := key.(*rsa.PrivateKey)
	return err == nil && ok
}
