package config

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/redisconn"
	"github.com/tidegate/tidegate/internal/tokens"
)

var destinationName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// checkShutdown warns of calls that a stop cuts although they are within their bound.
func (l *loader) checkShutdown(d destinationVars, index int, shutdown time.Duration) {
	if name := blockName(index, "TIMEOUT"); l.found.ok(name, "SHUTDOWN_TIMEOUT") && d.Timeout > shutdown {
		l.found.warn(name, "%s is longer than SHUTDOWN_TIMEOUT (%s): a worker that stops cuts calls that the API may have accepted, and they are made again; set SHUTDOWN_TIMEOUT to %s or more",
			d.Timeout, shutdown, d.Timeout)
	}
}

// readDestination reads and checks one block. global supplies the breaker's
// values that the block does not override.
func (l *loader) readDestination(index int, global breakerVars) destinationVars {
	prefix := blockName(index, "")
	d := destinationVars{Breaker: global}
	l.read(&d, prefix, true)
	l.read(&d.Breaker, prefix+"CIRCUIT_BREAKER_", false)

	if name := prefix + "NAME"; l.found.ok(name) && !destinationName.MatchString(d.Name) {
		fix := "use 1 to 63 lower-case letters, digits and hyphens, not starting with a hyphen"
		if lower := strings.ToLower(d.Name); destinationName.MatchString(lower) {
			fix = "write it in lower case: " + lower
		}
		l.found.fail(name, fix, "%s is not a name for a destination", quote(d.Name))
	}
	if name := prefix + "NAME"; l.found.ok(name) && store.System(d.Name) {
		l.found.fail(name, "give this destination another name", "%s is reserved for Tidegate itself", quote(d.Name))
	}
	if name := prefix + "URL"; l.found.ok(name) {
		if problem, fix := checkURL(string(d.URL), "https://api.example.com/v1/posts"); problem != "" {
			if problem == holdsUser {
				fix = "take it out and set the AUTH_TOKEN of this destination"
			}
			l.found.fail(name, fix, "%s", problem)
		}
	}
	d.Method = strings.ToUpper(d.Method)
	if name := prefix + "METHOD"; l.found.ok(name) && !validToken(d.Method) {
		l.found.fail(name, "use one such as POST, PUT or PATCH", "%s is not an HTTP method", quote(d.Method))
	}
	if name := prefix + "AUTH_TOKEN"; l.found.ok(name) && d.AuthToken != "" {
		l.checkToken(name, d.AuthToken.Reveal())
	}
	if name := prefix + "AUTH_TOKENS_FILE"; l.found.ok(name) && d.AuthTokensFile != "" {
		l.checkTokensFile(name, d.AuthTokensFile)
	}
	l.checkRate(d, prefix)
	l.checkCallback(d, prefix)
	for _, status := range d.PermanentStatus {
		if slices.Contains(d.RateLimitedStatus, status) && l.found.ok(prefix+"RATE_LIMITED_STATUS", prefix+"PERMANENT_STATUS") {
			l.found.fail(prefix+"RATE_LIMITED_STATUS", "take it out of one of the two; set "+prefix+"PERMANENT_STATUS without it to mean rate limited",
				"%d is also in %sPERMANENT_STATUS (%s)", status, prefix, l.env.source(prefix+"PERMANENT_STATUS"))
		}
	}
	l.checkBreaker(d.Breaker, prefix+"CIRCUIT_BREAKER_", "CIRCUIT_BREAKER_")
	l.warnDestination(d, prefix)
	return d
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

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool { return httpguts.ValidHeaderFieldName(s) }

func (l *loader) checkToken(name, token string) {
	if problem, fix := tokens.Check(token); problem != "" {
		l.found.fail(name, fix, "%s", problem)
	}
}

// checkBreaker checks across a breaker's values. Values that a destination
// inherits were checked where they come from.
func (l *loader) checkBreaker(b breakerVars, prefix, global string) {
	cooldown, most := prefix+"COOLDOWN_MS", prefix+"MAX_COOLDOWN_MS"
	if !l.found.ok(cooldown, most, global+"COOLDOWN_MS", global+"MAX_COOLDOWN_MS") || b.MaxCooldown >= b.Cooldown {
		return
	}
	name := cooldown
	if l.env.set(most) {
		name = most
	}
	if name == most {
		l.found.fail(name, "raise it, or lower "+cooldown, "%d is less than the first cooldown, %d", b.MaxCooldown, b.Cooldown)
		return
	}
	l.found.fail(name, "lower it, or raise "+most, "%d is more than the longest cooldown, %d", b.Cooldown, b.MaxCooldown)
}

func (l *loader) checkRedis(r redisVars) {
	if !l.found.ok("REDIS_URL") {
		return
	}
	target, err := redisconn.Parse(r.URL.Reveal())
	if err != nil {
		problem, fix := err.Error(), ""
		if bad, ok := errors.AsType[*redisconn.URLError](err); ok {
			problem, fix = bad.Problem, bad.Fix
		}
		l.found.fail("REDIS_URL", fix, "%s", problem)
		return
	}
	if target.Kind == redisconn.Embedded {
		l.found.warn("REDIS_URL", "is the embedded Redis: jobs live in this process only and end with it")
	}
}

// warnDestination warns of values that are legal and probably not meant.
func (l *loader) warnDestination(d destinationVars, prefix string) {
	if probe := d.Breaker.ProbeTimeout.duration(); probe > 0 && probe <= d.Timeout &&
		l.found.ok(prefix+"TIMEOUT", prefix+"CIRCUIT_BREAKER_PROBE_TIMEOUT_MS", "CIRCUIT_BREAKER_PROBE_TIMEOUT_MS") {
		l.found.warn(prefix+"TIMEOUT", "is not shorter than the probe's lease (PROBE_TIMEOUT_MS, %d): a slow probe may be joined by a second one",
			d.Breaker.ProbeTimeout)
	}
	if d.Rate != "" && !d.Breaker.Enabled {
		l.found.warn(prefix+"RATE", "is not kept, because the circuit breaker of this destination is off (CIRCUIT_BREAKER_ENABLED): the breaker is what keeps it")
	}
	if u, err := url.Parse(string(d.URL)); err == nil && u.Scheme == "http" && (d.AuthToken != "" || d.AuthTokensFile != "") && !loopback(u.Hostname()) {
		l.found.warn(prefix+"URL", "is http: the token of this destination is sent unencrypted; use https if the API has it")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
