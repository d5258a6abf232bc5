package gateway

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/tidwall/gjson"
)

const (
	// searchesLikely is how many searches are reserved for a tool without a bound, searchesMost for one with a high bound.
	// More than was reserved becomes debt, as with tokens.
	searchesLikely = 5
	searchesMost   = 100
)

// peekPrice reads what decides, besides tokens, what a request may cost. All dialects say it alike.
func peekPrice(r *exchange.Request, name string, v gjson.Result) {
	switch name {
	case "service_tier":
		r.ServiceTier = v.Str
	case "speed": // of Anthropic alone; to others it is a member that nobody knows
		if r.Dialect == exchange.MessagesDialect {
			r.Speed = v.Str
		}
	case "inference_geo":
		if r.Dialect == exchange.MessagesDialect {
			r.Geo = v.Str
		}
	case "tools":
		v.ForEach(func(_, tool gjson.Result) bool {
			if strings.HasPrefix(tool.Get("type").Str, "web_search") {
				r.WebSearches += searchesOf(tool.Get("max_uses"))
			}
			return true
		})
	case "web_search_options": // of models that search once, always
		if v.IsObject() {
			r.WebSearches++
			r.SearchesAlways = true
		}
	case "modalities":
		r.NoImages = v.IsArray()
		v.ForEach(func(_, m gjson.Result) bool {
			r.AudioAnswer = r.AudioAnswer || m.Str == "audio"
			r.NoImages = r.NoImages && m.Str != "image"
			return true
		})
	}
}

// searchesOf is how many searches are reserved for a tool that may search so often.
func searchesOf(usesMax gjson.Result) int64 {
	if usesMax.Type != gjson.Number {
		return searchesLikely
	}
	return min(max(usesMax.Int(), 0), searchesMost)
}
