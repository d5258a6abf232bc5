package api

import "testing"

// TestCredentialDocuments: what providers hand out as files of several lines is taken, and becomes one line; a key that
// stands in a header is a line already.
func TestCredentialDocuments(t *testing.T) {
	const several, one = "{\n  \"client_id\": \"a b\",\n  \"note\": \"é\"\n}\n", `{"client_id":"a b","note":"é"}`
	for name, c := range map[string]struct{ provider, secret, want string }{
		"a document":           {"azure", several, one},
		"a service account":    {"vertex", several, one},
		"half a document":      {"bedrock", `{"access_key_id":`, ""},
		"a document, openai":   {"openai", several, ""},
		"a key":                {"azure", " k1\n", "k1"},
		"a key over two lines": {"azure", "k\n1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readCredential(c.provider, []byte(c.secret))
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
