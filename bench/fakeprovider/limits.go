package fakeprovider

import "time"

// Every bound of this package. A bound that a caller can hit says what the caller sees.
const (
	bodyBytesMax      = 32 << 20 // request body; above it 413
	outputTokensMax   = 1 << 20  // tokens=, reasoning= and the other token counts of a setting; above it the setting is refused
	choicesMax        = 128      // n; above it 400
	callsMax          = 16       // tool calls in one answer; more are not made
	schemaDepthMax    = 8        // levels of a JSON schema that are filled in; below it null
	settingsMax       = 64       // settings in one directive or one section; above it the directive is refused (400)
	durationMax       = time.Hour
	embedInputsMax    = 2048 // inputs of one embeddings request; above it 400
	dimensionsMax     = 4096 // above it 400
	dimensionsDefault = 64
	rulesMax          = 256 // rules in force; above it the control call is refused
	keysMax           = 1024
	modelsMax         = 1024  // names in models, settings or prices; above it the control call is refused
	groupsMax         = 1024  // model and key names counted apart; later ones are counted under "other"
	recordsDefault    = 10000 // finished and open requests that are remembered; the oldest is forgotten first
	recordsMax        = 1 << 20
	recordsShown      = 100  // records in one witness answer unless ?records=N asks for another number
	timelineSeconds   = 3600 // seconds of timeline kept; older ones are forgotten
	detailBytesMax    = 64 << 10
	nameBytesMax      = 256              // model, key and id strings kept in a record; the rest is cut off
	hangMax           = 15 * time.Minute // a hang ends by itself after this, as a clean cut
	limitMax          = 1_000_000_000    // units a minute; above it the setting is refused
	controlBytesMax   = 1 << 20          // body of a control call; above it 413
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)
