package estimate

import "testing"

func TestInputLearns(t *testing.T) {
	e := New()
	in := Input{Bytes: 4000, Messages: 1}
	before := e.InputTokens("d", in)
	for range 200 {
		e.LearnInput("d", in, 1000) // 4 bytes a token
	}
	after := e.InputTokens("d", in)
	if after >= before || after < 1000 {
		t.Errorf("before %d, after learning 4 bytes a token %d: want lower, and not below the 1,000 that are used", before, after)
	}
	if got := e.InputTokens("other", in); got != before {
		t.Errorf("another deployment learned: %d, want %d", got, before)
	}
	e.LearnInput("d", in, 4000) // a token a byte: dense text
	if got := e.InputTokens("d", in); got < 2*after {
		t.Errorf("after dense text %d, want at least twice %d at once", got, after)
	}
}

func TestInputIsRarelyTooLow(t *testing.T) {
	for name, in := range map[string]struct {
		in   Input
		used int64 // by a rule of ceil(bytes/4) + 3 a message
	}{
		"short": {Input{Bytes: 5, Messages: 1}, 5},
		"long":  {Input{Bytes: 40_000, Messages: 20}, 10_060},
	} {
		t.Run(name, func(t *testing.T) {
			if got := New().InputTokens("d", in.in); got < in.used {
				t.Errorf("got %d, want at least %d", got, in.used)
			}
		})
	}
}

// TestTextIsCharged: the guess that is charged is near what common texts come to before anything is learned, and one
// dense prompt does not make all texts dear.
func TestTextIsCharged(t *testing.T) {
	for name, c := range map[string]struct{ bytes, tokens int64 }{ // measured with o200k
		"English prose":  {11_358, 2_263},
		"dense Markdown": {10_066, 2_594},
		"Go":             {8_770, 2_470},
		"JSON":           {36_826, 9_419},
	} {
		if got := New().TextTokens("d", c.bytes); got < c.tokens*8/10 || got > c.tokens*5/4 {
			t.Errorf("%s: got %d, want about %d", name, got, c.tokens)
		}
	}
	e := New()
	before := e.TextTokens("d", 10_000)
	e.LearnInput("d", Input{Bytes: 3_000}, 2_000) // base64
	if got := e.TextTokens("d", 10_000); got <= before || got > before*13/10 {
		t.Errorf("%d after one dense prompt, %d before: want a little more", got, before)
	}
	for range 100 {
		e.LearnInput("d", Input{Bytes: 30_000}, 10_000)
	}
	if got := e.TextTokens("d", 3_000); got < 980 || got > 1_000 {
		t.Errorf("got %d after many prompts of 3 bytes a token, want 1,000", got)
	}
}

func TestOutputIsTheP95(t *testing.T) {
	e := New()
	if got := e.OutputTokens("s", 1000); got != 1000 {
		t.Errorf("nothing learned: got %d, want the limit", got)
	}
	for i := range 60 {
		n := int64(20)
		if i%10 == 0 {
			n = 300 // a tenth are long: the p95 must see them
		}
		e.LearnOutput("s", n)
	}
	if got := e.OutputTokens("s", 1000); got != 300 {
		t.Errorf("got %d, want 300", got)
	}
	if got := e.OutputTokens("s", 100); got != 100 {
		t.Errorf("got %d, want at most the limit of 100", got)
	}
	for range windowMax {
		e.LearnOutput("s", 7)
	}
	if got := e.OutputTokens("s", 1000); got != 7 {
		t.Errorf("got %d, want the new habit, 7", got)
	}
}
