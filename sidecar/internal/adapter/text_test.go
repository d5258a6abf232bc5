package adapter

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestStrings: any text goes into JSON and comes out again, and what stands inside can be put into another string.
func TestStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		raw := AppendString([]byte("x"), a)[1:]
		var got string
		if err := json.Unmarshal(raw, &got); err != nil || got != a {
			t.Fatalf("%q became %s: %v", a, raw, err)
		}
		joined := `"` + Inside(gjson.ParseBytes(raw)) + Inside(gjson.ParseBytes(AppendString(nil, b))) + `"`
		if err := json.Unmarshal([]byte(joined), &got); err != nil || got != a+b {
			t.Fatalf("%q and %q became %s", a, b, joined)
		}
	})
	for _, v := range []string{"", "1", "null", "{}"} {
		if got := Inside(gjson.Parse(v)); got != "" {
			t.Errorf("inside of %s: %q", v, got)
		}
	}
}

func TestCuts(t *testing.T) {
	long := strings.Repeat("é", 4000)
	if got := Trimmed(long); len(got) > 4096 || !strings.HasPrefix(long, got) || Trimmed("a") != "a" {
		t.Errorf("%d bytes", len(got))
	}
	if got := Printable(long); len(got) > 70 || !strings.HasSuffix(got, "...") || Printable("n") != "n" {
		t.Errorf("%q", got)
	}
	if got := string(Comma(Comma([]byte("["), 1), 0)); got != "[," {
		t.Error(got)
	}
	if got := Compact(gjson.Parse(`{ "a" : [ 1 ] }`)); got != `{"a":[1]}` {
		t.Error(got)
	}
}

// TestMayDrop: what cannot be honoured goes by its top-level member; what is asked never goes.
func TestMayDrop(t *testing.T) {
	allowed := []string{"tools", "messages", "input", "stop"}
	for param, want := range map[string]bool{
		"tools": true, "tools[0].function": true, "stop[1]": true, "tool_choice": false, "tool": false, "": false,
		"messages[0]": false, "messages": false, "input": false,
	} {
		if MayDrop(allowed, param) != want {
			t.Errorf("%s: want %v", param, want)
		}
	}
}

// TestEachMember: members come in their order, without those that are null, up to the first that fails for good.
func TestEachMember(t *testing.T) {
	var seen []string
	f := EachMember([]byte(`{"a":1,"b":null,"stop":2,"c":3,"tools":4,"d":5}`), []string{"stop"}, func(name string, v gjson.Result) *exchange.Failure {
		seen = append(seen, name+v.Raw)
		if name == "stop" || name == "tools" {
			return Unsupported(name, "no")
		}
		return nil
	})
	if want := []string{"a1", "stop2", "c3", "tools4"}; f == nil || f.Param != "tools" || !slices.Equal(seen, want) {
		t.Errorf("%+v, %v", f, seen)
	}
	f = EachMember([]byte(`{"stop":1}`), []string{"stop"}, func(name string, _ gjson.Result) *exchange.Failure { return Invalid(name, "no") })
	if f == nil || f.Kind != exchange.FailRequest {
		t.Errorf("what is malformed was dropped: %+v", f)
	}
}

// TestSaid: a text is what it says, but for halves of characters, which stay escapes.
func TestSaid(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "a", `1`: "", `""`: "", `"\\u0061\"\n"`: "\\u0061\"\n", `"\u00e9\ud83d\ude00"`: "é😀",
		`"a\ud800b"`: `a\ud800b`, `"\uDC00\ud83d\ude00\ud83d"`: `\uDC00😀\ud83d`, `"\ud800\n"`: `\ud800` + "\n", `"\\ud800"`: `\ud800`,
	} {
		if got := Said(gjson.Parse(raw)); got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if got := Said(gjson.ParseBytes(AppendString(nil, text))); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// TestFitCallID: ids become plain and short, the same the same, others others. Those that are fit stay.
func TestFitCallID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(1, 80, -1).Draw(t, "a"), rapid.StringN(1, 80, -1).Draw(t, "b")
		x, y := FitCallID(a), FitCallID(b)
		if !IsPlain(x) || len(x) > callIDMax || x != FitCallID(a) || (PlainCallID(a) == PlainCallID(b)) != (x == y) {
			t.Fatalf("%q became %q, %q became %q", a, x, b, y)
		}
		if IsPlain(a) && len(a) <= callIDMax && !strings.Contains(a, SignatureMark) && x != a {
			t.Fatalf("%q became %q", a, x)
		}
	})
	if got := FitCallID("call_1" + SignatureMark + "c2ln"); got != "call_1" {
		t.Error(got)
	}
}

// TestKindOf: what a status means, where nobody says otherwise.
func TestKindOf(t *testing.T) {
	for status, want := range map[int]exchange.FailureKind{
		302: exchange.FailInvalid, 400: exchange.FailRequest, 401: exchange.FailCredential, 403: exchange.FailCredential,
		404: exchange.FailNotFound, 408: exchange.FailTimeout, 409: exchange.FailOverloaded, 422: exchange.FailRequest,
		429: exchange.FailRateLimited, 500: exchange.FailOverloaded, 529: exchange.FailOverloaded,
	} {
		if got := KindOf(status); got != want {
			t.Errorf("%d: %d", status, got)
		}
	}
}
