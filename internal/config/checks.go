package config

import (
	"cmp"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/internal/call/keyurl"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/internal/dest/presets"
	"github.com/tidegate/tidegate/internal/dest/webhook"
)

// probeMargin is added to a destination's timeout for the lease of its probe:
// time to report what the call came to.
const probeMargin = 5 * time.Second

// readDestinations reads and checks the blocks, and completes them with what cfg has for all.
func (l *loader) readDestinations(blocks []int, cfg *Config, applied map[int]*presets.Preset) []Destination {
	out := make([]Destination, len(blocks))
	for i, index := range blocks {
		prefix := blockName(index, "")
		for v := range named("CIRCUIT_BREAKER_", rowsOf(reflect.TypeFor[Breaker]())) {
			if own := prefix + v.name; !l.env.set(own) && l.env.set(v.name) && l.found.ok(v.name) {
				l.env.values[own], l.env.from[own] = l.env.values[v.name], sourceDefault
			}
		}
		l.read(group{&out[i], prefix})
		addPresetHeaders(&out[i], applied[index])
		l.checkDestination(&out[i], prefix, cfg)
	}
	return out
}

func (l *loader) checkDestination(d *Destination, prefix string, cfg *Config) {
	d.Method = strings.ToUpper(d.Method)
	d.AuthTokenFile = l.env.file(prefix + "AUTH_TOKEN")
	if name := prefix + "AUTH_TOKENS_FILE"; l.found.ok(name) && d.AuthTokensFile != "" {
		l.checkTokensFile(name, d.AuthTokensFile)
	}
	if name := prefix + "ANSWERS_FILE"; l.found.ok(name) && d.AnswersFile != "" {
		l.checkAnswersFile(name, d.AnswersFile)
	}
	l.checkPool(*d, prefix)
	l.checkOAuth(*d, prefix, cfg.Credentials.Key)
	l.checkRequests(*d, prefix)
	l.checkRate(d, prefix)
	l.checkLimits(d, prefix)
	l.checkRetry(d, prefix, cfg.Retry)
	l.checkCallback(*d, prefix, len(cfg.CallbackHosts) > 0)
	for _, status := range d.PermanentStatus {
		if slices.Contains(d.RateLimitedStatus, status) && l.found.ok(prefix+"RATE_LIMITED_STATUS", prefix+"PERMANENT_STATUS") {
			l.found.fail(prefix+"RATE_LIMITED_STATUS", "take it out of one of the two; set "+prefix+"PERMANENT_STATUS without it to mean rate limited",
				"%d is also in %sPERMANENT_STATUS (%s)", status, prefix, l.env.source(prefix+"PERMANENT_STATUS"))
		}
	}
	if name := prefix + "HEADERS"; cfg.API.PublicURL == "" && l.found.ok(name, "PUBLIC_URL") {
		for header, values := range d.Headers {
			if slices.ContainsFunc(values, httpjob.UsesCallback) {
				l.found.fail("PUBLIC_URL", "set it to the address at which the API reaches tidegate api, such as https://tidegate.example.com",
					"is not set, and the header %s of %s holds {{ callback }}", header, name)
			}
		}
	}
	if d.GatewayStrict && d.GatewayWait == 0 && l.found.ok(prefix+"GATEWAY_STRICT", prefix+"GATEWAY_WAIT") {
		l.found.fail(prefix+"GATEWAY_STRICT", "set "+prefix+"GATEWAY_WAIT too, such as 30s", "is set without a wait")
	}
	l.checkBreaker(d.Breaker, prefix+"CIRCUIT_BREAKER_", "CIRCUIT_BREAKER_")
	l.warnDestination(*d, prefix, cfg.ShutdownTimeout)
	d.Breaker.ProbeTimeout = cmp.Or(d.Breaker.ProbeTimeout, Millis(d.Timeout+probeMargin))
}

// holdsUser is the problem of a URL with credentials before its host.
const holdsUser = "holds a user or password"

// checkURL returns what is wrong with a URL that is called, never the URL: people
// put credentials into it. like is a URL as it should be.
func checkURL(raw, like string) (problem, fix string) {
	u, err := url.Parse(raw)
	form := "write it like " + like
	switch {
	case err != nil:
		return "is not a URL", form + ", with special characters percent-encoded"
	case u.Scheme != "http" && u.Scheme != "https":
		return "does not start with http:// or https://", form
	case u.Hostname() == "":
		return "has no host", form
	case u.User != nil:
		return holdsUser, "take it out"
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return "has a fragment (#…), which is never sent", "take it out"
	}
	return "", ""
}

// checkAddress is checkURL, and refuses what a copied URL may have at its ends.
func checkAddress(raw, like string) (problem, fix string) {
	if strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "holds a space, a line break or another control character", "give the URL alone, on one line"
	}
	return checkURL(raw, like)
}

// checkBreaker checks across a breaker's values. Values that a destination
// inherits were checked where they come from.
func (l *loader) checkBreaker(b Breaker, prefix, global string) {
	cooldown, most := prefix+"COOLDOWN_MS", prefix+"MAX_COOLDOWN_MS"
	if !l.found.ok(cooldown, most, global+"COOLDOWN_MS", global+"MAX_COOLDOWN_MS") || b.MaxCooldown >= b.Cooldown {
		return
	}
	if l.env.source(most) != sourceDefault {
		l.found.fail(most, "raise it, or lower "+cooldown, "%d is less than the first cooldown, %d", b.MaxCooldown.count(), b.Cooldown.count())
		return
	}
	l.found.fail(cooldown, "lower it, or raise "+most, "%d is more than the longest cooldown, %d", b.Cooldown.count(), b.MaxCooldown.count())
}

// checkRate makes the burst part of the windows that have none of their own.
func (l *loader) checkRate(d *Destination, prefix string) {
	if len(d.Rate) == 0 {
		if d.Burst != 0 && l.found.ok(prefix+"RATE", prefix+"BURST") {
			l.found.fail(prefix+"BURST", "set "+prefix+"RATE too, or take it out", "is set without a rate")
		}
		return
	}
	d.Burst = max(1, d.Burst)
	rates := slices.Clone(d.Rate)
	for i, r := range rates {
		if r.Zone != "" || r.Burst != 0 {
			continue
		}
		rates[i].Burst = d.Burst
		if d.Burst > r.Calls && l.found.ok(prefix+"RATE", prefix+"BURST") {
			l.found.warn(prefix+"BURST", "is more than the rate, %s: after a pause up to %d calls are made within %s", r, d.Burst+r.Calls, FormatDuration(r.Per))
		}
	}
	d.Rate = rates
}

// checkTokensFile reads a file of tokens as a worker will. Its errors name keys and
// never a token.
func (l *loader) checkTokensFile(name, path string) {
	all, info, err := tokens.Read(path)
	if err != nil {
		l.failFile(name, path, err)
		return
	}
	if len(all) == 0 {
		l.found.warn(name, "file %q holds no token: every job with a key fails until it does", path)
	}
	l.warnExposed(name, path, info)
}

// warnExposed warns of a file with secrets that others can read.
func (l *loader) warnExposed(name, path string, info fs.FileInfo) {
	if tokens.Exposed(info) {
		l.found.warn(name, "file %q can be read by others (mode %04o): chmod 600 it, or set defaultMode: 0400 where it is a Secret of Kubernetes", path, info.Mode().Perm())
	}
}

// keyByPool is the KEY_BY of a destination with a pool of tokens.
const keyByPool = "pool"

// Pooled reports whether the destination's calls choose among the tokens of a pool.
func (d *Destination) Pooled() bool { return d.KeyBy == keyByPool }

// checkPool checks a pool of tokens, and that nothing else chooses the tokens or the keys.
func (l *loader) checkPool(d Destination, prefix string) {
	file, keyBy := prefix+"AUTH_POOL_FILE", prefix+"KEY_BY"
	switch {
	case !l.found.ok(file, keyBy):
		return
	case d.AuthPoolFile == "" && d.Pooled() && !l.uncalled:
		l.found.fail(file, "set it to a file with a JSON object of names and tokens, or take "+keyBy+" out", "is not set, and %s is pool", keyBy)
	case d.AuthPoolFile != "" && d.KeyBy == "":
		l.found.fail(keyBy, "set it to pool", "is not set, and %s is", file)
	case d.AuthPoolFile != "" && !d.Pooled():
		l.found.fail(keyBy, "set it to pool, or take "+file+" out", "is %s, and %s is set, whose tokens are the keys", quote(d.KeyBy), file)
	}
	if d.AuthPoolFile == "" {
		return
	}
	for _, name := range []string{"AUTH_TOKEN", "AUTH_TOKENS_FILE", "OAUTH_TOKEN_URL"} {
		if l.env.set(prefix + name) {
			l.found.fail(prefix+name, "take out one of the two", "is set, and %s too", file)
		}
	}
	if enabled := prefix + "CIRCUIT_BREAKER_ENABLED"; !d.Breaker.Enabled && l.found.ok(enabled) {
		l.found.fail(enabled, "take it out", "is false, and %s is set: the circuit breaker is what chooses the token", file)
	}
	content, info, err := tokens.ReadFile(d.AuthPoolFile)
	if err == nil {
		_, err = tokens.ParsePool(content)
	}
	if err != nil {
		l.failFile(file, d.AuthPoolFile, err)
		return
	}
	l.warnExposed(file, d.AuthPoolFile, info)
}

// checkOAuth checks what a destination needs for tokens of OAuth 2.0.
func (l *loader) checkOAuth(d Destination, prefix string, key Secret) {
	tokenURL, file := prefix+"OAUTH_TOKEN_URL", prefix+"OAUTH_REFRESH_TOKENS_FILE"
	if d.OAuthTokenURL == "" {
		for _, name := range []string{prefix + "OAUTH_CLIENT_ID", prefix + "OAUTH_CLIENT_SECRET", prefix + "OAUTH_SCOPES", file} {
			if l.env.set(name) && l.found.ok(name, tokenURL) {
				l.found.fail(name, "set "+tokenURL+" too, or take it out", "is set without a token endpoint")
			}
		}
		return
	}
	for _, name := range []string{"AUTH_TOKEN", "AUTH_TOKENS_FILE"} {
		if l.env.set(prefix+name) && l.found.ok(tokenURL) {
			l.found.fail(prefix+name, "take out one of the two", "is set, and %s too", tokenURL)
		}
	}
	if id := prefix + "OAUTH_CLIENT_ID"; d.OAuthClientID == "" && l.found.ok(id) {
		l.found.fail(id, "set it to the id of the client that the API has registered", "is not set, and %s is", tokenURL)
	}
	if secret := prefix + "OAUTH_CLIENT_SECRET"; d.OAuthClientSecret == "" && d.OAuthRefreshTokensFile == "" && l.found.ok(secret, file) {
		l.found.fail(secret, "set it, or "+file, "is not set, and client credentials need it")
	}
	if d.OAuthRefreshTokensFile != "" && l.found.ok(file) {
		l.checkTokensFile(file, d.OAuthRefreshTokensFile)
	}
	if unencrypted(d.OAuthTokenURL) && l.found.ok(tokenURL) {
		l.found.warn(tokenURL, "is http: the secrets of this destination are sent unencrypted; use https")
	}
	switch {
	case key != "" || !l.found.ok("CREDENTIALS_KEY"):
	case d.OAuthRefreshTokensFile != "":
		l.found.warn("CREDENTIALS_KEY", "is not set: each worker renews the tokens of %s by itself, and if the token server rotates refresh tokens they are lost when a worker stops; set it to what `openssl rand -base64 32` prints", d.Name)
	default:
		l.found.warn("CREDENTIALS_KEY", "is not set: each worker fetches its own access tokens for %s; set it to what `openssl rand -base64 32` prints", d.Name)
	}
}

// checkRequests checks across the values that say how a call is made.
func (l *loader) checkRequests(d Destination, prefix string) {
	if d.KeyPattern == "" && strings.Contains(d.URL, keyurl.Place) && l.found.ok(prefix+"URL", prefix+"KEY_PATTERN") {
		l.found.fail(prefix+"KEY_PATTERN", "set it to a regular expression of the keys that may be in the URL, such as [a-z0-9-]{1,40}",
			"is not set, and %sURL holds %s", prefix, keyurl.Place)
	}
	if d.sendsBasic() && d.AuthToken != "" && !strings.Contains(d.AuthToken.Reveal(), ":") && l.found.ok(prefix+"AUTH_TOKEN") {
		l.found.fail(prefix+"AUTH_TOKEN", "write user:password, or user: without a password", "is not what %sAUTH_SCHEME Basic sends", prefix)
	}
	if u, err := url.Parse(keyurl.Hide(d.URL)); err == nil && d.AuthQuery != "" && u.Query().Has(d.AuthQuery) && l.found.ok(prefix+"URL") {
		l.found.fail(prefix+"AUTH_QUERY", "take the parameter out of one of them", "%s is in the query of %sURL too", quote(d.AuthQuery), prefix)
	}
	sent := d.AuthToken != "" || d.AuthTokensFile != "" || d.AuthPoolFile != "" || d.OAuthTokenURL != ""
	if sent && d.AuthQuery == "" && d.SignSecret != "" && strings.EqualFold(d.AuthHeader, d.SignHeader) && l.found.ok(prefix+"AUTH_HEADER", prefix+"SIGN_HEADER") {
		l.found.fail(prefix+"SIGN_HEADER", "name another header", "%s is that of %sAUTH_HEADER too", quote(d.SignHeader), prefix)
	}
	if name := prefix + "SIGN_HEADER"; d.SignSecret == "" && l.env.set(name) {
		l.found.warn(name, "is set, but %sSIGN_SECRET is not: nothing is signed", prefix)
	}
}

// checkAnswersFile reads a file of answer rules as a worker will.
func (l *loader) checkAnswersFile(name, path string) {
	content, _, err := tokens.ReadFile(path)
	if err == nil {
		var rules *answers.Rules
		if rules, err = answers.Parse(content); err == nil && rules.Len() == 0 {
			l.found.warn(name, "file %q holds no rule", path)
		}
	}
	if err != nil {
		l.failFile(name, path, err)
	}
}

// failFile reports what is wrong with a file.
func (l *loader) failFile(name, path string, err error) {
	problems, ok := errors.AsType[tokens.Errors](err)
	if !ok {
		problems = tokens.Errors{{What: err.Error()}}
	}
	for _, p := range problems {
		l.found.fail(name, p.Fix, "file %q: %s", path, p.What)
	}
}

// checkCallback checks where a destination's callbacks go, and what signs them.
func (l *loader) checkCallback(d Destination, prefix string, own bool) {
	url, secret := prefix+"CALLBACK_URL", prefix+"CALLBACK_SECRET"
	if !l.found.ok(url, secret) {
		return
	}
	secrets := d.CallbackSecrets()
	switch {
	case d.CallbackURL != "" && len(secrets) == 0:
		l.found.fail(secret, "set it to whsec_ and what `openssl rand -base64 32` prints",
			"is not set, and %s is: callbacks are signed, so that their receiver can verify the sender", url)
	case d.CallbackURL == "" && len(secrets) > 0 && !own:
		l.found.warn(secret, "is set, but %s is not: there are no callbacks to sign", url)
	case own && len(secrets) == 0 && !l.uncalled:
		l.found.warn(secret, "is not set, and CALLBACK_HOSTS is: the callbacks of this destination's jobs cannot be signed, and are not sent")
	}
	for _, s := range secrets {
		if _, err := webhook.ParseSecret(s.Reveal()); err != nil {
			l.found.fail(secret, "write whsec_ and what `openssl rand -base64 32` prints", "%s", err.Error())
			return
		}
	}
}

// warnDestination warns of values that are legal and probably not meant.
func (l *loader) warnDestination(d Destination, prefix string, shutdown time.Duration) {
	if name := prefix + "TIMEOUT"; l.found.ok(name, "SHUTDOWN_TIMEOUT") && d.Timeout > shutdown {
		l.found.warn(name, "%s is longer than SHUTDOWN_TIMEOUT (%s): a worker that stops cuts calls that the API may have accepted, and they are made again; set SHUTDOWN_TIMEOUT to %s or more",
			d.Timeout, shutdown, d.Timeout)
	}
	if probe := d.Breaker.ProbeTimeout; probe > 0 && time.Duration(probe) <= d.Timeout &&
		l.found.ok(prefix+"TIMEOUT", prefix+"CIRCUIT_BREAKER_PROBE_TIMEOUT_MS", "CIRCUIT_BREAKER_PROBE_TIMEOUT_MS") {
		l.found.warn(prefix+"TIMEOUT", "is not shorter than the probe's lease (PROBE_TIMEOUT_MS, %d): a slow probe may be joined by a second one", probe.count())
	}
	for name, set := range map[string]bool{"RATE": len(d.Rate) > 0, "KEY_RATE": len(d.KeyRate) > 0, "FLEET_CONCURRENCY": d.FleetConcurrency != 0, "KEY_CONCURRENCY": d.KeyConcurrency != 0} {
		if set && !d.Breaker.Enabled {
			l.found.warn(prefix+name, "is not kept, because the circuit breaker of this destination is off (CIRCUIT_BREAKER_ENABLED): the breaker is what keeps it")
		}
	}
	if d.FleetConcurrency != 0 && d.KeyConcurrency > d.FleetConcurrency && l.found.ok(prefix+"FLEET_CONCURRENCY", prefix+"KEY_CONCURRENCY") {
		l.found.warn(prefix+"KEY_CONCURRENCY", "is more than FLEET_CONCURRENCY, %d, which holds for all keys together: it limits nothing", d.FleetConcurrency)
	}
	l.warnReserve(d, prefix)
	if unencrypted(d.URL) && (d.AuthToken != "" || d.AuthTokensFile != "" || d.AuthPoolFile != "" || d.OAuthTokenURL != "") {
		l.found.warn(prefix+"URL", "is http: the token of this destination is sent unencrypted; use https if the API has it")
	}
}

// unencrypted reports whether a URL is http to another machine.
func unencrypted(raw string) bool {
	u, err := url.Parse(keyurl.Hide(raw))
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// warnEmbedded warns of a Redis that ends with the process.
func (l *loader) warnEmbedded(raw Secret) {
	if target, err := redisconn.Parse(raw.Reveal()); err == nil && target.Kind == redisconn.Embedded && l.found.ok("REDIS_URL") {
		l.found.warn("REDIS_URL", "is the embedded Redis: jobs live in this process only and end with it")
	}
}

// checkAlerts checks the variables of alerts and gives their URLs their final
// form.
func (l *loader) checkAlerts(a *Alerts) {
	l.checkSlackToken(*a)
	for _, receiver := range []struct {
		name, url string
		secret    Secret // that is sent there
	}{
		{"SLACK_WEBHOOK_URL", a.SlackWebhookURL.Reveal(), a.SlackWebhookURL},
		{"SLACK_API_URL", a.SlackAPIURL, a.SlackBotToken},
		{"PAGERDUTY_API_URL", a.PagerDutyAPIURL, a.PagerDutyRoutingKey},
	} {
		if receiver.secret != "" && l.found.ok(receiver.name) && unencrypted(receiver.url) {
			l.found.warn(receiver.name, "is http: what is sent there, a secret among it, is not encrypted; use https")
		}
	}
	if l.found.ok("SLACK_API_URL") {
		if strings.Contains(a.SlackAPIURL, "?") {
			l.found.fail("SLACK_API_URL", "take it out: names of methods are added to the address", "has a query (?…)")
		} else if !strings.HasSuffix(a.SlackAPIURL, "/") {
			a.SlackAPIURL += "/"
		}
	}
	if key := a.PagerDutyRoutingKey.Reveal(); key != "" && l.found.ok("PAGERDUTY_ROUTING_KEY") && !routingKey.MatchString(key) {
		l.found.warn("PAGERDUTY_ROUTING_KEY", "is not 32 letters and digits as the keys of PagerDuty are; "+
			"use the integration key of an Events API v2 integration")
	}
	l.warnNoReceiver(*a)
}

// routingKey is the form of PagerDuty's integration keys.
var routingKey = regexp.MustCompile(`^[A-Za-z0-9]{32}$`)

// slackTokens are the tokens of Slack that are not bot tokens, by their start.
var slackTokens = []struct{ prefix, kind string }{
	{"xoxp-", "is the token of a user"},
	{"xoxe.xoxp-", "is the token of a user"},
	{"xoxe-", "is a refresh token"},
	{"xoxa-", "is the token of a workspace app of old"},
	{"xapp-", "is an app-level token"},
	{"http", "looks like a URL"},
}

// checkSlackToken checks the bot token and what goes with it. Tokens of an unknown
// form are only warned of: Slack decides whether one works.
func (l *loader) checkSlackToken(a Alerts) {
	const name, channel = "SLACK_BOT_TOKEN", "SLACK_CHANNEL"
	token := a.SlackBotToken.Reveal()
	switch {
	case token != "" && a.SlackChannel == "" && l.found.ok(channel):
		l.found.fail(channel, "set it to the channel for alerts, such as #publishing", "is not set, but %s is", name)
	case token == "" && a.SlackChannel != "" && l.found.ok(name):
		fix := "set it to the bot token of your Slack app (xoxb-…), or take " + channel + " out"
		if a.SlackWebhookURL != "" {
			fix += ": a webhook posts to its own channel"
		}
		l.found.fail(name, fix, "is not set, but %s is", channel)
	}
	if token == "" || !l.found.ok(name) || strings.HasPrefix(token, "xoxb-") || strings.HasPrefix(token, "xoxe.xoxb-") {
		return
	}
	kind := "does not look like a bot token"
	for _, t := range slackTokens {
		if strings.HasPrefix(token, t.prefix) {
			kind = t.kind
			break
		}
	}
	l.found.warn(name, "%s; alerts need a bot token, which starts with xoxb-: "+
		"the Bot User OAuth Token under OAuth & Permissions of your Slack app", kind)
}

// warnNoReceiver warns of alerts that are configured without a receiver.
func (l *loader) warnNoReceiver(alerts Alerts) {
	const slack, pagerDuty = "SLACK_BOT_TOKEN and SLACK_CHANNEL, or SLACK_WEBHOOK_URL", "PAGERDUTY_ROUTING_KEY"
	if !l.found.ok("SLACK_BOT_TOKEN", "SLACK_CHANNEL", "SLACK_WEBHOOK_URL", "PAGERDUTY_ROUTING_KEY") {
		return
	}
	if alerts.OncallMention != "" && alerts.PagerDutyRoutingKey != "" && !alerts.slack() {
		l.found.warn("ALERT_ONCALL_MENTION", "is set, but no message of Slack can mention anyone; set %s", slack)
	}
	if alerts.Enabled() {
		return
	}
	for _, bound := range []struct {
		name string
		on   bool
	}{
		{"ALERT_ONCALL_MENTION", alerts.OncallMention != ""},
		{"ALERT_OPEN_TOO_LONG", alerts.OpenTooLong > 0},
	} {
		if bound.on && l.env.set(bound.name) {
			l.found.warn(bound.name, "is set, but alerts have no receiver; set %s, or %s", slack, pagerDuty)
		}
	}
}

// checkPublicURL checks the base of links and takes the slash from its end.
func (l *loader) checkPublicURL(a *API) {
	const name = "PUBLIC_URL"
	if l.found.ok(name) && strings.Contains(a.PublicURL, "?") {
		l.found.fail(name, "take it out: paths are added to the address", "has a query (?…)")
	}
	a.PublicURL = strings.TrimRight(a.PublicURL, "/")
}
