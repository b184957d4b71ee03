package publisher

import (
	"bytes"
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

	"github.com/tidegate/tidegate/jobs"
)

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
