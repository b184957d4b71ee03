package breakerhttp

import (
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
)

// Option changes how a [Transport] works.
type Option func(*Transport)

// Key sets the key of each request under the destination: the user, the tenant, or another
// owner of a limit. It must be a name and not the token itself, since it stands in Redis, in
// errors and in events; see [breaker.ParseName] for its form. "" is the destination's own
// breaker. Without this option there are no keys.
func Key(of func(*http.Request) string) Option {
	return func(t *Transport) { t.key = of }
}

// Cost sets what each request takes of each window of the declared limits; see [breaker.Breaker.Cost]. Without it: 1.
func Cost(of func(*http.Request) int) Option {
	return func(t *Transport) { t.cost = of }
}

// Outcome decides what a response means, where status and headers do not show it: it gets the outcome that they show,
// and returns that or another one. It must neither read nor close the body.
func Outcome(of func(resp *http.Response, usual breaker.Outcome) breaker.Outcome) Option {
	return func(t *Transport) { t.outcome = of }
}

// RateLimitedStatus says which statuses mean that the API refused the request
// because of its limit. Without it: 429. A 403 of them is a refusal because of the limit
// only if its headers say so (see [hint.LimitReached]); without that it is an answer like
// any other. Any 5xx with a valid Retry-After is a refusal too, if [Hints] trusts that header.
func RateLimitedStatus(statuses ...int) Option {
	statuses = slices.Clone(statuses)
	return func(t *Transport) {
		t.limited = func(resp *http.Response) bool {
			now := time.Now()
			return hint.RetryLater(resp.StatusCode, resp.Header, now, t.dialects...) || slices.Contains(statuses, resp.StatusCode) &&
				(resp.StatusCode != http.StatusForbidden || hint.LimitReached(resp.Header, now, t.dialects...))
		}
	}
}

// RateLimitedIf decides which answers mean that the API refused the request because
// of its limit, where the status alone does not show it. It must neither read nor
// close the body. The last of RateLimitedIf and [RateLimitedStatus] counts; nil is ignored.
func RateLimitedIf(limited func(*http.Response) bool) Option {
	return func(t *Transport) {
		if limited != nil {
			t.limited = limited
		}
	}
}

// Hints sets the trusted headers, in order of precedence; none at all if it is called without
// any. Without this option: [hint.Default].
func Hints(dialects ...hint.Dialect) Option {
	dialects = slices.Clone(dialects)
	return func(t *Transport) { t.dialects = dialects }
}

// Wait lets requests wait for the breaker, each for limit at most, instead of being refused
// at once; 0 means as long as the request's context lasts, and less that they do not wait. Requests under one key are served
// in order. A request is refused at once if waiting is in vain: the breaker is OPEN, or the
// configured rate permits no call, for longer than the request may wait.
func Wait(limit time.Duration) Option {
	return func(t *Transport) { t.waits, t.patience = limit >= 0, max(0, limit) }
}

// OpenResponse answers a request that the breaker refuses with a 503 of our own instead of an
// error: with Retry-After in whole seconds, rounded up, and X-Circuit-Breaker, the name of
// the breaker that refused. It is for callers that handle such an answer but not an error:
// reverse proxies, and clients that retry by themselves. If the breaker could not be asked,
// or was closed, there still is an error.
func OpenResponse() Option {
	return func(t *Transport) { t.answers = true }
}

// Logger logs a warning for an outcome that did not reach Redis; nil discards, as without
// this option.
func Logger(log *slog.Logger) Option {
	return func(t *Transport) {
		if log != nil {
			t.log = log
		}
	}
}
