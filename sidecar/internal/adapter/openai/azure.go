package openai

import (
	"net/url"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// azureProvider is the provider whose addresses are made by azurePath.
const azureProvider = "azure"

// azurePath is where an operation of a deployment on Azure is. The deployment's model is Azure's name of its deployment.
// A dated API version has an address for each; the newer API has one for all, and the name in the body. What the base
// URL lacks of either is put behind it.
func azurePath(d *exchange.Deployment, operation string) string {
	const each, all = "/openai/deployments", "/openai/v1"
	name := "/" + url.PathEscape(d.Model)
	version := d.APIVersion
	path := ""
	switch base := d.BaseURL; {
	case strings.HasSuffix(base, each):
		path = name
	case strings.Contains(base, each+"/"): // the name is in it
	case dated(version):
		path = behind(base, each) + name
	default:
		path = behind(base, all)
	}
	path += operation
	if version != "" {
		path += "?api-version=" + url.QueryEscape(version)
	}
	return path
}

// azureFirst is the first dated API version that has the Responses API.
const azureFirst = "2025-03-01"

// azureResponds says whether a deployment on Azure has the Responses API: no address below one for each deployment does.
func azureResponds(d *exchange.Deployment) bool {
	return !strings.Contains(d.BaseURL, "/openai/deployments") && (!dated(d.APIVersion) || d.APIVersion >= azureFirst)
}

// azureResponses is where the Responses API of Azure is.
func azureResponses(d *exchange.Deployment) string {
	path := ""
	switch version := d.APIVersion; {
	case !dated(version):
		path = behind(d.BaseURL, "/openai/v1")
	case !strings.HasSuffix(d.BaseURL, "/openai"):
		path = "/openai"
	}
	path += "/responses"
	if d.APIVersion != "" {
		path += "?api-version=" + url.QueryEscape(d.APIVersion)
	}
	return path
}

func dated(version string) bool { return version != "" && version[0] <= '9' }

// behind is what of a path of two parts must be put behind a base URL that may end in the path or its first part.
func behind(base, path string) string {
	first, second := path[:strings.LastIndexByte(path, '/')], path[strings.LastIndexByte(path, '/'):]
	switch {
	case strings.HasSuffix(base, path):
		return ""
	case strings.HasSuffix(base, first):
		return second
	}
	return path
}
