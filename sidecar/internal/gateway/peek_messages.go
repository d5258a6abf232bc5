package gateway

const (
	// documentTokens is what each begun documentBytes of a file's base64 are taken for: a page or so of a PDF, as text and
	// as a picture.
	documentTokens = 3_000
	documentBytes  = 64 << 10
	// unseenTokens is what a file is taken for that the provider fetches itself.
	unseenTokens = 20_000
)

// fileTokens is what a file of so many bytes of base64 is taken for.
func fileTokens(bytes int) int64 { return (int64(bytes)/documentBytes + 1) * documentTokens }
