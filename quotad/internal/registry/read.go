package registry

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the zones must be the same on every machine, also on one without a zone database
)

// The defaults of what org.yaml leaves out.
const (
	defaultConnect     = Millis(2_000)
	defaultFirstToken  = Millis(30_000)
	defaultIdle        = Millis(30_000)
	defaultTotal       = Millis(600_000)
	defaultMaxAttempts = 3
	defaultMaxOutput   = 1_024
	defaultLifetime    = Millis(24 * 3_600_000)
)

// dataClasses are the classes of data, lowest first.
func dataClasses() []string { return []string{"public", "internal", "confidential", "restricted"} }

// read reads the spec of one kind. What is wrong becomes faults; what is right is in the value all the same, so that
// other objects can be checked against it.
func (rd *reader) read(kind string, m *mapping) value {
	var v value
	switch kind {
	case KindTeam:
		v = m.readTeam()
	case KindKey:
		v = m.readKey()
	case KindAlias:
		v = m.readAlias()
	case KindDeployment:
		v = m.readDeployment()
	case KindPrice:
		v = m.readPrices()
	case KindCredential:
		v = m.readCredential()
	case KindOrg:
		v = m.readOrg()
	case KindBusinessUnit:
		v = m.readBusinessUnit()
	case KindFX:
		return m.readFX()
	case KindSidecar:
		v = m.readSidecar()
	case KindCurrency:
		v = m.readCurrency()
	default:
		panic("BUG: no reader for kind " + kind)
	}
	m.close()
	return v
}

func (m *mapping) readTeam() *Team {
	t := &Team{Budget: m.budget(), Limits: m.limits()}
	m.id("business_unit", &t.BusinessUnit)
	m.timezone(&t.Timezone)
	m.id("account", &t.Account)
	m.integer("weight", &t.Weight, 1, 1, weightMax)
	m.choice("priority", &t.Priority, "standard", Classes()...)
	t.RunBudget = m.runBudget()
	m.with(m.take("request_cap"), "request_cap", parseNano(&t.RequestCap, 1, moneyMax))
	t.EndUserLimits = m.endUserLimits()
	m.choice("failed_attempts", &t.FailedAttempts, "platform", "platform", "team")
	if n := m.take("alerts"); n != nil {
		if a := m.rd.mapping(n, m.sub("alerts")); a != nil {
			t.Alerts = &Alerts{}
			a.with(a.need("webhook"), "webhook", parseURL(&t.Alerts.Webhook, true))
			a.close()
		}
	}
	return t
}

func (m *mapping) readKey() *Key {
	m.forbid("a secret never stands here: give secret_sha256, or run `quotad key create`", "secret", "key", "value")
	k := &Key{}
	m.needID("team", &k.Team)
	m.with(m.take("app"), "app", parseText(&k.App))
	m.with(m.take("secret_sha256"), "secret_sha256", parseHash(&k.SecretSHA256))
	m.boolean("revoked", &k.Revoked, false)
	k.Aliases = m.list("aliases", "leave it out for all aliases", parseAlias)
	k.Budget = m.budget()
	k.Limits = m.limits()
	m.choice("max_data_class", &k.MaxDataClass, "", dataClasses()...)
	m.choice("default_data_class", &k.DefaultDataClass, "", dataClasses()...)
	m.with(m.take("expires"), "expires", parseMoment(&k.Expires))
	m.choice("outage", &k.Outage, "share", "share", "open", "closed")
	classes := dataClasses()
	if k.MaxDataClass != "" && slices.Index(classes, k.DefaultDataClass) > slices.Index(classes, k.MaxDataClass) {
		path := m.sub("default_data_class")
		m.rd.fault(m.rd.lineOf(path), path, "%q is above max_data_class %q", k.DefaultDataClass, k.MaxDataClass)
	}
	return k
}

func (m *mapping) readAlias() *Alias {
	a := &Alias{Needs: m.list("needs", "", parseID)}
	a.Targets = m.targets()
	a.Timeouts = m.timeouts()
	m.integer("max_attempts", &a.MaxAttempts, defaultMaxAttempts, 1, attemptsMax)
	m.integer("default_max_output", &a.DefaultMaxOutput, defaultMaxOutput, 1, tokensMax)
	m.choice("reserve", &a.Reserve, "p95", "p95", "cap")
	a.AllowDropped = m.list("allow_dropped", "", parseDroppable)
	m.laterAliasKeys()
	return a
}

// laterAliasKeys are the keys of features that this version does not have.
func (m *mapping) laterAliasKeys() {
	var word string
	var number int64
	var wait Millis
	parts := func(key string, read func(p *mapping)) {
		m.unsupported(key, func() {
			if p := m.rd.mapping(m.take(key), m.sub(key)); p != nil {
				read(p)
				p.close()
			}
		})
	}
	m.unsupported("fallback_alias", func() { m.id("fallback_alias", &word) })
	m.unsupported("hedge_after", func() { m.duration("hedge_after", &wait, 0, 1, defaultTotal) })
	m.unsupported("continuation", func() { m.choice("continuation", &word, "", "same_model") })
	parts("split", func(p *mapping) {
		p.needID("candidate", &word)
		p.integer("percent", &number, 0, 0, 100)
		p.choice("by", &word, "user", "user")
	})
	parts("shadow", func(p *mapping) {
		p.needID("deployment", &word)
		p.integer("percent", &number, 0, 0, 100)
	})
	parts("canary", func(p *mapping) {
		p.needID("deployment", &word)
		p.list("steps", "name at least one", func(to *string) func(string) error {
			return func(text string) error {
				*to = text
				return parseInteger(&number, 1, 100)(text)
			}
		})
	})
	m.unsupported("cache", func() { m.take("cache") })
	m.unsupported("guard", func() { m.take("guard") })
}

func (m *mapping) targets() []Target {
	n := m.need("targets")
	if n == nil {
		return nil
	}
	path := m.sub("targets")
	before := len(m.rd.faults)
	nodes := m.rd.items(n, path, listMax)
	if len(nodes) == 0 && len(m.rd.faults) == before {
		m.rd.fault(n.Line, path, "is empty: an alias needs at least one target")
	}
	var out []Target
	weights := map[int64]int64{}
	for i, c := range nodes {
		var t Target
		if tm := m.rd.mapping(c, fmt.Sprintf("%s[%d]", path, i)); tm != nil {
			tm.needID("deployment", &t.Deployment)
			tm.integer("priority", &t.Priority, 1, 0, priorityMax)
			tm.integer("weight", &t.Weight, 1, 0, weightMax)
			tm.close()
		}
		same := func(o Target) bool { return o.Deployment == t.Deployment }
		if t.Deployment != "" && slices.ContainsFunc(out, same) {
			m.rd.fault(c.Line, fmt.Sprintf("%s[%d].deployment", path, i), "%q is a target twice", t.Deployment)
		}
		weights[t.Priority] += t.Weight
		out = append(out, t)
	}
	if len(m.rd.faults) > before {
		return out
	}
	for i, t := range out {
		if weights[t.Priority] == 0 {
			m.rd.fault(nodes[i].Line, fmt.Sprintf("%s[%d].weight", path, i),
				"all targets of priority %d have weight 0: one must have more", t.Priority)
			weights[t.Priority] = 1
		}
	}
	return out
}

func (m *mapping) timeouts() Timeouts {
	t := Timeouts{defaultConnect, defaultFirstToken, defaultIdle, defaultTotal}
	tm := m.rd.mapping(m.take("timeouts"), m.sub("timeouts"))
	if tm == nil {
		return t
	}
	const hour, day = Millis(3_600_000), Millis(86_400_000)
	tm.duration("total", &t.Total, defaultTotal, 1, day)
	// A short total makes the other defaults shorter too; only a stated one can contradict it.
	tm.duration("connect", &t.Connect, min(defaultConnect, t.Total), 1, hour)
	tm.duration("first_token", &t.FirstToken, min(defaultFirstToken, t.Total), 1, day)
	tm.duration("idle", &t.Idle, min(defaultIdle, t.Total), 1, day)
	tm.close()
	for _, part := range []struct {
		key string
		is  Millis
	}{{"connect", t.Connect}, {"first_token", t.FirstToken}, {"idle", t.Idle}} {
		if part.is > t.Total {
			path := tm.sub(part.key)
			m.rd.fault(m.rd.lineOf(path), path, "is longer than total, %s", formatMillis(int64(t.Total)))
		}
	}
	return t
}

func (m *mapping) readCredential() *Credential {
	m.forbid("a secret never stands here: run `quotad credential set NAME < FILE`",
		"value", "secret", "key", "api_key", "token")
	c := &Credential{}
	m.with(m.need("provider"), "provider", parseProvider(&c.Provider))
	return c
}

func (m *mapping) readBusinessUnit() *BusinessUnit {
	b := &BusinessUnit{Budget: m.budget(), Limits: m.limits()}
	m.timezone(&b.Timezone)
	return b
}

func (m *mapping) readSidecar() *Sidecar {
	s := &Sidecar{}
	if m.need("teams") == nil {
		return s
	}
	s.Teams = m.list("teams", `name at least one team, or "*" for all`, func(to *string) func(string) error {
		return func(text string) error {
			if text == "*" {
				*to = text
				return nil
			}
			return parseID(to)(text)
		}
	})
	if len(s.Teams) > 1 && slices.Contains(s.Teams, "*") {
		path := m.sub("teams")
		m.rd.fault(m.rd.lineOf(path), path, `"*" means all teams and must stand alone`)
	}
	return s
}

func (m *mapping) timezone(to *string) {
	m.with(m.take("timezone"), "timezone", func(text string) error {
		// "Local" would be another zone on every machine.
		if _, err := time.LoadLocation(text); err != nil || text == "" || text == "Local" {
			return fmt.Errorf("%s is not a known time zone, like Asia/Kolkata", clip(text))
		}
		if text != "UTC" {
			*to = text
		}
		return nil
	})
}

func parseDataClass(to *string) func(string) error {
	return func(text string) error {
		if !slices.Contains(dataClasses(), text) {
			return fmt.Errorf("%s is not allowed (allowed: %s)", clip(text), strings.Join(dataClasses(), ", "))
		}
		*to = text
		return nil
	}
}

// parseHash never repeats the text: someone may have put the secret itself there.
func parseHash(to *string) func(string) error {
	return func(text string) error {
		text = strings.ToLower(text)
		if b, err := hex.DecodeString(text); err != nil || len(b) != 32 {
			return errors.New("must be the SHA-256 of the secret, 64 hex digits (not the secret itself)")
		}
		*to = text
		return nil
	}
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// parseURL never repeats the text: a URL may carry a secret.
func parseURL(to *string, query bool) func(string) error {
	return func(text string) error {
		u, err := url.Parse(text)
		switch {
		case err != nil || len(text) > urlBytesMax || u.Opaque != "":
			return errors.New("is not a URL, like https://api.example.com/v1")
		case u.Scheme != "http" && u.Scheme != "https":
			return errors.New("must begin with http:// or https://")
		case u.Hostname() == "":
			return errors.New("has no host")
		case u.Port() != "" && !isPort(u.Port()):
			return errors.New("has a port that is not 1 to 65535")
		case u.User != nil:
			return errors.New("must not carry a user or password")
		case !query && (u.RawQuery != "" || u.ForceQuery):
			return errors.New("must not have a query (?)")
		case strings.Contains(text, "#"):
			return errors.New("must not have a fragment (#)")
		}
		*to = text
		if !query {
			*to = strings.TrimRight(text, "/")
		}
		return nil
	}
}
