package exchange

// NanoUSD is money in nano-dollars: 1 USD is 1,000,000,000. Money is never a float.
type NanoUSD int64

// Tokens counts tokens, and searches, by the way they are priced. The kinds are disjoint, except that Reasoning is the
// part of Output that was reasoning.
type Tokens struct {
	Input        int64 // neither read from nor written to the provider's cache
	CacheRead    int64
	CacheWrite5m int64 // also for providers with a single, unnamed duration
	CacheWrite1h int64
	Output       int64 // reasoning included
	Reasoning    int64 // part of Output; shown, not priced again
	InputAudio   int64 // not part of Input
	OutputAudio  int64 // not part of Output
	InputImage   int64 // that the provider counts apart; not part of Input
	OutputImage  int64 // that the provider counts apart; not part of Output
	WebSearches  int64 // searches, not tokens
}

// Prompt is every input token, cached or not.
func (t Tokens) Prompt() int64 {
	return t.Input + t.CacheRead + t.CacheWrite5m + t.CacheWrite1h + t.InputAudio + t.InputImage
}

// Completion is every output token.
func (t Tokens) Completion() int64 { return t.Output + t.OutputAudio + t.OutputImage }

// Total is every token, each once.
func (t Tokens) Total() int64 { return t.Prompt() + t.Completion() }

// Add returns the sums.
func (t Tokens) Add(o Tokens) Tokens {
	return Tokens{
		Input:        t.Input + o.Input,
		CacheRead:    t.CacheRead + o.CacheRead,
		CacheWrite5m: t.CacheWrite5m + o.CacheWrite5m,
		CacheWrite1h: t.CacheWrite1h + o.CacheWrite1h,
		Output:       t.Output + o.Output,
		Reasoning:    t.Reasoning + o.Reasoning,
		InputAudio:   t.InputAudio + o.InputAudio,
		OutputAudio:  t.OutputAudio + o.OutputAudio,
		InputImage:   t.InputImage + o.InputImage,
		OutputImage:  t.OutputImage + o.OutputImage,
		WebSearches:  t.WebSearches + o.WebSearches,
	}
}
