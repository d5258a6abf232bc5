package quota

import "time"

// Every bound of this package.
const (
	keysInTeam     = 4  // all used by each of its sidecars
	sidecarsInTeam = 25 // that share the resources of a team and its keys

	windowBytes   = 1 << 20
	connectAtOnce = 64               // sessions that are being made at the same time
	resendAfter   = 2 * time.Second  // an unanswered renew is sent again; quotad drops what it cannot take
	renewEvery    = 2 * time.Second  // of an idle sidecar
	startTimeout  = 60 * time.Second // for a cluster to have a leader, for sessions to stand
	stopTimeout   = 20 * time.Second // for a process to end after SIGTERM

	// What one request draws: small enough that no limit is ever short.
	askRequests, askTokens, askNano = 1, 1_000, 1_000_000

	proberEvery   = 5 * time.Millisecond // between a prober's asks
	gapTimeout    = 30 * time.Second     // for grants to come again after a failover
	betweenTrials = 3 * time.Second      // of failover, for followers to catch up

	controlClients  = 2000 // of the control, each with one operation in flight
	controlOpBytes  = 64
	controlEntryOps = 512 // at most; and
	controlFlying   = 4   // entries in flight, as replica's batcher has
)

// The aims. A run misses when it is beyond one by more than gross, which leaves room for a busy machine.
const (
	aimOps          = 100_000 // lease operations a second on three nodes, closed loop
	aimControl      = 0.35    // of the control's
	aimP99          = 25 * time.Millisecond
	aimKilled       = 1500 * time.Millisecond
	aimTransfer     = 100 * time.Millisecond
	aimRestart      = 5 * time.Second
	aimAcquire      = 2 * time.Microsecond
	gross           = 3.0
	openRateDefault = 100_000
)
