package adapter

import (
	"encoding/json"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestTurns: blocks of one role become one turn, in their order, but results of tools come first, in theirs.
func TestTurns(t *testing.T) {
	type turn struct {
		Role    string `json:"role"`
		Content []int  `json:"content"`
	}
	rapid.Check(t, func(t *rapid.T) {
		turns := NewTurns(0)
		var want []turn
		results := 0 // of the last turn
		for n := range rapid.IntRange(0, 12).Draw(t, "blocks") {
			role, result := "user", rapid.Bool().Draw(t, "result")
			if !result {
				role = rapid.SampledFrom([]string{"user", "assistant"}).Draw(t, "role")
			}
			if last := len(want) - 1; last < 0 || want[last].Role != role {
				want, results = append(want, turn{Role: role}), 0
			}
			block := strconv.AppendInt(turns.Begin(role), int64(n), 10)
			to := &want[len(want)-1].Content
			if !result {
				turns.Keep(block)
				*to = append(*to, n)
				continue
			}
			turns.KeepResult(block)
			*to = append(append(append([]int{}, (*to)[:results]...), n), (*to)[results:]...)
			results++
		}
		if turns.Any() != (len(want) > 0) {
			t.Fatal("there are turns, or there are none")
		}
		var got []turn
		if err := json.Unmarshal([]byte("["+string(turns.Close())+"]"), &got); err != nil {
			t.Fatal(err)
		}
		said := func(list []turn) string { b, _ := json.Marshal(list); return string(b) }
		if len(got)+len(want) > 0 && said(got) != said(want) {
			t.Fatalf("got %s, want %s", said(got), said(want))
		}
	})
}
