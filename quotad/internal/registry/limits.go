package registry

// The bounds of this package. Above one, the caller sees a fault or a refusal that names it, unless said otherwise.
const (
	FileBytesMax = 16 << 20 // bytes of an org.yaml

	specBytesMax     = 1 << 20  // bytes of one object's spec
	depthMax         = 32       // nesting of a JSON spec
	changeObjectsMax = 100_000  // objects of one change
	objectsMax       = 200_000  // objects in all
	suspectsMax      = 16       // lines in which a mistake in YAML is looked for; beyond, the fault names the block
	suspectBytesMax  = 1 << 20  // bytes before them; likewise
	faultsMax        = 50       // faults that are listed; further ones are counted
	historyMax       = 1_000    // changes kept; the oldest are dropped
	historyBytesMax  = 64 << 20 // bytes of specs in them; the oldest are dropped, the newest always stays
	namesMax         = 10       // names listed as known in a fault
	quoteMax         = 64       // bytes of a wrong value that a fault repeats

	idBytesMax       = 64
	identityBytesMax = 255
	textBytesMax     = 256
	urlBytesMax      = 2_048
	listMax          = 10_000 // items of a list inside an object

	limitMax    = 1_000_000_000_000         // a bucket's units a minute
	moneyMax    = 1_000_000_000_000_000_000 // billionths of any currency, and of the dollars it comes to: a billion
	rateMin     = 1_000_000                 // units of a currency per USD, billionths: 0.001
	rateMax     = 1_000_000_000_000_000     // the same: a million
	lifetimeMin = Millis(60_000)            // of a run after its last request: a minute
	lifetimeMax = Millis(31 * 86_400_000)   // the same: 31 days
	weightMax   = 1_000
	priorityMax = 1_000
	attemptsMax = 10
	tokensMax   = 100_000_000
	alertsMax   = 16

	stepsMax  = 16                // steps of a price
	timesMax  = 16                // service tiers, speeds or geographies of a price
	timesMost = 1_000_000_000_000 // what one of them costs, billionths of the price: a thousand times
)
