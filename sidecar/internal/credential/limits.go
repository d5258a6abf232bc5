package credential

import "time"

const (
	// heldMax bounds the secrets whose methods are kept.
	heldMax = 1024
	// fetchWait bounds a fetch of a token, and so how long a request waits for one.
	fetchWait = 10 * time.Second
	// renewAhead is how long before its end a token is renewed, if a fifth of its life is not shorter.
	renewAhead = 5 * time.Minute
	// spareLife is how long a token must still be good for to be sent.
	spareLife = 10 * time.Second
	// fetchPause is the least time between two fetches of a token that brought none.
	fetchPause = 2 * time.Second
	// forgetPause is the least time between two tokens that are forgotten because the provider refused them.
	forgetPause = 10 * time.Second
)
