package httpdest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/call/keyurl"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/jobs"
)

// Options describe an HTTP destination.
type Options struct {
	// URL that calls go to; a job's path and query are appended. Required, absolute, http or https. It may hold
	// {key}, which the job's key replaces: in the host (except at its end), in the path and in the query. KeyPattern
	// is required then.
	URL string
	// KeyPattern is a regular expression that keys must match as a whole; empty: any. A job
	// with another key fails without a call, and so does one without a key if URL holds {key}.
	KeyPattern string
	// Method of calls for jobs that choose none. Default POST.
	Method string
	// AuthToken, unless empty, is sent as "Authorization: Bearer …". With Tokens it is for jobs without a key. It is
	// removed from stored responses and errors. So are the tokens of Tokens, SignSecret, the values of Header and of
	// URL's parameters from 6 bytes on, and long segments of URL's path. Each is found as it is, escaped, and in
	// base64.
	AuthToken string
	// AuthTokenFile, unless empty, is a file with the token, in place of AuthToken. It is read
	// again when it changes.
	AuthTokenFile string
	// OnToken, if set, gets the secret parts of each token of AuthTokenFile before the token is used, to keep them
	// out of logs.
	OnToken func(secrets ...string)
	// AuthHeader is the header that tokens are sent in. Default Authorization.
	AuthHeader string
	// AuthScheme is written before a token in AuthHeader. Default Bearer. Basic: a token is
	// user:password and sent in base64. none: a token is sent alone.
	AuthScheme string
	// AuthQuery, unless empty, is the parameter of the query that tokens are sent in, in place
	// of a header.
	AuthQuery string
	// CredentialsKey, unless empty, is a secret that all workers share. The breaker keeps 16 bits of an HMAC of
	// refused credentials under this key, in place of a plain hash, so that a worker that starts with other
	// credentials can end the wait of their jobs. Without it the breaker keeps no bits for AuthScheme Basic.
	CredentialsKey string
	// SignSecret, unless empty, signs the body of each call with HMAC-SHA256.
	SignSecret string
	// SignHeader is the header of the signature, in hexadecimal. Default X-Signature-256.
	SignHeader string
	// Tokens, unless nil, gives jobs with a key the token of that key; OpenTokens
	// reads them from a file. A job whose key has none fails without a call.
	Tokens Tokens
	// TokenSource, unless nil, gives every call its token, in place of AuthToken and Tokens.
	TokenSource TokenSource
	// Header is sent with every call; a job that sets one of them fails without a call. {{ callback }} in a value is the
	// URL at which the API reports the result of the job.
	// Host and Idempotency-Key are refused.
	Header http.Header
	// RateLimitedStatus are the statuses that mean "rate limited". Default 429. A 5xx with a valid Retry-After is
	// rate limited too, if hint.RetryAfter is among Hints and the status is not permanent. A 403 in this list counts
	// only if its headers report a limit (see hint.LimitReached) or its body names a rate limit that is reached;
	// otherwise it fails the job at once, because a missing permission is a 403 too. A 403 whose body names a rate
	// limit counts even if 403 is not in this list, unless it is permanent.
	RateLimitedStatus []int
	// Hints are the dialects in which response headers are read, in order of precedence. They announce until when the
	// API refuses calls, how many are left, and the scope of the limit. nil: hint.Default; empty but not nil: none.
	Hints []hint.Dialect
	// PermanentStatus fail a job at once. Default 400, 401, 404, 409, 410, 413,
	// 415, 422. A 401 fails a job only if the call had no credentials of the destination or of
	// the key; else it is jobs.Unauthorized. Rules can make it fail the job.
	PermanentStatus []int
	// TrustOutcome honours the header Tidegate-Outcome of responses, for your own API: ok,
	// limited, retry, fail, reschedule or accepted, with after in seconds and scope, which is key or
	// destination: "limited; after=60; scope=key". It comes before Rules.
	TrustOutcome bool
	// GatewayHeaders are headers of responses that the gateway passes to its callers, beside the standard ones.
	GatewayHeaders []string
	// Rules, if set, come before the statuses above. A rate-limited answer is then reported
	// with its body, after at most a second.
	Rules Rules
	// Costs, if set, reads from a response the real cost of the call, by the unit of a named limit or by ":" and its
	// name. It is called as Rules are, except for calls that were rate limited.
	Costs func(a Answered) map[string]int
	// PerAttemptKey appends ":N", the number of retries made, to the
	// Idempotency-Key. Default: the key is the job's id in every call.
	PerAttemptKey bool
	// Connections is how many idle connections are kept for reuse; it should be
	// the destination's concurrency. Default 10.
	Connections int
	// MaxPayloadBytes bounds a payload with the outputs of the job's parents; see
	// jobs.Job.Resolved. Default 262144.
	MaxPayloadBytes int
	// Transport replaces the default transport of HTTP.
	Transport http.RoundTripper
	// ResponseBodyBytes is how much of a response's body is stored with the job, up to 1 MiB.
	// Default 4096.
	ResponseBodyBytes int
	// Wrap, if set, wraps the transport, for instance to observe calls. See
	// publisher/tracing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Logger gets a line when AuthTokenFile was read again, or cannot be used. Default:
	// slog.Default().
	Logger *slog.Logger
}

// DefaultPermanentStatus is the default of Options.PermanentStatus.
var DefaultPermanentStatus = []int{400, 401, 404, 409, 410, 413, 414, 415, 422, 431}

// userAgent is the User-Agent header.
const userAgent = "tidegate"

// Destination is a publisher.Handler that sends a job's payload in an HTTP request, in the method and the
// encoding of the job's Request, with the outputs of its parents in place of
// {{ parents.upload.itemid }} and the like (see jobs.Job.Resolved).
//
// A token that the API refuses with 401 is renewed if there is another one (see TokenSource, and
// OpenTokens), and the call is made once more.
//
// 2xx completes the job, RateLimitedStatus counts against the breaker,
// 401 to a call with a token is jobs.Unauthorized, PermanentStatus and redirects fail it, and any
// other status is a failure that its retry policy may retry. A call that got no connection was
// not sent: it is jobs.Unreachable. The response's status and the beginning of its body are stored with the
// job. The hints in its headers about the API's limit are reported to the breaker. A
// rate-limited response is reported once its header is read; its body is read for at most a
// second.
type Destination struct {
	o       Options
	base    *keyurl.URL
	keys    *regexp.Regexp // of KeyPattern; nil: all
	client  *http.Client
	own     *http.Transport
	secrets *secret.Redactor

	tokenFile    *tokens.Watcher[string] // nil without AuthTokenFile
	tokenChanged atomic.Bool             // since changedKeys was called
}

// New returns the handler. The error joins all invalid options.
func New(o Options) (*Destination, error) {
	var errs problems
	place, err := keyurl.Parse(o.URL)
	var base *url.URL // without the place of the key
	if err == nil {
		base = place.Fixed()
	}
	switch {
	case err != nil:
		errs = append(errs, fmt.Errorf("URL: %w; expected https://host/path", err))
	case base.Scheme != "http" && base.Scheme != "https", base.Hostname() == "":
		errs = append(errs, errors.New("URL: must be absolute and start with http:// or https://"))
	case base.User != nil:
		errs = append(errs, errors.New("URL: must not hold a user or a password; use AuthToken"))
	}
	o.Method = cmp.Or(o.Method, http.MethodPost)
	errs.check(!httpguts.ValidHeaderFieldName(o.Method), "method %q is no HTTP method", o.Method)
	var keys *regexp.Regexp
	switch {
	case o.KeyPattern != "":
		pattern, err := keyurl.Pattern(o.KeyPattern)
		if err != nil {
			errs = append(errs, fmt.Errorf("KeyPattern: %w", err))
		}
		keys = pattern
	case err == nil && place.HoldsKey():
		errs = append(errs, errors.New("KeyPattern: is required where URL holds {key}; it says which keys may be in the URL"))
	}
	o.AuthHeader, o.AuthScheme, o.SignHeader = cmp.Or(o.AuthHeader, "Authorization"), cmp.Or(o.AuthScheme, "Bearer"), cmp.Or(o.SignHeader, "X-Signature-256")
	errs = append(errs, o.authProblems(base)...)
	errs = append(errs, headerProblems(o.Header)...)
	for _, d := range o.Hints {
		errs.check(d.Read == nil, "hints: dialect %q has no Read", d.Name)
	}
	errs.check(o.AuthTokenFile != "" && o.AuthToken != "", "AuthTokenFile: takes the place of AuthToken; leave one out")
	o.Logger = cmp.Or(o.Logger, slog.Default())
	errs.check(o.TokenSource != nil && (o.AuthToken != "" || o.AuthTokenFile != "" || o.Tokens != nil), "TokenSource: takes the place of AuthToken and Tokens; leave them out")
	for name, v := range map[string]any{"Tokens": o.Tokens, "TokenSource": o.TokenSource, "Rules": o.Rules, "Transport": o.Transport} {
		errs.check(v != nil && isNil(v), "%s: is a nil %T", name, v)
	}
	errs.check(o.Connections < 0, "connections must not be negative, is %d", o.Connections)
	o.ResponseBodyBytes = cmp.Or(o.ResponseBodyBytes, defaultKept)
	errs.check(o.ResponseBodyBytes < 0 || o.ResponseBodyBytes > mostKept, "ResponseBodyBytes: must be from 1 to %d, is %d", mostKept, o.ResponseBodyBytes)
	if o.RateLimitedStatus == nil {
		o.RateLimitedStatus = []int{http.StatusTooManyRequests}
	}
	if o.PermanentStatus == nil {
		o.PermanentStatus = DefaultPermanentStatus
	}
	if o.Hints == nil {
		o.Hints = hint.Default
	}
	if o.MaxPayloadBytes <= 0 {
		o.MaxPayloadBytes = 262144
	}
	o.Connections = cmp.Or(o.Connections, 10)
	if len(errs) > 0 {
		return nil, fmt.Errorf("httpdest: new: %w", errors.Join(errs...))
	}
	o.Header = o.Header.Clone()
	h := &Destination{o: o, base: place, keys: keys}
	h.secrets = secret.New(slices.Concat(h.secretsOf(o.AuthToken), []string{o.SignSecret}, secret.OfHeader(o.Header), secret.OfURL(base))...)
	rt := o.Transport
	if rt == nil {
		h.own = newTransport(o.Connections)
		rt = h.own
	}
	if o.Wrap != nil {
		if rt = o.Wrap(rt); isNil(rt) {
			return nil, errors.New("httpdest: new: Wrap has returned nil")
		}
	}
	if err := h.watchToken(); err != nil {
		return nil, fmt.Errorf("httpdest: new: %w", err)
	}
	h.client = &http.Client{Transport: finalAnswers{rt}}
	return h, nil
}

// problems are what is wrong with options.
type problems []error

// check adds a problem.
func (p *problems) check(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// isNil reports whether v is nil, or a nil function or pointer in an interface.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Func || r.Kind() == reflect.Pointer) && r.IsNil()
}

// headerProblems validates header. It never quotes a value, which can be a credential.
func headerProblems(header http.Header) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("header %q: is not a header name", name))
		case strings.EqualFold(name, "Host"):
			errs = append(errs, fmt.Errorf("header %s: is taken from the URL; take it out", name))
		case strings.EqualFold(name, "Idempotency-Key"):
			errs = append(errs, fmt.Errorf("header %s: is set by Tidegate; take it out", name))
		case slices.ContainsFunc(header[name], func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }):
			errs = append(errs, fmt.Errorf("header %s: has characters that a header must not have (a line break at its end?)", name))
		}
	}
	return errs
}

// hiddenLocation is the Location header where http.Client does not find it.
const hiddenLocation = "location"

// finalAnswers hides the Location header. A redirect could send the token to another host,
// and http.Client fails a call with an invalid Location even if it does not follow redirects.
type finalAnswers struct{ http.RoundTripper }

func (t finalAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if resp != nil {
		if location := resp.Header.Values("Location"); location != nil {
			resp.Header[hiddenLocation] = location
		}
		resp.Header.Del("Location")
	}
	return resp, err
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] calls.
func (t finalAnswers) CloseIdleConnections() {
	if of, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		of.CloseIdleConnections()
	}
}

// newTransport keeps as many idle connections as there can be calls at once. With the default
// of two per host most calls would need a new connection.
func newTransport(connections int) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           connections,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// ResponseBytes is how much of a response's body is stored with the job.
func (h *Destination) ResponseBytes() int { return h.o.ResponseBodyBytes }

// Close drops idle connections.
func (h *Destination) Close() error {
	if h.own != nil {
		h.own.CloseIdleConnections()
	}
	return nil
}

// send makes a job's call with a token, "" for none. refused are the tokens of earlier calls.
func (h *Destination) send(ctx context.Context, job *jobs.Job, token string, refused ...string) error {
	job.Budget, job.Response = nil, nil
	if err := ctx.Err(); err != nil { // the token took the time
		return fmt.Errorf("the call's time was over before it: %w: %w", breakerhttp.ErrNotSent, err)
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	var conn connecting
	secrets := h.secretsOf(token, refused...)
	callback := func() (string, error) {
		url, err := progress.Of(ctx).Callback()
		secrets = append(secrets, url[strings.LastIndex(url, "/")+1:])
		return url, err
	}
	req, err := h.request(conn.watch(ctx), job, token, callback)
	if err != nil {
		if errors.Is(err, ctx.Err()) || errors.Is(err, breakerhttp.ErrNotSent) {
			return err
		}
		return jobs.Discard(&progress.NotCalledError{Err: err})
	}
	r := h.secrets.With(secrets...)
	resp, err := h.client.Do(req)
	if err != nil && conn.stale(ctx, err) && progress.Of(ctx).Again(job) == nil {
		// Once more, on a new connection: the API recognises a call that it has acted on by its Idempotency-Key.
		h.client.CloseIdleConnections()
		if req, err = h.request(conn.watch(ctx), job, token, callback); err != nil {
			return jobs.Discard(&progress.NotCalledError{Err: err})
		}
		resp, err = h.client.Do(req)
	}
	if err != nil {
		return withoutSecrets(r, conn.callError(ctx, job, err, h.base.HostHoldsKey()))
	}
	defer func() { _ = resp.Body.Close() }()
	return h.answer(ctx, job, resp, token, r, cut)
}
