package httpdest_test

import (
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// refused checks that a job with the request is neither accepted nor sent.
func refused(t *testing.T, a *fakehttp.Recorder, h *httpdest.Destination, r jobs.Request) {
	t.Helper()
	before := len(a.Requests())
	err := h.Publish(t.Context(), aJob(r))
	for _, arrived := range a.Requests()[before:] {
		t.Errorf("%+v arrived as %s with %v", r, arrived.RequestURI, arrived.Header)
	}
	if fail, ok := errors.AsType[*jobs.FailError](err); !ok || !fail.Permanent || !strings.HasPrefix(err.Error(), "request.") {
		t.Errorf("%+v: error %v, want one for good that names the field", r, err)
	}
}

// refusedAtOnce is refused, by the client too.
func refusedAtOnce(t *testing.T, a *fakehttp.Recorder, h *httpdest.Destination, r jobs.Request) {
	t.Helper()
	refused(t, a, h, r)
	spec := jobs.New("d", nil)
	spec.Request = r
	if err := spec.Validate(jobs.Limits{}, httpdest.CheckRequest); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("%+v is accepted: %v", r, err)
	}
}

// What a server or a proxy can read as a path outside the base path does not go out with
// the destination's token.
func TestHTTPStaysBelowTheBasePath(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL + "/v1", AuthToken: token})
	for _, p := range []string{
		// Parameters of a segment: Tomcat and others drop them.
		"/..;/admin", "/..;x=1/admin", "/a/..;/..;/admin", "/%2e%2e;/admin", "/..%3b/admin", "/.;/..;a/admin",
		// Decoded more than once.
		"/%252e%252e/admin", "/%25252e%25252e/admin", "/..%252fadmin", "/%252e%252e%252fadmin", "/%25%32%65%25%32%65/admin",
		"/%252e%252e/100%25", "/%25u002e%25u002e/admin", "/%" + strings.Repeat("25", 20) + "2e./admin",
		// Overlong and otherwise invalid UTF-8, and what is normalised to dots and slashes.
		"/%c0%ae%c0%ae/admin", "/%e0%80%ae%e0%80%ae/admin", "/..%c0%af/admin", "/%25c0%25ae%25c0%25ae/admin", "/%ff/admin",
		"/%ef%bc%8e%ef%bc%8e/admin", "/．．/admin", "/..%ef%bc%8fadmin", "/%e2%80%a5/admin",
		// Other separators and ends of a segment.
		`/..\admin`, "/..%5cadmin", "/%2e%2e%5cadmin", "/a%5cb", "/a%255cb", "/..%20/admin", "/%20../admin", "/..%3fx/admin", "/..%23/admin",
		"/..%2fadmin", "/a%2f..%2f..%2fadmin", "/..%00/admin", "/..%2509/admin",
	} {
		refusedAtOnce(t, a, h, jobs.Request{Path: p})
	}
}

// The operator's headers are sent as configured; a job that sets one, in any spelling, is not sent.
func TestHTTPHeadersOfTheOperatorStay(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{
		URL: a.URL, AuthToken: token, AuthHeader: "X-Api-Key", SignSecret: "signing", SignHeader: "X-Sig",
		Header: http.Header{"X-Tenant": {"ours"}, "api_version": {"7"}, "User-Agent": {"shop/1"}, "Content-Type": {"application/vnd.api+json"}},
	})
	for _, name := range []string{
		"X-Tenant", "x-tenant", "X-TENANT", "X.Tenant", "Api-Version", "api.version", "user-agent", "content-type", "x-api-key", "X.Api-Key", "X-SIG",
	} {
		refused(t, a, h, jobs.Request{Headers: map[string]string{name: "theirs"}})
	}
	request := jobs.Request{Encoding: jobs.EncodingRaw, Headers: map[string]string{"X-Tenants": "a", "Content-Type": "text/csv"}}
	job := aJob(request)
	job.Payload = []byte(`"a,b"`)
	if err := h.Publish(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	got := a.Only(t).Header
	if got.Get("X-Tenant") != "ours" || got.Get("X-Tenants") != "a" || got.Get("Content-Type") != "text/csv" || got.Get("User-Agent") != "shop/1" {
		t.Errorf("called with %v", got)
	}
	wantPermanent(t, "x-tenant", h.Publish(t.Context(), aJob(jobs.Request{Headers: map[string]string{"x-tenant": "theirs"}})),
		"request.headers: X-Tenant is set by the destination and cannot be set by a job")
}

// A parameter that the destination's URL sets, its key for instance, has one value.
func TestHTTPQueryOfTheDestinationHasOneValue(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL + "/v1?api%5Fkey=abc&v=2&flag"})
	for _, query := range []string{
		"api_key=x", "a=b&api_key=", "api_key", "%61pi_key=x", "api%5fkey=x", "v=3", "a=1&v=2", "flag=1",
		"API_KEY=x", "api_key[]=x", "api_key%5B%5D=x", "api_key[0]=x", "api_key[a][b]=x", "+api_key=x", "%20api_key=x", "api_key+=x", "%09api_key=x", "api.key=x",
		"api+key=x", "api[key=x", "api%255Fkey=x", "api%25255fkey=x", "api_key%00=x", "api_key%00a=x", "V=3", "Flag", "api%EF%BC%BFkey=x", "a=1&Api_Key[]=x",
	} {
		refused(t, a, h, jobs.Request{Query: query})
	}
	want := "/v1?api%5Fkey=abc&v=2&flag&w=3&a=1&a=2&api=v&key=1&xapi_key=1&api_keys=2"
	if err := h.Publish(t.Context(), aJob(jobs.Request{Query: "w=3&a=1&a=2&api=v&key=1&xapi_key=1&api_keys=2"})); err != nil || a.Only(t).RequestURI != want {
		t.Errorf("%v, called %s, want %s", err, a.Only(t).RequestURI, want)
	}
	wantPermanent(t, "v=3", h.Publish(t.Context(), aJob(jobs.Request{Query: "v=3"})),
		`request.query: "v" is set by the destination and cannot be set by a job`)
}

// noted notes the path of a request and sends nothing.
type noted struct{ path string }

func (n *noted) RoundTrip(r *http.Request) (*http.Response, error) {
	n.path = r.URL.EscapedPath()
	return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

var (
	encoded    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	parameters = regexp.MustCompile(`;[^/]*`)
)

// However often a server decodes the path of a request, and whatever it takes for a
// separator, it stays below the base path.
func FuzzHTTPStaysBelowTheBasePath(f *testing.F) {
	for _, p := range []string{
		"/a", "/..;/x", "/%2e%2e/x", "/%252e%252e%252fx", "/a%5c..", "/%c0%ae/x", "/a;b=c/..%3bd", "/%25252525252e./a", "/．．/x", "/%25%32%65./x", "/{a}%2Fb",
	} {
		f.Add(p)
	}
	var n noted
	h, err := httpdest.New(httpdest.Options{URL: "https://api.example.com/v1", Transport: &n})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, p string) {
		n.path = ""
		_ = h.Publish(t.Context(), aJob(jobs.Request{Path: p}))
		if n.path == "" {
			return // refused
		}
		for seen := n.path; ; {
			slashes := strings.ReplaceAll(seen, `\`, "/")
			for _, reading := range []string{seen, slashes, parameters.ReplaceAllString(seen, ""), parameters.ReplaceAllString(slashes, "")} {
				if got := path.Clean(reading); got != "/v1" && !strings.HasPrefix(got, "/v1/") {
					t.Fatalf("%q is sent as %q, which can be read as %q", p, n.path, got)
				}
			}
			decoded := encoded.ReplaceAllStringFunc(seen, func(c string) string {
				b, _ := hex.DecodeString(c[1:])
				return string(b)
			})
			if decoded == seen {
				return
			}
			seen = decoded
		}
	})
}
