package adapter

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
)

// plainly is TextEnd without haste: a quote that no backslash stands before ends a text.
func plainly(b []byte, from int) (to, size int) {
	for i := from; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			doc := b[from-1 : i+1]
			if !gjson.ValidBytes(doc) {
				return -1, 0
			}
			return i, len(gjson.ParseBytes(doc).Str)
		}
	}
	return -1, 0
}

// FuzzTextEnd: a text ends where it ends and has the bytes that it has; what is broken has no end. Half a surrogate pair
// alone may be given up.
func FuzzTextEnd(f *testing.F) {
	for _, s := range []string{
		`a"`, `"`, ``, `abcdefgh"`, `abcdefg\"hi"`, `\\"`, `\`, `\u00e9\ud83d\ude00"`, `\ud83d"`, `\ud83d\u0041"`, `\uD83d\uDe00"`, `\u00g0"`, `\x"`,
		"a\nb\"", "\x1f\"", "\x7f\x80\xff\"", "éééééééé\"", `12345678"`, `1234567\u0000"}`, "\x22\x21\x5b\x5d\x20\x1f\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, inside []byte) {
		b := append([]byte(`"`), inside...)
		to, size := TextEnd(b, 1)
		wantTo, wantSize := plainly(b, 1)
		if to == wantTo && size == wantSize {
			return
		}
		half := bytes.Contains(bytes.ToLower(inside), []byte(`\ud`))
		if to >= 0 || !half {
			t.Fatalf("%q: ends at %d with %d bytes, want %d with %d", inside, to, size, wantTo, wantSize)
		}
	})
}

// FuzzForm: what matches a form is JSON if what it was learned from is, and says the same but in its holes.
func FuzzForm(f *testing.F) {
	f.Add([]byte(`{"a":"x","u":{"n":1,"m":{"k": 22 }}}`), []byte(`{"a":"yy","u":{"n":333,"m":{"k": 4 }}}`))
	f.Add([]byte(`{"a":"x","u":{"n":-1,"m":1.5,"k":0}}`), []byte(`{"a":"","u":{"n":-2,"m":1.7,"k":00}}`))
	f.Add([]byte(`{"a":"\"","u":{"1":"2","n":[1,2]}}`), []byte(`{"a":"\u00e9","u":{"1":"3","n":[1,2]}}`))
	f.Add([]byte(`{"u":{"n":1},"a":"x"}`), []byte(`{"u":{"n":1e9},"a":"x"}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if !Valid(first) {
			t.Skip()
		}
		doc := gjson.ParseBytes(first)
		text, ok := HoleIn(first, doc.Get("a"))
		if !ok {
			t.Skip()
		}
		var holes []Hole
		if u := doc.Get("u"); u.IsObject() {
			holes = HolesOf(holes, first, u)
		}
		counted := len(holes) > 0
		var form Form
		if !form.Learn(first, append(holes, text)) {
			t.Skip()
		}
		if !form.Match(first) && string(first[text.From:text.To]) == doc.Get("a").Str {
			t.Fatalf("%s does not match itself", first)
		}
		if !form.Match(second) {
			return
		}
		got := gjson.ParseBytes(second)
		if !Valid(second) {
			t.Fatalf("%s matches %s", second, first)
		}
		in := form.In[:len(holes)+1]
		at := slices.IndexFunc(in, func(x Filling) bool {
			return got.Get("a").Index+1 == x.From && x.To+1 == x.From+len(got.Get("a").Raw)-1
		})
		if at < 0 || in[at].N != len(got.Get("a").Str) {
			t.Fatalf("%s: the text is not among %+v", second, in)
		}
		if counted {
			from, to := in[0].From, in[len(holes)-1].To
			if at == 0 {
				from, to = in[1].From, in[len(holes)].To
			}
			if string(second[from:to]) != got.Get("u").Raw {
				t.Fatalf("%s: counts %s", second, second[from:to])
			}
		}
	})
}

// TestForm: numbers and texts may differ, all else may not.
func TestForm(t *testing.T) {
	const learned = `{"a":"x","u":{"n":1,"m":"2","k":[3]}}`
	for event, want := range map[string]bool{
		learned:                                true,
		`{"a":"","u":{"n":0,"m":"2","k":[3]}}`: true,
		`{"a":"\n€","u":{"n":999999999,"m":"2","k":[45]}}`: true,
		`{"a":"x","u":{"n":1000000000,"m":"2","k":[3]}}`:   false,
		`{"a":"x","u":{"n":01,"m":"2","k":[3]}}`:           false,
		`{"a":"x","u":{"n":1.0,"m":"2","k":[3]}}`:          false,
		`{"a":"x","u":{"n":-1,"m":"2","k":[3]}}`:           false,
		`{"a":"x","u":{"n":1,"m":"3","k":[3]}}`:            false,
		`{"a":"x","u":{"n":1,"m":"2","k":[3,4]}}`:          false,
		`{"a":"x\","u":{"n":1,"m":"2","k":[3]}}`:           false,
		`{"a":"x","u":{"n":1,"m":"2","k":[3]}} `:           false,
		`{"a":"x","u":{"n":1,"m":"2","k":[3]}`:             false,
		``:                                                 false,
	} {
		doc := gjson.Parse(learned)
		text, _ := HoleIn([]byte(learned), doc.Get("a"))
		var form Form
		if form.Match([]byte(event)) {
			t.Fatal("the zero form matches")
		}
		if !form.Learn([]byte(learned), HolesOf([]Hole{text}, []byte(learned), doc.Get("u"))) {
			t.Fatal("not learned")
		}
		if got := form.Match([]byte(event)); got != want {
			t.Errorf("%s: %v, want %v", event, got, want)
		}
		if form.Forget(); form.Match([]byte(event)) {
			t.Errorf("%s matches what is forgotten", event)
		}
	}
}

// TestFormBounds: what is too long, or has too many holes, has no form.
func TestFormBounds(t *testing.T) {
	var form Form
	for holes, event := range map[int][]byte{0: []byte("a"), HolesMax + 1: bytes.Repeat([]byte("a"), 100), 1: bytes.Repeat([]byte("a"), formBytesMax+1)} {
		if form.Learn(event, make([]Hole, holes)) || form.Match(event) {
			t.Errorf("%d holes in %d bytes are learned", holes, len(event))
		}
	}
}
