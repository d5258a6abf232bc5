package api

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
)

// documents are the providers whose secrets may be JSON objects, and what must stand in one: all members of one of the
// lists. The sidecar's credential room reads them.
var documents = map[string][][]string{
	"azure":   {{"api_key"}, {"tenant_id", "client_id", "client_secret"}},
	"bedrock": {{"access_key_id", "secret_access_key"}},
	"vertex":  {{"access_token"}, {"client_email", "private_key"}},
}

// readCredential takes a secret that stands in a header field as it is, or a document with what makes one, such as the
// file of a service account. What cannot work is refused here, where the operator sees it, and not at the first request.
// No error has any of the secret in it.
func readCredential(provider string, secret []byte) ([]byte, error) {
	secret = bytes.TrimSpace(secret)
	members := documents[provider]
	switch is := bytes.HasPrefix(secret, []byte("{")); {
	case is && members == nil:
		return nil, badInput("secret: is a JSON object: provider %s has plain keys", provider)
	case is:
		return readDocument(provider, members, secret)
	case provider == "vertex" && len(secret) > 0:
		return nil, badInput("secret: must be a JSON object: the key file of a service account, or access_token")
	}
	if i := bytes.IndexFunc(secret, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		return nil, badInput("secret: byte %d cannot stand in a header field: one line of visible ASCII is wanted", i+1)
	}
	return secret, nil
}

func readDocument(provider string, members [][]string, secret []byte) ([]byte, error) {
	var doc map[string]any
	var line bytes.Buffer
	if json.Unmarshal(secret, &doc) != nil || json.Compact(&line, secret) != nil {
		return nil, badInput("secret: begins with { and is no JSON object") // the cause could quote it
	}
	said := func(name string) string {
		text, _ := doc[name].(string)
		return text
	}
	wanted := make([]string, len(members))
	for i, all := range members {
		wanted[i] = strings.Join(all, ", ")
		if slices.ContainsFunc(all, func(name string) bool { return said(name) == "" }) {
			continue
		}
		if slices.Contains(all, "private_key") {
			switch {
			case said("type") != "service_account":
				return nil, badInput("secret: type must be service_account: other key files are not read")
			case !isRSA(said("private_key")):
				return nil, badInput("secret: private_key is no RSA key in PEM")
			}
		}
		return line.Bytes(), nil
	}
	return nil, badInput("secret: of provider %s must have the texts %s", provider, strings.Join(wanted, "; or "))
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
