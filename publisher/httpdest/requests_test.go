package httpdest_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

func TestHTTPMethodAndEncodingOfTheJob(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL + "/v1", AuthToken: token, Header: http.Header{"Content-Type": {"application/vnd.api+json"}, "Accept": {"*/*"}}})
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
		r := a.Requests()[i]
		kind := r.Header.Get("Content-Type")
		if row.request.Encoding == jobs.EncodingMultipart {
			if !strings.HasPrefix(kind, row.contentType) || !strings.Contains(r.Sent, row.body) || !strings.Contains(r.Sent, "\x00\xff\n") {
				t.Errorf("multipart: %s\n%s", kind, r.Sent)
			}
			kind, r.Sent = row.contentType, row.body
		}
		if r.Method != row.method || r.RequestURI != row.uri || kind != row.contentType || r.Sent != row.body {
			t.Errorf("%+v: %s %s as %q: %q", row.request, r.Method, r.RequestURI, kind, r.Sent)
		}
		if r.Header.Get("Idempotency-Key") != "job-1" || r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("Accept") != "*/*" {
			t.Errorf("%+v: headers %v", row.request, r.Header)
		}
	}
}

func TestHTTPRefusesRequestsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL, AuthHeader: "x-api-key", AuthToken: token, SignSecret: "s1gn-secret"})
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
	if n := len(a.Requests()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestHTTPPlacesOfTheToken(t *testing.T) {
	t.Parallel()
	const query = "?api_key=s3cr3t%2F%2B%22tok%26n%22%3D"
	for name, row := range map[string]struct {
		o             httpdest.Options
		header, value string
		uri           string
	}{
		"header and no scheme": {httpdest.Options{AuthHeader: "X-Api-Key", AuthScheme: "none"}, "X-Api-Key", token, "/"},
		"another scheme":       {httpdest.Options{AuthScheme: "Bot"}, "Authorization", "Bot " + token, "/"},
		"basic":                {httpdest.Options{AuthScheme: "basic", AuthToken: "me:pa55-word"}, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:pa55-word")), "/"},
		"query":                {httpdest.Options{AuthQuery: "api_key"}, "Authorization", "", "/" + query},
		"query of a URL":       {httpdest.Options{AuthQuery: "api_key", URL: "?v=2"}, "Authorization", "", "/?v=2&" + query[1:]},
	} {
		a := fakehttp.Record(t, nil)
		row.o.URL = a.URL + "/" + row.o.URL
		if row.o.AuthToken == "" {
			row.o.AuthToken = token
		}
		if err := newHTTP(t, row.o).Publish(t.Context(), aJob(jobs.Request{})); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := a.Only(t)
		if got := r.Header.Get(row.header); got != row.value || r.RequestURI != row.uri {
			t.Errorf("%s: %q in %s, called %s", name, got, row.header, r.RequestURI)
		}
		// Tokens of keys go to the same place.
		o := row.o
		token := o.AuthToken
		o.Tokens = httpdest.TokensFunc(func(string) (string, bool) { return token, true })
		o.AuthToken = ""
		job := aJob(jobs.Request{})
		job.Key = "alice"
		if err := newHTTP(t, o).Publish(t.Context(), job); err != nil {
			t.Errorf("%s, with a key: %v", name, err)
		}
		if r := a.Requests()[1]; r.Header.Get(row.header) != row.value || r.RequestURI != row.uri {
			t.Errorf("%s, with a key: %v, called %s", name, r.Header, r.RequestURI)
		}
	}
	// A job cannot send a second token.
	a := fakehttp.Record(t, nil)
	refused(t, a, newHTTP(t, httpdest.Options{URL: a.URL, AuthQuery: "api_key", AuthToken: token}), jobs.Request{Query: "a=b&api_key=x"})
	job := aJob(jobs.Request{})
	job.Key = "alice"
	basic := newHTTP(t, httpdest.Options{URL: a.URL, AuthScheme: "Basic", Tokens: httpdest.TokensFunc(func(string) (string, bool) { return "nocolon", true })})
	wantPermanent(t, "no colon", basic.Publish(t.Context(), job), "the token is not of the form user:password, which the scheme Basic sends")
}

// Neither an answer nor an error repeats a token or its password.
func TestHTTPKeepsNoTokenOfAnyPlace(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]httpdest.Options{
		"query": {AuthQuery: "key", AuthToken: "qu3ry/t0ken"},
		"basic": {AuthScheme: "Basic", AuthToken: "me:qu3ry/t0ken"},
		"sign":  {SignSecret: "qu3ry/t0ken"},
	} {
		a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
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
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL, SignSecret: "shared", SignHeader: "x-hub-signature"})
	for i, r := range []jobs.Request{{}, {Encoding: jobs.EncodingForm}, {Encoding: jobs.EncodingMultipart}, {Method: "GET"}} {
		job := aJob(r)
		job.Payload = []byte(`{"a":"b"}`)
		if err := h.Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		got := a.Requests()[i]
		mac := hmac.New(sha256.New, []byte("shared"))
		_, _ = io.WriteString(mac, got.Sent)
		if sent, want := got.Header.Get("X-Hub-Signature"), hex.EncodeToString(mac.Sum(nil)); sent != want {
			t.Errorf("%+v: %q of %q, want %q", r, sent, got.Sent, want)
		}
	}
}

// The key is in the URL as it is, and nowhere but in its place.
func TestHTTPKeyInTheURL(t *testing.T) {
	t.Parallel()
	var hosts []string
	record := func(base string) *httpdest.Destination {
		return newHTTP(t, httpdest.Options{
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
	for want, o := range map[string]httpdest.Options{
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
		"Tokens: is a nil httpdest.TokensFunc":                                                {URL: base, Tokens: httpdest.TokensFunc(nil)},
		"Tokens: is a nil *httpdest.TokensFile":                                               {URL: base, Tokens: (*httpdest.TokensFile)(nil)},
		"Transport: is a nil *http.Transport":                                                 {URL: base, Transport: (*http.Transport)(nil)},
		"Wrap has returned nil":                                                               {URL: base, Wrap: func(http.RoundTripper) http.RoundTripper { return nil }},
		"ResponseBodyBytes: must be from 1 to 1048576, is 1048577":                            {URL: base, ResponseBodyBytes: 1<<20 + 1},
	} {
		if _, err := httpdest.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// As much of an answer is kept as is configured.
func TestHTTPKeepsLargeAnswers(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, answerWith(http.StatusOK, strings.Repeat("x", 1<<20+5)))
	for kept, want := range map[int]int{0: 4096, 100: 100, 1 << 20: 1 << 20} {
		job := aJob(jobs.Request{})
		if err := newHTTP(t, httpdest.Options{URL: a.URL, ResponseBodyBytes: kept}).Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if got := len(job.Response.Body); got != want {
			t.Errorf("ResponseBodyBytes %d: %d bytes are kept, want %d", kept, got, want)
		}
	}
}
