package httpdest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/jobs"
)

// CheckRequest reports the parts of a job that an HTTP destination could not send: its path, query, headers, body and
// expressions. Pass it to jobs.WithCheck; otherwise an invalid job fails at its first run.
func CheckRequest(s *jobs.Spec) []jobs.FieldError { return httpjob.Check(s) }

// request builds the request of a job. callback returns where the API reports the job's result.
func (h *Destination) request(ctx context.Context, job *jobs.Job, token string, callback func() (string, error)) (*http.Request, error) {
	job, err := h.resolved(ctx, job, callback)
	if err != nil {
		return nil, err
	}
	if err := httpjob.Validate(&job.Request); err != nil {
		return nil, err
	}
	base, err := h.base.With(job.Key)
	if err != nil {
		return nil, err
	}
	if name := h.alreadySet(base, job.Request.Query); name != "" {
		return nil, fmt.Errorf("request.query: %q is set by the destination and cannot be set by a job", name)
	}
	headers := job.Request.Headers
	if job.Gateway {
		headers = h.withoutOwn(job.Request)
	} else if name := h.setHere(&job.Request); name != "" {
		return nil, fmt.Errorf("request.headers: %s is set by the destination and cannot be set by a job", name)
	}
	method := cmp.Or(job.Request.Method, h.o.Method)
	var content []byte
	var contentType string
	var body io.Reader
	if method != http.MethodGet && method != http.MethodHead {
		if content, contentType, err = httpjob.Body(job); err != nil {
			return nil, err
		}
		body = bytes.NewReader(content)
		if job.Gateway && len(content) == 0 {
			contentType = ""
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, target(base, job), body)
	if err != nil {
		return nil, errors.New("the request's URL cannot be built from the destination's URL and the job's path and query")
	}
	req.Header.Set("User-Agent", userAgent)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for name, values := range h.o.Header {
		if h.sends(name, job.Request.Encoding) {
			values = slices.Clone(values)
			for i, value := range values {
				if httpjob.UsesCallback(value) {
					url, err := callback()
					if err != nil {
						return nil, err
					}
					values[i] = httpjob.PutCallback(value, url)
				}
			}
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	if err := h.authenticate(req, token); err != nil {
		return nil, err
	}
	h.sign(req, content)
	key := job.ID
	if job.Edits > 0 {
		key += ":edit-" + strconv.Itoa(job.Edits)
	}
	if h.o.PerAttemptKey {
		key += ":" + strconv.Itoa(job.Attempt)
	}
	req.Header.Set("Idempotency-Key", key)
	sendOnce(req)
	return req, nil
}

// maxEvaluation bounds the evaluation of a job's expressions, which takes milliseconds unless they
// are made to take long. Tests set another one.
var maxEvaluation = 5 * time.Second

// resolved returns the job with the values of its expressions. An evaluation that takes longer than
// maxEvaluation or the call's timeout is the job's own failure: nothing was sent.
func (h *Destination) resolved(ctx context.Context, job *jobs.Job, callback func() (string, error)) (*jobs.Job, error) {
	started := time.Now()
	bounded, end := context.WithTimeout(ctx, maxEvaluation)
	defer end()
	out, err := httpjob.Resolve(bounded, job, h.o.MaxPayloadBytes, callback)
	if errors.Is(err, breakerhttp.ErrNotSent) { // Redis did not keep the token in time
		return nil, err
	}
	if errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("the expressions in {{ }} were not evaluated within %s; no call was made: write fewer or simpler ones, or raise timeout_secs", time.Since(started).Round(time.Millisecond))
	}
	return out, err //nolint:wrapcheck // it names the field
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

// alreadySet returns the first parameter that the destination sets and a job's query sets too, in
// any spelling that a server may read alike, or "". An API might use the job's value.
func (h *Destination) alreadySet(base *url.URL, query string) string {
	if query == "" || base.RawQuery == "" && h.o.AuthQuery == "" {
		return ""
	}
	own, _ := url.ParseQuery(query) // valid, or not sent
	names := map[string]bool{}
	for name := range own {
		names[parameterName(name)] = true
	}
	set := base.Query()
	if h.o.AuthQuery != "" {
		set.Set(h.o.AuthQuery, "")
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if names[parameterName(name)] {
			return name
		}
	}
	return ""
}

// parameterName returns the name of a parameter as the most lenient servers read it: decoded
// again, in lower case, without spaces around it, a list's brackets or what follows a NUL, and
// with an underscore for dots, spaces and the like, as PHP has it.
func parameterName(name string) string {
	for range maxDecodings {
		decoded, err := url.QueryUnescape(name)
		if err != nil || decoded == name {
			break
		}
		name = decoded
	}
	name = strings.TrimSpace(norm.NFKC.String(name))
	name, _, _ = strings.Cut(name, "\x00")
	if end := strings.IndexByte(name, '['); end > 0 && strings.Contains(name[end:], "]") {
		name = name[:end]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) {
			return unicode.ToLower(r)
		}
		return '_'
	}, name)
}

// maxDecodings bounds how often the name of a parameter is decoded.
const maxDecodings = 6

// target is the destination's URL with the job's path and query appended.
func target(base *url.URL, job *jobs.Job) string {
	u := *base
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

// encodePath encodes the characters that are not valid in a URL, and no others. net/url would also decode the rest of
// the path, and turn %2F into a slash.
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
