package responses

const (
	// echoMax bounds a member of the request that comes back with the answer, in bytes. A longer one is left out.
	echoMax = 64 << 10
	// textMax bounds what one answer says, escaped, in bytes: its end repeats all of it. A longer one is broken off.
	textMax = 16 << 20
	// weightMax bounds the logprobs of one answer, in bytes: they are some hundred times its text. A longer one is broken off.
	weightMax = 32 << 20
	// openingMax bounds how far into a custom tool's arguments its text is looked for as they come, in bytes. One that begins
	// later comes whole at the end.
	openingMax = 256
	// callsMax bounds the tool calls of one answer. More break it off.
	callsMax = 1024
)
