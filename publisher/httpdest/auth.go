package httpdest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/jobs"
)

// authProblems validates how tokens and signatures are sent. base is nil for an invalid URL.
func (o *Options) authProblems(base *url.URL) []error {
	var errs problems
	errs.check(!httpguts.ValidHeaderFieldValue(o.AuthToken), "AuthToken: has characters that a header must not have (a line break at its end?)")
	errs.check(!httpguts.ValidHeaderFieldName(o.AuthScheme), "AuthScheme: %q is not a scheme; it is one word, such as Bearer, Basic or none", o.AuthScheme)
	for field, name := range map[string]string{"AuthHeader": o.AuthHeader, "SignHeader": o.SignHeader} {
		if problem := headerProblems(http.Header{name: nil}); problem != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, problem[0]))
		}
	}
	errs.check(o.basic() && o.AuthToken != "" && !strings.Contains(o.AuthToken, ":"), "AuthToken: "+noColon)
	sent := o.AuthToken != "" || o.AuthTokenFile != "" || o.Tokens != nil || o.TokenSource != nil
	errs.check(sent && o.AuthQuery == "" && o.SignSecret != "" && strings.EqualFold(o.AuthHeader, o.SignHeader), "SignHeader: tokens are sent in %q too; name another header", o.SignHeader)
	errs.check(o.AuthQuery != "" && base != nil && base.Query().Has(o.AuthQuery), "AuthQuery: URL sets %q too; take one of them out", o.AuthQuery)
	return errs
}

const noColon = "is not of the form user:password, which the scheme Basic sends"

func (o *Options) basic() bool {
	return o.AuthQuery == "" && strings.EqualFold(o.AuthScheme, "Basic")
}

// secretsOf returns the secret parts of tokens.
func (h *Destination) secretsOf(token string, more ...string) []string {
	out := append([]string{token}, more...)
	for _, token := range out {
		if _, password, ok := strings.Cut(token, ":"); ok && h.o.basic() && len(password) >= secret.ShortestPassword {
			out = append(out, password)
		}
	}
	return out
}

// authenticate adds the token to the request, unless it is empty.
func (h *Destination) authenticate(req *http.Request, token string) error {
	switch {
	case token == "":
	case h.o.AuthQuery != "":
		if req.URL.RawQuery != "" {
			req.URL.RawQuery += "&"
		}
		req.URL.RawQuery += url.QueryEscape(h.o.AuthQuery) + "=" + url.QueryEscape(token)
	case h.o.basic():
		if !strings.Contains(token, ":") {
			return errors.New("the token " + noColon)
		}
		req.Header.Set(h.o.AuthHeader, "Basic "+base64.StdEncoding.EncodeToString([]byte(token)))
	case strings.EqualFold(h.o.AuthScheme, "none"):
		req.Header.Set(h.o.AuthHeader, token)
	default:
		req.Header.Set(h.o.AuthHeader, h.o.AuthScheme+" "+token)
	}
	return nil
}

// sign adds the signature of the body.
func (h *Destination) sign(req *http.Request, body []byte) {
	if h.o.SignSecret == "" {
		return
	}
	mac := hmac.New(sha256.New, []byte(h.o.SignSecret))
	mac.Write(body)
	req.Header.Set(h.o.SignHeader, hex.EncodeToString(mac.Sum(nil)))
}

// setHere returns the header of a job that this destination sets, in any spelling that a server
// may read alike, or "".
func (h *Destination) setHere(request *jobs.Request) string {
	for _, name := range slices.Sorted(maps.Keys(request.Headers)) {
		same := func(other string) bool { return text.HeaderName(name) == text.HeaderName(other) }
		for own := range h.o.Header {
			if same(own) && h.sends(own, request.Encoding) {
				return http.CanonicalHeaderKey(name)
			}
		}
		if h.o.AuthQuery == "" && same(h.o.AuthHeader) || h.o.SignSecret != "" && same(h.o.SignHeader) {
			return http.CanonicalHeaderKey(name)
		}
	}
	return ""
}

// withoutOwn returns the headers of a gateway job without the headers that this destination sets: clients send some
// by themselves, such as a credential that is not the API's.
func (h *Destination) withoutOwn(r jobs.Request) map[string]string {
	r.Headers = maps.Clone(r.Headers)
	for name := h.setHere(&r); name != ""; name = h.setHere(&r) {
		maps.DeleteFunc(r.Headers, func(other, _ string) bool { return http.CanonicalHeaderKey(other) == name })
	}
	return r.Headers
}

// sends reports whether a configured header is sent with a body of this encoding, which has a
// Content-Type already, but for JSON.
func (h *Destination) sends(name string, e jobs.Encoding) bool {
	return !strings.EqualFold(name, "Content-Type") || e == "" || e == jobs.EncodingJSON
}

// maxKeyShown bounds a key in an error, in bytes.
const maxKeyShown = 300

// checkKey refuses a job whose key the destination does not accept.
func (h *Destination) checkKey(job *jobs.Job) error {
	switch {
	case job.Key == "" && h.base.HoldsKey():
		return fmt.Errorf("key: the job has none, and the URL of destination %s holds {key}: enqueue it with a key", job.Destination)
	case job.Key == "" || h.keys == nil:
		return nil
	case !h.keys.MatchString(job.Key) || !jobs.ValidName(job.Key):
		return fmt.Errorf("key: %q does not match KEY_PATTERN of destination %s", text.Head(text.Printable(job.Key), maxKeyShown), job.Destination)
	}
	return nil
}
