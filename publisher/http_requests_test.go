package publisher_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestHTTPMethodAndEncodingOfTheJob(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil)
	h := newHTTP(t, publisher.HTTPOptions{URL: a.URL + "/v1", AuthToken: token, Header: http.Header{"Content-Type": {"application/vnd.api+json"}, "Accept": {"*/*"}}})
	const image = `{"image":{"filename":"a.png","content_type":"image/png","base64":"AP8K"},"title":"Sunset"}`
	for i, row := range []struct {
		request                        jobs.Request
		payload                        string
		method, uri, contentType, body string
	}{
		{jobs.Request{}, `{"a":1}`, "POST", "/v1", "application/vnd.api+json", `{"a":1}`},
		{jobs.Request{Method: "PATCH", Path: "/7"}, `{"a":1}`, "PATCH", "/v1/7", "application/vnd.api+json", `{"a":1}`},
		{jobs.Request{Method: "DELETE"}, `{}`, "DELETE", "/v1", "application/vnd.api+json", `{}`},
		{jobs.Request{Method: "GET", Query: "a=b"}, `{}`, "GET", "/v1?a=b", "application/vnd.api+json", ``},
		{jobs.Request{Method: "HEAD", Encoding: jobs.EncodingForm}, `{"a":1}`, "HEAD", "/v1", "", ``},
		{jobs.Request{Encoding: jobs.EncodingForm}, `{"b":"x y","a":[1,2.50]}`, "POST", "/v1", "application/x-www-form-urlencoded", `a=1&a=2.50&b=x+y`},
		{jobs.Request{Encoding: jobs.EncodingForm}, `{}`, "POST", "/v1", "application/x-www-form-urlencoded", ``},
		{jobs.Request{Encoding: jobs.EncodingRaw}, `"hello"`, "POST", "/v1", "text/plain; charset=utf-8", `hello`},
		{jobs.Request{Encoding: jobs.EncodingRaw, Headers: map[string]string{"content-type": "text/csv"}}, `"a,b"`, "POST", "/v1", "text/csv", `a,b`},
		{jobs.Request{Encoding: jobs.EncodingMultipart}, image, "POST", "/v1", "multipart/form-data; boundary=", "Content-Disposition: form-data; name=\"title\"\r\n\r\nSunset\r\n"},
	} {
		job := aJob(row.request)
		job.Payload = []byte(row.payload)
		if err := h.Publish(t.Context(), job); err != nil {
			t.Errorf("%+v: %v", row.request, err)
			continue
		}
		r := a.requests()[i]
		kind := r.Header.Get("Content-Type")
		if row.request.Encoding == jobs.EncodingMultipart {
			if !strings.HasPrefix(kind, row.contentType) || !strings.Contains(r.body, row.body) || !strings.Contains(r.body, "\x00\xff\n") {
				t.Errorf("multipart: %s\n%s", kind, r.body)
			}
			kind, r.body = row.contentType, row.body
		}
		if r.Method != row.method || r.RequestURI != row.uri || kind != row.contentType || r.body != row.body {
			t.Errorf("%+v: %s %s as %q: %q", row.request, r.Method, r.RequestURI, kind, r.body)
		}
		if r.Header.Get("Idempotency-Key") != "job-1" || r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("Accept") != "*/*" {
			t.Errorf("%+v: headers %v", row.request, r.Header)
		}
	}
}

func TestHTTPRefusesRequestsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil)
	h := newHTTP(t, publisher.HTTPOptions{URL: a.URL, AuthHeader: "x-api-key", AuthToken: token, SignSecret: "s1gn-secret"})
	for _, r := range []jobs.Request{{Method: "TRACE"}, {Method: "put"}, {Encoding: "xml"}, {TimeoutSecs: -1}} {
		refusedAtOnce(t, a, h, r)
	}
	// Only the destination knows its headers.
	for _, name := range []string{"X-API-Key", "x-signature-256"} {
		refused(t, a, h, jobs.Request{Headers: map[string]string{name: "mine"}})
	}
	job := aJob(jobs.Request{Encoding: jobs.EncodingForm})
	job.Payload = []byte(`[]`)
	wantPermanent(t, "a list as a form", h.Publish(t.Context(), job), `payload: is not an object; with the encoding form it is one from field to value, such as {"title":"Sunset"}`)
	if n := len(a.requests()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestHTTPPlacesOfTheToken(t *testing.T) {
	t.Parallel()
	const query = "?api_key=s3cr3t%2F%2B%22tok%26n%22%3D"
	for name, row := range map[string]struct {
		o             publisher.HTTPOptions
		header, value string
		uri           string
	}{
		"header and no scheme": {publisher.HTTPOptions{AuthHeader: "X-Api-Key", AuthScheme: "none"}, "X-Api-Key", token, "/"},
		"another scheme":       {publisher.HTTPOptions{AuthScheme: "Bot"}, "Authorization", "Bot " + token, "/"},
		"basic":                {publisher.HTTPOptions{AuthScheme: "basic", AuthToken: "me:pa55-word"}, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:pa55-word")), "/"},
		"query":                {publisher.HTTPOptions{AuthQuery: "api_key"}, "Authorization", "", "/" + query},
		"query of a URL":       {publisher.HTTPOptions{AuthQuery: "api_key", URL: "?v=2"}, "Authorization", "", "/?v=2&" + query[1:]},
	} {
		a := newAPI(t, nil)
		row.o.URL = a.URL + "/" + row.o.URL
		if row.o.AuthToken == "" {
			row.o.AuthToken = token
		}
		if err := newHTTP(t, row.o).Publish(t.Context(), aJob(jobs.Request{})); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := a.only(t)
		if got := r.Header.Get(row.header); got != row.value || r.RequestURI != row.uri {
			t.Errorf("%s: %q in %s, called %s", name, got, row.header, r.RequestURI)
		}
		// Tokens of keys go to the same place.
		o := row.o
		token := o.AuthToken
		o.Tokens = publisher.TokensFunc(func(string) (string, bool) { return token, true })
		o.AuthToken = ""
		job := aJob(jobs.Request{})
		job.Key = "alice"
		if err := newHTTP(t, o).Publish(t.Context(), job); err != nil {
			t.Errorf("%s, with a key: %v", name, err)
		}
		if r := a.requests()[1]; r.Header.Get(row.header) != row.value || r.RequestURI != row.uri {
			t.Errorf("%s, with a key: %v, called %s", name, r.Header, r.RequestURI)
		}
	}
	// A job cannot send a second token.
	a := newAPI(t, nil)
	refused(t, a, newHTTP(t, publisher.HTTPOptions{URL: a.URL, AuthQuery: "api_key", AuthToken: token}), jobs.Request{Query: "a=b&api_key=x"})
	job := aJob(jobs.Request{})
	job.Key = "alice"
	basic := newHTTP(t, publisher.HTTPOptions{URL: a.URL, AuthScheme: "Basic", Tokens: publisher.TokensFunc(func(string) (string, bool) { return "nocolon", true })})
	wantPermanent(t, "no colon", basic.Publish(t.Context(), job), "the token is not of the form user:password, which the scheme Basic sends")
}

// Neither an answer nor an error repeats a token or its password.
func TestHTTPKeepsNoTokenOfAnyPlace(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]publisher.HTTPOptions{
		"query": {AuthQuery: "key", AuthToken: "qu3ry/t0ken"},
		"basic": {AuthScheme: "Basic", AuthToken: "me:qu3ry/t0ken"},
		"sign":  {SignSecret: "qu3ry/t0ken"},
	} {
		a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			user, password, _ := r.BasicAuth()
			_, _ = fmt.Fprintf(w, "%s %s %s:%s %s %s", r.RequestURI, r.URL.Query().Get("key"), user, password, password, o.SignSecret)
		})
		o.URL = a.URL
		job := aJob(jobs.Request{})
		err := newHTTP(t, o).Publish(t.Context(), job)
		for _, shown := range []string{errorText(err), job.Response.Body} {
			if strings.Contains(shown, "t0ken") {
				t.Errorf("%s: %s", name, shown)
			}
		}
		o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxy: %s, %s: %w", r.URL, o.AuthToken, io.ErrUnexpectedEOF)
		})
		if err := newHTTP(t, o).Publish(t.Context(), aJob(jobs.Request{})); err == nil || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHTTPSignsTheBody(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil)
	h := newHTTP(t, publisher.HTTPOptions{URL: a.URL, SignSecret: "shared", SignHeader: "x-hub-signature"})
	for i, r := range []jobs.Request{{}, {Encoding: jobs.EncodingForm}, {Encoding: jobs.EncodingMultipart}, {Method: "GET"}} {
		job := aJob(r)
		job.Payload = []byte(`{"a":"b"}`)
		if err := h.Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		got := a.requests()[i]
		mac := hmac.New(sha256.New, []byte("shared"))
		_, _ = io.WriteString(mac, got.body)
		if sent, want := got.Header.Get("X-Hub-Signature"), hex.EncodeToString(mac.Sum(nil)); sent != want {
			t.Errorf("%+v: %q of %q, want %q", r, sent, got.body, want)
		}
	}
}

// The key is in the URL as it is, and nowhere but in its place.
func TestHTTPKeyInTheURL(t *testing.T) {
	t.Parallel()
	var hosts []string
	record := func(base string) *publisher.HTTP {
		return newHTTP(t, publisher.HTTPOptions{
			URL: base, KeyPattern: "[^x]+|x{3,70}",
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				hosts = append(hosts, r.URL.String())
				return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}),
		})
	}
	keyed := func(key, path string) *jobs.Job {
		j := aJob(jobs.Request{Path: path})
		j.Key = key
		return j
	}
	everywhere := record("https://{key}.example.com:8443/u/{key}/v1?u={key}&v=2")
	for _, key := range []string{"alice", "a-1", "ALICE"} {
		if err := everywhere.Publish(t.Context(), keyed(key, "/items")); err != nil {
			t.Fatal(err)
		}
		if want := "https://" + key + ".example.com:8443/u/" + key + "/v1/items?u=" + key + "&v=2"; hosts[len(hosts)-1] != want {
			t.Errorf("called %s, want %s", hosts[len(hosts)-1], want)
		}
	}
	path := record("https://example.com/u/{key}")
	if err := path.Publish(t.Context(), keyed("a@b.c:1", "")); err != nil || hosts[len(hosts)-1] != "https://example.com/u/a@b.c:1" {
		t.Errorf("%v, called %s", err, hosts[len(hosts)-1])
	}
	calls := len(hosts)
	for want, call := range map[string]error{
		"key: the job has none, and the URL of destination d holds {key}: enqueue it with a key":                           path.Publish(t.Context(), keyed("", "")),
		`key: "x" does not match KEY_PATTERN of destination d`:                                                             path.Publish(t.Context(), keyed("x", "")),
		`key: "a/../b" does not match KEY_PATTERN of destination d`:                                                        path.Publish(t.Context(), keyed("a/../b", "")),
		`key: ".." does not match KEY_PATTERN of destination d`:                                                            path.Publish(t.Context(), keyed("..", "")),
		`key: "a.evil" cannot be part of a host name; it may have letters, digits and hyphens, with no hyphen at its ends`: everywhere.Publish(t.Context(), keyed("a.evil", "")),
		`key: "a@evil" cannot be part of a host name; it may have letters, digits and hyphens, with no hyphen at its ends`: everywhere.Publish(t.Context(), keyed("a@evil", "")),
		`key: "a-" cannot be part of a host name; it may have letters, digits and hyphens, with no hyphen at its ends`:     everywhere.Publish(t.Context(), keyed("a-", "")),
		`key: "` + strings.Repeat("x", 64) + `" is too long for a part of a host name, which has at most 63 characters`:    everywhere.Publish(t.Context(), keyed(strings.Repeat("x", 64), "")),
	} {
		wantPermanent(t, want, call, want)
	}
	if len(hosts) != calls {
		t.Errorf("called %v", hosts[calls:])
	}
}

func TestHTTPOptionsOfRequestsAreChecked(t *testing.T) {
	t.Parallel()
	const base = "https://example.com/"
	for want, o := range map[string]publisher.HTTPOptions{
		"KeyPattern: is required where URL holds {key}; it says which keys may be in the URL": {URL: "https://{key}.example.com"},
		"KeyPattern: is not a regular expression":                                             {URL: base, KeyPattern: "a)|(b"},
		"not at the end, in its path or in its query, and nowhere else":                       {URL: "https://example.{key}", KeyPattern: "a"},
		"URL: may hold {key} in its host":                                                     {URL: "https://{key}/x", KeyPattern: "a"},
		"URL: may hold {key} in its host, ":                                                   {URL: "https://{key}@example.com/x", KeyPattern: "a"},
		"URL: cannot be parsed":                                                               {URL: "https://example.com:{key}/", KeyPattern: "a"},
		`AuthHeader: header "a b": is not a header name`:                                      {URL: base, AuthHeader: "a b"},
		"AuthHeader: header host: is taken from the URL":                                      {URL: base, AuthHeader: "host"},
		"SignHeader: header idempotency-key: is set by Tidegate":                              {URL: base, SignHeader: "idempotency-key"},
		`AuthScheme: "a b" is not a scheme`:                                                   {URL: base, AuthScheme: "a b"},
		"AuthToken: is not of the form user:password":                                         {URL: base, AuthScheme: "Basic", AuthToken: "x"},
		`AuthQuery: URL sets "key" too`:                                                       {URL: base + "?key=1", AuthQuery: "key"},
		`SignHeader: tokens are sent in "x-key" too`:                                          {URL: base, AuthToken: "x", AuthHeader: "X-Key", SignSecret: "s", SignHeader: "x-key"},
		"Tokens: is a nil publisher.TokensFunc":                                               {URL: base, Tokens: publisher.TokensFunc(nil)},
		"Tokens: is a nil *publisher.TokensFile":                                              {URL: base, Tokens: (*publisher.TokensFile)(nil)},
		"Transport: is a nil *http.Transport":                                                 {URL: base, Transport: (*http.Transport)(nil)},
		"Wrap has returned nil":                                                               {URL: base, Wrap: func(http.RoundTripper) http.RoundTripper { return nil }},
		"ResponseBodyBytes: must be from 1 to 1048576, is 1048577":                            {URL: base, ResponseBodyBytes: 1<<20 + 1},
	} {
		if _, err := publisher.NewHTTP(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// A host that one key names and that does not exist does not stop the jobs of other keys.
func TestHTTPUnreachableHostOfOneKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := newAPI(t, nil)
	h := newHTTP(t, publisher.HTTPOptions{
		URL: "http://{key}.example.com", KeyPattern: ".*",
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, "gone.") {
				return nil, &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}
			}
			return (&net.Dialer{}).DialContext(ctx, network, a.Listener.Addr().String())
		}},
	})
	gone := b.enqueue(jobs.Key("gone"))
	b.run(b.options(), h.Publish)
	e := b.result(gone.ID)
	if unsent, ok := errors.AsType[*jobs.UnreachableError](e.Err); e.Reason != publisher.ReasonUnreachable || !ok || !unsent.OfKey || !strings.Contains(errorText(e.Err), "the call was not sent: ") {
		t.Errorf("%+v", e)
	}
	here := b.enqueue(jobs.Key("here"))
	if e := b.result(here.ID); e.Result != publisher.Completed || a.only(t).Host != "here.example.com" {
		t.Errorf("%+v, called %s", e, a.only(t).Host)
	}
}

// As much of an answer is kept as is configured.
func TestHTTPKeepsLargeAnswers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, answerWith(http.StatusOK, strings.Repeat("x", 1<<20+5)))
	for kept, want := range map[int]int{0: 4096, 100: 100, 1 << 20: 1 << 20} {
		job := aJob(jobs.Request{})
		if err := newHTTP(t, publisher.HTTPOptions{URL: a.URL, ResponseBodyBytes: kept}).Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if got := len(job.Response.Body); got != want {
			t.Errorf("ResponseBodyBytes %d: %d bytes are kept, want %d", kept, got, want)
		}
	}
}
