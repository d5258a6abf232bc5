package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// What is set is held to more than that the sidecar can use it: a slip would show with the first call, or, as a misspelt
// session_token, as a refusal of the provider's. A secret that is stored already is not asked this.

// documents are the members of each provider's documents, the one first that tells which of them it is. The key file of a
// service account is not among them: Google makes it, and adds to it.
var documents = map[string][][]string{
	"azure":   {{"api_key"}, {"tenant_id", "client_id", "client_secret", "scope", "token_uri"}},
	"bedrock": {{"access_key_id", "secret_access_key", "session_token"}},
	"vertex":  {{"access_token"}},
}

var tenant = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]*$`)

// checkForm sees that a secret, which readSecret has taken apart, has its form and nothing besides. Nothing of the secret
// stands in the error.
func checkForm(provider string, s providerSecret, text []byte) error {
	document := bytes.HasPrefix(text, []byte("{"))
	switch {
	case !document && (text[0] == '[' || text[0] == '"'):
		return errors.New("is JSON and no object: a key stands there as it is, without quotes")
	case strings.Contains(s.key, " "):
		return errors.New("is no key: there is a space in it: one line of visible ASCII is wanted")
	case !document:
		return nil
	case s.TenantID != "" && !tenant.MatchString(s.TenantID):
		return errors.New("has a tenant_id that is neither an id nor a domain")
	case s.TokenURI != "" && !isAddress(s.TokenURI):
		return errors.New("has a token_uri that is no URL of http or https")
	}
	names := members(text)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("is wrong: its member %d stands there a second time", i+1)
		}
	}
	for _, known := range documents[provider] {
		if !slices.Contains(names, known[0]) {
			continue
		}
		if i := slices.IndexFunc(names, func(name string) bool { return !slices.Contains(known, name) }); i >= 0 {
			return fmt.Errorf("is wrong: its member %d is none of %s", i+1, strings.Join(known, ", "))
		}
		return nil
	}
	return nil
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != ""
}

// members are the names in a JSON object, as they stand there.
func members(object []byte) (names []string) {
	d := json.NewDecoder(bytes.NewReader(object))
	_, err := d.Token()
	for err == nil && d.More() {
		var name json.Token
		if name, err = d.Token(); err == nil {
			names = append(names, name.(string))
			err = d.Decode(new(json.RawMessage))
		}
	}
	if err != nil {
		panic("BUG: a document that was read is no JSON") // the cause could quote it
	}
	return names
}
