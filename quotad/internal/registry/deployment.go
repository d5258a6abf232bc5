package registry

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

func supportedProviders() []string {
	return []string{"openai", "anthropic", "azure", "bedrock", "gemini", "vertex", "compatible"}
}

// vendors are the servers of provider compatible whose ways the sidecar knows. The table stands there; TestNamesAreTheSame at the
// module's root compares the names.
func vendors() []string {
	return []string{
		"vllm", "sglang", "llamacpp", "ollama", "mistral", "groq", "deepseek", "xai", "openrouter", "gemini-openai",
	}
}

// capabilities are those that requests ask for by what is in them; TestNamesAreTheSame at the module's
// root compares them with the sidecar's. All others are an operator's own, for the needs of aliases.
func capabilities() []string { return []string{"tools", "json_schema", "vision"} }

func (m *mapping) readDeployment() *Deployment {
	d := &Deployment{}
	m.with(m.need("provider"), "provider", parseProvider(&d.Provider))
	base := m.take("base_url")
	m.with(base, "base_url", parseURL(&d.BaseURL, false))
	m.with(m.need("model"), "model", parseText(&d.Model))
	m.with(m.take("base_model"), "base_model", parseText(&d.BaseModel))
	m.choice("vendor", &d.Vendor, "", vendors()...)
	m.id("project", &d.Project)
	m.id("api_version", &d.APIVersion)
	m.id("credential", &d.Credential)
	m.id("region", &d.Region)
	m.id("account", &d.Account)
	m.integer("context_tokens", &d.ContextTokens, 0, 1, tokensMax)
	d.Capabilities = m.list("capabilities", "leave it out for all", parseID)
	d.DataClasses = m.list("data_classes", "leave it out for all", parseDataClass)
	m.id("price", &d.Price)
	if m.choice("unpriced", &d.Unpriced, "", "allow"); d.Unpriced != "" && d.Price != "" {
		m.rd.fault(m.from["unpriced"], m.sub("unpriced"), "stands beside price %q, which a slip would make 0 without a word: leave one of them out", d.Price)
	}
	d.Limits = m.limits()
	if d.Provider != "" { // else it is a fault of its own
		m.onlyOf(d)
		m.apiVersion(d)
	}
	if base == nil && d.Provider != "" || d.Provider == "bedrock" { // whose region is signed, wherever it is
		m.baseURL(d)
	}
	if base != nil {
		m.mistaken(d)
	}
	if d.Provider == "bedrock" {
		m.sameRegion(d)
	}
	return d
}

// baseURL fills in where a provider is who has but one place for all, or one in each region.
func (m *mapping) baseURL(d *Deployment) {
	regional := func(form *regexp.Regexp, example, base string) {
		switch {
		case d.Region == "": // a fault of its own
		case !form.MatchString(d.Region):
			m.rd.fault(m.from["region"], m.sub("region"), "%s is not a region, like %s", clip(d.Region), example)
		default:
			d.BaseURL = cmp.Or(d.BaseURL, base)
		}
	}
	switch d.Provider {
	case "gemini":
		d.BaseURL = "https://generativelanguage.googleapis.com/v1beta"
	case "bedrock":
		regional(awsRegion, "us-east-1", bedrockURL(d.Region))
	case "vertex":
		regional(googleLocation, "europe-west4, eu or global", vertexURL(d.Region))
	default:
		m.need("base_url")
	}
}

// versions are the paths that providers' own hosts have their APIs under.
var versions = map[string]string{
	"api.openai.com": "/v1", "api.anthropic.com": "/v1", "generativelanguage.googleapis.com": "/v1beta",
}

// mistaken refuses what base URLs are often mistaken for: the address of a call, a provider's own host alone, and another
// region than the one that is signed. Each would show with the first request only, as 404 or 403.
func (m *mapping) mistaken(d *Deployment) {
	fault := func(format string, args ...any) { m.rd.fault(m.from["base_url"], m.sub("base_url"), format, args...) }
	u, err := url.Parse(d.BaseURL)
	if err != nil || u.Host == "" {
		return // a fault of its own
	}
	for _, call := range [...]string{"/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/converse", "/invoke"} {
		if strings.HasSuffix(u.Path, call) {
			fault("must end before %s, which is added to it", call)
			return
		}
	}
	if v := versions[u.Host]; v != "" && u.Path == "" {
		fault("must have the version of the API in it: https://%s%s", u.Host, v)
	}
	theirs, own := strings.CutPrefix(u.Host, "bedrock-runtime.")
	if region, _, _ := strings.Cut(theirs, "."); own && d.Provider == "bedrock" && awsRegion.MatchString(d.Region) && region != d.Region {
		fault("is in region %s, and region says %s, which is what is signed", region, d.Region)
	}
}

func vertexURL(region string) string {
	switch region {
	case "global":
		return "https://aiplatform.googleapis.com/v1"
	case "eu", "us":
		return "https://aiplatform." + region + ".rep.googleapis.com/v1"
	}
	return "https://" + region + "-aiplatform.googleapis.com/v1"
}

func bedrockURL(region string) string {
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	return "https://bedrock-runtime." + region + domain
}

// The forms of places' names: they become part of a host's.
var (
	awsRegion      = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`) // us-gov-west-1
	googleLocation = regexp.MustCompile(`^([a-z]+(-[a-z]+)+[0-9]+|eu|us|global)$`)
)

// sameRegion refuses a model that has its region in its name, when another one is asked for it.
func (m *mapping) sameRegion(d *Deployment) {
	arn := strings.SplitN(d.Model, ":", 6) // arn:aws:bedrock:REGION:account:what
	if len(arn) == 6 && arn[0] == "arn" && awsRegion.MatchString(arn[3]) && awsRegion.MatchString(d.Region) && arn[3] != d.Region {
		m.rd.fault(m.from["model"], m.sub("model"), "is in region %s, and region says %s, which is what is asked", arn[3], d.Region)
	}
}

// onlyOf checks the keys that some providers have: what nobody reads would be a silent mistake, and what is missing
// would show with the first request.
func (m *mapping) onlyOf(d *Deployment) {
	for _, k := range [...]struct {
		key       string
		providers []string
		needed    []string
	}{
		{"vendor", []string{"compatible"}, nil},
		{"project", []string{"vertex"}, []string{"vertex"}},
		{"api_version", []string{"azure", "anthropic"}, nil},
		{"region", supportedProviders(), []string{"vertex", "bedrock"}},
	} {
		switch {
		case m.at[k.key] != nil && !slices.Contains(k.providers, d.Provider):
			m.rd.fault(m.from[k.key], m.sub(k.key), "is for provider %s, not %s", strings.Join(k.providers, " or "), d.Provider)
		case m.at[k.key] == nil && slices.Contains(k.needed, d.Provider):
			m.rd.fault(m.line, m.sub(k.key), "is missing: provider %s needs it", d.Provider)
		}
	}
}

// The two kinds of Azure's addresses. A base URL with neither gets the one that its api_version is for.
const (
	azureDeployments = "/openai/deployments"
	azureV1          = "/openai/v1"
)

// apiVersion checks the version's form, and that it goes with the address.
func (m *mapping) apiVersion(d *Deployment) {
	fault := func(format string, args ...any) {
		m.rd.fault(max(m.from["api_version"], m.line), m.sub("api_version"), format, args...)
	}
	dated := datedVersion(d.APIVersion)
	switch v := d.APIVersion; {
	case d.Provider == "anthropic" && v != "" && (!dated || strings.HasSuffix(v, preview)):
		fault("%s is not a version, like 2023-06-01", clip(v))
	case d.Provider != "azure":
	case v != "" && !dated && v != "v1" && v != "preview":
		fault("%s is not a version (allowed: v1, preview, or a date, like 2024-10-21 or 2025-04-01-preview)", clip(v))
	case strings.Contains(d.BaseURL, azureDeployments) && !dated:
		fault("must be a date, like 2024-10-21: base_url has %s in it", azureDeployments)
	case strings.HasSuffix(d.BaseURL, azureV1) && dated:
		fault("must be v1 or preview, or left out: base_url ends in %s", azureV1)
	}
}

const preview = "-preview"

// datedVersion reports whether a version is a date, of a preview perhaps.
func datedVersion(v string) bool {
	_, err := time.Parse(time.DateOnly, strings.TrimSuffix(v, preview))
	return err == nil
}

func parseProvider(to *string) func(string) error {
	return func(text string) error {
		if !slices.Contains(supportedProviders(), text) {
			cure := didYouMean(text, supportedProviders())
			if slices.Contains(vendors(), text) {
				cure = fmt.Sprintf(": it is a vendor: write provider: compatible, vendor: %s", text)
			}
			return fmt.Errorf("%s is not allowed%s (allowed: %s)", clip(text), cure, strings.Join(supportedProviders(), ", "))
		}
		*to = text
		return nil
	}
}
