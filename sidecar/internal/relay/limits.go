package relay

import "time"

// The bounds of this room. What a caller sees when one is hit stands beside it.
const (
	// bodyBytesMax bounds a complete answer, decoded, in bytes. Above it the attempt fails with FailInvalid.
	bodyBytesMax = 32 << 20
	// errorBytesMax bounds what is read of an error answer, in bytes. The rest is dropped with its connection.
	errorBytesMax = 256 << 10
	// heldBytesMax bounds what may wait for the first real token, in bytes. Above it: FailInvalid.
	heldBytesMax = 1 << 20
	// headBytesMax bounds the head of an answer, in bytes. Above it: FailInvalid.
	headBytesMax = 64 << 10
	// metaBytesMax bounds the extension of one chunk, and all trailers of a body, in bytes. Above it: FailInvalid.
	metaBytesMax = 8 << 10
	// interimMax bounds the 1xx answers before the real one. Above it: FailInvalid.
	interimMax = 8

	// readBufferBytes is the read buffer of one upstream connection. A longer head moves to a larger buffer once.
	readBufferBytes = 4 << 10
	// recvBufferBytes is SO_RCVBUF of upstream connections. It bounds what the kernel holds for a slow caller.
	recvBufferBytes = 32 << 10
	// batchBytes is how much one write to the caller gathers of what has already arrived.
	batchBytes = 4 << 10
	// smallBytes is the buffer that each stream has for itself, enough for an ordinary chunk.
	smallBytes = 768
	// envelopeBytes is about what a translation puts around the text of an event. It is no bound.
	envelopeBytes = 256
	// sendBytesMax is how much of a request is copied behind its head so that both leave in one write.
	sendBytesMax = 16 << 10
	// keptBufferBytes is the largest buffer that is kept for reuse.
	keptBufferBytes = 64 << 10

	// idlePerOrigin bounds the idle connections of one origin. Above it a connection is closed after use.
	idlePerOrigin = 64
	// originsMax bounds the origins (and base URLs) remembered. Above it the table starts anew.
	originsMax = 1024
	// idleAge is how long a connection may lie idle; most providers close theirs after 60 s or later.
	idleAge = 55 * time.Second
	// connAge is how long a connection is reused at all, so that changes of DNS are followed.
	connAge = 10 * time.Minute
	// sweepEvery is how often old idle connections are looked for.
	sweepEvery = 5 * time.Second

	// drainWorkers and drainQueue bound the finished streams whose last bytes are awaited for the sake of their
	// connection. Above them the connection is closed instead.
	drainWorkers = 4
	drainQueue   = 64
	// drainWait and drainBytesMax bound one such wait. Above them the connection is closed.
	drainWait     = 250 * time.Millisecond
	drainBytesMax = 64 << 10

	// writeWait is how long one write to the caller may take. Above it the caller counts as gone.
	writeWait = 30 * time.Second
	// heartbeatEvery is after how much silence the caller is sent a comment.
	heartbeatEvery = 15 * time.Second
	// patience is after how much silence a stream becomes the caller's without a token. Load balancers cut at 60 s, and
	// the default deadline for the first token, after which another deployment is tried, is 30 s. Behind it the caller
	// sees keep-alives, and a failure is an error event.
	patience = 45 * time.Second
	// lateHeadWait is how long an answer is awaited whose request could not be sent to its end.
	lateHeadWait = time.Second
	// leftoverWait bounds the read that takes pending session tickets off an idle TLS connection.
	leftoverWait = 2 * time.Millisecond
)
