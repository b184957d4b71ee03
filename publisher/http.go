package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/secret"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

// HTTPOptions describe an HTTP destination.
type HTTPOptions struct {
	// URL that calls go to; a job's path and query are appended. Required,
	// absolute, http or https.
	URL string
	// Method of the calls. Default POST.
	Method string
	// AuthToken, unless empty, is sent as "Authorization: Bearer …". With Tokens it is
	// for jobs without a key. It is removed from everything that is kept of an answer or
	// an error, and so are the tokens of Tokens, the values of Header and of the parameters
	// of URL from 6 bytes on, and long segments of its path: as they are, escaped and in
	// base64.
	AuthToken string
	// Tokens, unless nil, gives jobs with a key the token of that key; OpenTokens
	// reads them from a file. A job whose key has none fails without a call.
	Tokens Tokens
	// Header is sent with every call; a job's own headers replace it by name.
	// Host and Idempotency-Key are refused.
	Header http.Header
	// RateLimitedStatus are the statuses that mean "rate limited". Default 429. A 403 among
	// them does so only if its headers report a limit (see hint.LimitReached); otherwise it
	// fails the job at once, because a missing permission is a 403 too.
	RateLimitedStatus []int
	// Hints are the headers about the API's limit that are read, in their order of
	// precedence: until when it refuses calls, how many are left, and the scope of the limit.
	// nil: hint.Default; empty but not nil: none.
	Hints []hint.Dialect
	// PermanentStatus fail a job at once. Default 400, 401, 404, 409, 410, 413,
	// 415, 422.
	PermanentStatus []int
	// PerAttemptKey appends ":N", the number of retries made, to the
	// Idempotency-Key. Default: the key is the job's id in every call.
	PerAttemptKey bool
	// Connections is how many idle connections are kept for reuse; it should be
	// the destination's concurrency. Default 10.
	Connections int
	// Transport replaces the default transport of HTTP.
	Transport http.RoundTripper
	// Wrap, if set, wraps the transport, for instance to observe calls. See
	// publisher/tracing.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// DefaultPermanentStatus is the default of HTTPOptions.PermanentStatus.
var DefaultPermanentStatus = []int{400, 401, 404, 409, 410, 413, 415, 422}

// userAgent is the User-Agent header.
const userAgent = "tidegate"

// HTTP is a Handler that sends a job's payload in an HTTP request.
//
// 2xx completes the job, RateLimitedStatus counts against the breaker,
// PermanentStatus and redirects fail it, and any other status is a failure that its
// retry policy may retry. A call that got no connection was not sent: it is
// jobs.Unreachable. The response's status and the first 4 KiB of its body are stored with the
// job. The hints in its headers about the API's limit are reported to the breaker. A
// rate-limited response is reported once its header is read; its body is read for at most a
// second.
type HTTP struct {
	o       HTTPOptions
	base    *url.URL
	client  *http.Client
	own     *http.Transport
	secrets *secret.Redactor
}

var _ Handler = (*HTTP)(nil)

// NewHTTP returns the handler. The error joins all invalid options.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	var errs []error
	base, err := url.Parse(o.URL)
	switch {
	case err != nil:
		errs = append(errs, errors.New("URL: cannot be parsed; expected https://host/path"))
	case base.Scheme != "http" && base.Scheme != "https", base.Hostname() == "":
		errs = append(errs, errors.New("URL: must be absolute and start with http:// or https://"))
	case base.User != nil:
		errs = append(errs, errors.New("URL: must not hold a user or a password; use AuthToken"))
	}
	if o.Method == "" {
		o.Method = http.MethodPost
	}
	if !httpguts.ValidHeaderFieldName(o.Method) {
		errs = append(errs, fmt.Errorf("method %q is no HTTP method", o.Method))
	}
	if !httpguts.ValidHeaderFieldValue(o.AuthToken) {
		errs = append(errs, errors.New("AuthToken: has characters that a header must not have (a line break at its end?)"))
	}
	errs = append(errs, headerProblems(o.Header)...)
	for _, d := range o.Hints {
		if d.Read == nil {
			errs = append(errs, fmt.Errorf("hints: dialect %q has no Read", d.Name))
		}
	}
	if o.Connections < 0 {
		errs = append(errs, fmt.Errorf("connections must not be negative, is %d", o.Connections))
	}
	if o.RateLimitedStatus == nil {
		o.RateLimitedStatus = []int{http.StatusTooManyRequests}
	}
	if o.PermanentStatus == nil {
		o.PermanentStatus = DefaultPermanentStatus
	}
	if o.Hints == nil {
		o.Hints = hint.Default
	}
	if o.Connections == 0 {
		o.Connections = 10
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("publisher: new HTTP destination: %w", errors.Join(errs...))
	}
	o.Header = o.Header.Clone()
	h := &HTTP{o: o, base: base, secrets: secret.New(slices.Concat([]string{o.AuthToken}, secret.OfHeader(o.Header), secret.OfURL(base))...)}
	rt := o.Transport
	if rt == nil {
		h.own = newTransport(o.Connections)
		rt = h.own
	}
	if o.Wrap != nil {
		rt = o.Wrap(rt)
	}
	h.client = &http.Client{Transport: finalAnswers{rt}}
	return h, nil
}

// headerProblems validates header. It never quotes a value, which can be a credential.
func headerProblems(header http.Header) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, fmt.Errorf("header %q: is no header name", name))
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

// finalAnswers removes the Location header. A redirect could send the token to another host,
// and http.Client fails a call with an invalid Location even if it does not follow redirects.
type finalAnswers struct{ http.RoundTripper }

func (t finalAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if resp != nil {
		resp.Header.Del("Location")
	}
	return resp, err
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

// Close drops idle connections.
func (h *HTTP) Close() error {
	if h.own != nil {
		h.own.CloseIdleConnections()
	}
	return nil
}

// Publish implements Handler.
func (h *HTTP) Publish(ctx context.Context, job *jobs.Job) error {
	job.Budget = nil
	token, err := h.token(job)
	if err != nil {
		return jobs.Discard(&notCalledError{err})
	}
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	var conn connecting
	req, err := h.request(conn.watch(ctx), job, token)
	if err != nil {
		return jobs.Discard(&notCalledError{err})
	}
	r := h.secrets.With(token)
	resp, err := h.client.Do(req)
	if err != nil {
		return withoutSecrets(r, conn.callError(ctx, err))
	}
	received := time.Now()
	defer func() { _ = resp.Body.Close() }()
	limited := h.limited(resp, received)
	hints := h.hints(resp.Header, limited, received)
	job.Budget = hints.budget
	job.Response = &jobs.Response{Status: resp.StatusCode}
	// The status decides the outcome, even if the body breaks off.
	redact := r.Redact
	read := func() []byte {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxRead))
		if err != nil || len(body) == maxRead {
			redact = r.RedactCut
		}
		return body
	}
	keep := func(body []byte) {
		job.Response = &jobs.Response{Status: resp.StatusCode, Body: text.Head(redact(text.Printable(redact(string(body)))), maxKept)}
	}
	if limited {
		err := jobs.RateLimited(hints.wait, hints.scope)
		readLimited(ctx, err, read, keep, cut)
		return err
	}
	keep(read())
	return h.classify(resp.StatusCode)
}

// request builds the request of a job.
func (h *HTTP) request(ctx context.Context, job *jobs.Job, token string) (*http.Request, error) {
	if err := job.Request.Validate(); err != nil {
		return nil, err
	}
	if name := h.alreadySet(job.Request.Query); name != "" {
		return nil, fmt.Errorf("request.query: %q is set by the destination's URL and cannot be set by a job", name)
	}
	var body io.Reader
	withBody := h.o.Method != http.MethodGet && h.o.Method != http.MethodHead
	if withBody {
		body = bytes.NewReader(job.Payload)
	}
	req, err := http.NewRequestWithContext(ctx, h.o.Method, h.target(job), body)
	if err != nil {
		return nil, errors.New("the request's URL cannot be built from the destination's URL and the job's path and query")
	}
	if withBody {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", userAgent)
	for name, values := range h.o.Header {
		req.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	for name, value := range job.Request.Headers {
		req.Header.Set(name, value)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	key := job.ID
	if h.o.PerAttemptKey {
		key += ":" + strconv.Itoa(job.Attempt)
	}
	req.Header.Set("Idempotency-Key", key)
	sendOnce(req)
	return req, nil
}

// sendOnce prevents net/http from repeating a call when a reused connection breaks: the breaker
// and the retry policy would not notice.
func sendOnce(req *http.Request) {
	// net/http repeats calls with these headers, but only in their canonical form. Names of
	// headers are case-insensitive (RFC 9110, section 5.1).
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values := req.Header[name]; values != nil {
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values
		}
	}
	// net/http repeats calls with these methods unless the body can be read only once. An
	// empty body is not sent.
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		if req.Body == nil || req.Body == http.NoBody {
			req.Body = io.NopCloser(strings.NewReader(""))
		}
		req.GetBody = nil
	}
}

// alreadySet returns the first parameter of a job's query that the destination's URL sets,
// or "". An API might use the job's value.
func (h *HTTP) alreadySet(query string) string {
	if query == "" || h.base.RawQuery == "" {
		return ""
	}
	own, _ := url.ParseQuery(query) // valid, or not sent
	for _, name := range slices.Sorted(maps.Keys(h.base.Query())) {
		if own.Has(name) {
			return name
		}
	}
	return ""
}

// target is the destination's URL with the job's path and query appended.
func (h *HTTP) target(job *jobs.Job) string {
	u := *h.base
	u.Fragment, u.RawFragment = "", ""
	if p := job.Request.Path; p != "" {
		joined := strings.TrimSuffix(u.EscapedPath(), "/") + encodePath(p)
		if decoded, err := url.PathUnescape(joined); err == nil {
			u.Path, u.RawPath = decoded, joined
		}
	}
	if q := job.Request.Query; q != "" {
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += q
	}
	return u.String()
}

// encodePath encodes the characters that are not valid in a URL, and no others. net/url would
// also decode the rest of such a path, and turn %2F into a slash.
func encodePath(p string) string {
	var b strings.Builder
	for _, c := range []byte(p) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// classify turns the status of a response that is not rate limited into an outcome.
func (h *HTTP) classify(code int) error {
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400 && code != http.StatusNotModified:
		return jobs.Discard(fmt.Errorf("answered %s: redirects are not followed; set the destination's URL to the final address", statusText(code)))
	case code == http.StatusForbidden && slices.Contains(h.o.RateLimitedStatus, code):
		return jobs.Discard(fmt.Errorf("answered %s, and no header says that a limit is reached", statusText(code)))
	case slices.Contains(h.o.PermanentStatus, code):
		return jobs.Discard(fmt.Errorf("answered %s", statusText(code)))
	}
	return fmt.Errorf("answered %s", statusText(code))
}

func statusText(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
