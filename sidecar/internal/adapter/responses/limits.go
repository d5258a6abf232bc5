package responses

const (
	// echoMax bounds a member of the request that comes back with the answer, in bytes. A longer one is left out.
	echoMax = 4 << 10
	// textMax bounds what one answer says, escaped, in bytes: its end repeats all of it. A longer one is broken off.
	textMax = 16 << 20
	// callsMax bounds the tool calls of one answer. More break it off.
	callsMax = 1024
)
