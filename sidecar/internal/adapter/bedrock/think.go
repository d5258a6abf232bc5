package bedrock

import "regexp"

// hiddenFormat marks what a model thinks whose id does not tell who made it.
const hiddenFormat = "bedrock-v1"

// maker finds the maker in a model's id, behind the part of the world that serves it. One that is not known is taken for the
// maker: then a thought goes back to the models that are served there, and to no others.
var maker = regexp.MustCompile(`(?:^|/)(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?([a-z0-9-]+)\.`)

// thoughtFormat marks, among reasoning_details, what a model thinks that Converse serves. Signatures and encrypted
// thoughts are read by its own maker's models alone.
func thoughtFormat(base string) string {
	if m := maker.FindStringSubmatch(base); m != nil {
		return "bedrock-" + m[1] + "-v1"
	}
	return hiddenFormat
}

// readable are the formats of the thoughts that a model takes back. One whose maker is hidden may be Claude.
func readable(base string) []string {
	if format := thoughtFormat(base); format != hiddenFormat {
		return []string{format}
	}
	return []string{hiddenFormat, "anthropic"}
}
