package httpdest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// token is the secret that must show up nowhere but at the API.
const token = `s3cr3t/+"tok&n"=`

func newHTTP(t *testing.T, o httpdest.Options) *httpdest.Destination {
	t.Helper()
	h, err := httpdest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// aJob is a job that a worker has in hand.
func aJob(r jobs.Request) *jobs.Job {
	return &jobs.Job{ID: "job-1", Destination: "d", Payload: []byte(`{}`), Request: r}
}

func answerWith(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestHTTPCallByDefault(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	// Neither compact nor escaped as Go would do it.
	const payload = "{ \"b\" : 1.0,\n\t\"a\":\"\\u00e9<&>é\" }\n"
	job := aJob(jobs.Request{})
	job.Payload = []byte(payload)
	if err := newHTTP(t, httpdest.Options{URL: a.URL + "/v1/posts", AuthToken: token}).Publish(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	r := a.Only(t)
	if r.Method != http.MethodPost || r.RequestURI != "/v1/posts" {
		t.Errorf("%s %s, want POST /v1/posts", r.Method, r.RequestURI)
	}
	if r.Sent != payload || r.ContentLength != int64(len(payload)) {
		t.Errorf("body %q of length %d, want it untouched: %q", r.Sent, r.ContentLength, payload)
	}
	want := http.Header{
		"Accept-Encoding": {"gzip"}, // by net/http, which unpacks the answer
		"Authorization":   {"Bearer " + token},
		"Content-Length":  {fmt.Sprint(len(payload))},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {"job-1"},
		"User-Agent":      {"tidegate"},
	}
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if job.Response == nil || *job.Response != (jobs.Response{Status: 204}) {
		t.Errorf("response %+v, want status 204 without a body", job.Response)
	}
}

func TestHTTPJoinsURLs(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Got", r.RequestURI)
		_, _ = io.WriteString(w, r.RequestURI)
	})
	for _, tc := range []struct{ base, path, query, want string }{
		{"", "", "", "/"},
		{"/", "", "", "/"},
		{"", "/items/7", "", "/items/7"},
		{"/", "/items/7", "", "/items/7"},
		{"/v1", "", "", "/v1"},
		{"/v1/", "", "", "/v1/"},
		{"/v1", "/items/7", "", "/v1/items/7"},
		{"/v1/", "/items/7", "", "/v1/items/7"},
		{"/v1", "/items/", "", "/v1/items/"},
		{"/v1", "/", "", "/v1/"},
		{"/v1/", "/", "", "/v1/"},
		{"/v1#part", "/items", "", "/v1/items"},

		{"", "", "a=b&c=d", "/?a=b&c=d"},
		{"/v1", "/items", "a=b", "/v1/items?a=b"},
		{"/v1?key=1", "", "", "/v1?key=1"},
		{"/v1?key=1", "/items", "", "/v1/items?key=1"},
		{"/v1?key=1", "/items", "a=b&c=2", "/v1/items?key=1&a=b&c=2"},
		{"/v1?", "/items", "a=b", "/v1/items?a=b"},
		{"/v1", "/items", "q=%26%2b+x%20y&e", "/v1/items?q=%26%2b+x%20y&e"},

		{"/v1", "/a%2Fb", "", "/v1/a%2Fb"},
		{"/v1", "/a%2fb%20c%C3%A9", "", "/v1/a%2fb%20c%C3%A9"},
		{"/v%2F1/", "/a%2Fb", "", "/v%2F1/a%2Fb"},
		{"/v1", "/100%25", "", "/v1/100%25"},
		{"/v1", "/a;v=1,2:3@x/(b)!$&'*+=~._-[0]", "", "/v1/a;v=1,2:3@x/(b)!$&'*+=~._-[0]"},
		{"/v1", "/%61", "", "/v1/%61"},
		// What has to be encoded is, and the rest stays as it is.
		{"/v1", "/é", "", "/v1/%C3%A9"},
		{"/v1", "/é/a%2Fb", "", "/v1/%C3%A9/a%2Fb"},
		{"/v1", "/{id}/a%2Fb", "", "/v1/%7Bid%7D/a%2Fb"},
		{"/v1", "/<a>\"^`|/%61", "", "/v1/%3Ca%3E%22%5E%60%7C/%61"},
	} {
		t.Run(tc.base+" "+tc.path+" "+tc.query, func(t *testing.T) {
			t.Parallel()
			job := aJob(jobs.Request{Path: tc.path, Query: tc.query})
			if err := newHTTP(t, httpdest.Options{URL: a.URL + tc.base}).Publish(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if job.Response.Body != tc.want {
				t.Errorf("called %s, want %s", job.Response.Body, tc.want)
			}
		})
	}
}

// A record can be written by others than our client: what leads out of the
// destination fails the job without a call.
func TestHTTPRefusesPathsThatLeaveTheDestination(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL + "/v1", AuthToken: token})
	for path, want := range map[string]string{
		"//evil.example/x": "request.path: must start with exactly one slash; it is appended to the destination's URL",
		"/%2e%2E/admin":    "request.path: must not contain . or .. as a segment, encoded or not",
	} {
		err := h.Publish(t.Context(), aJob(jobs.Request{Path: path}))
		wantPermanent(t, path, err, want)
	}
	err := h.Publish(t.Context(), aJob(jobs.Request{Query: "a=\r\nHost: evil.example"}))
	wantPermanent(t, "query with a line break", err, "request.query: is not a valid URL query; encode it, for instance a=b&c=d%20e")
	if n := len(a.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// wantPermanent checks for a failure that no retry answers.
func wantPermanent(t *testing.T, what string, err error, want string) {
	t.Helper()
	fail, ok := errors.AsType[*jobs.FailError](err)
	if !ok || !fail.Permanent || err.Error() != want {
		t.Errorf("%s: %v (%T), want for good: %s", what, err, err, want)
	}
}

func TestHTTPHeaderPrecedence(t *testing.T) {
	t.Parallel()
	a := fakehttp.Record(t, nil)
	o := httpdest.Options{
		URL: a.URL,
		Header: http.Header{
			"content-type":      {"application/vnd.api+json"},
			"User-Agent":        {"ours/1"},
			"X-From":            {"destination"},
			"X-List":            {"1", "2"},
			"X-Only":            {"destination"},
			"X-Idempotency-Key": {"destination"},
		},
	}
	h := newHTTP(t, o)
	o.Header.Set("X-Only", "changed afterwards")
	job := aJob(jobs.Request{Headers: map[string]string{"x-own": "job"}})
	for range 2 { // the first call must leave nothing behind for the second
		if err := h.Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		job.Request.Headers = map[string]string{}
	}
	want := []http.Header{{
		"Accept-Encoding": {"gzip"}, "Content-Length": {"2"}, "Idempotency-Key": {"job-1"},
		"Content-Type": {"application/vnd.api+json"}, "User-Agent": {"ours/1"}, "X-From": {"destination"}, "X-List": {"1", "2"}, "X-Only": {"destination"}, "X-Idempotency-Key": {"destination"}, "X-Own": {"job"},
	}, {
		"Accept-Encoding": {"gzip"}, "Content-Length": {"2"}, "Idempotency-Key": {"job-1"},
		"Content-Type": {"application/vnd.api+json"}, "User-Agent": {"ours/1"}, "X-From": {"destination"}, "X-List": {"1", "2"}, "X-Only": {"destination"}, "X-Idempotency-Key": {"destination"},
	}}
	var got []http.Header
	for _, r := range a.Requests() {
		got = append(got, r.Header)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestHTTPDeniedHeadersAreNeverSent(t *testing.T) {
	t.Parallel()
	const value = "from-the-job"
	a := fakehttp.Record(t, nil)
	h := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: token})
	for _, headers := range []map[string]string{
		{"bad name": value}, {"": value}, {"X-Bad\r\nX-Injected": value}, // no names
		{"X-Break": value + "\r\nX-Injected: " + value}, {"X-Null": value + "\x00"}, // no values
		{"X-Good": "good", "Host": value},
	} {
		refused(t, a, h, jobs.Request{Headers: headers})
	}
	for _, name := range []string{
		"Authorization", "Host", "Idempotency-Key", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Upgrade", "Expect", "Accept-Encoding",
	} {
		for _, spelled := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			refusedAtOnce(t, a, h, jobs.Request{Headers: map[string]string{spelled: value}})
		}
	}
}

func TestHTTPIdempotencyKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		perAttempt bool
		edits      int
		want       []string
	}{
		{false, 0, []string{"job-1", "job-1", "job-1"}},
		{true, 0, []string{"job-1:0", "job-1:1", "job-1:2"}},
		{false, 1, []string{"job-1:edit-1", "job-1:edit-1", "job-1:edit-1"}},
		{true, 2, []string{"job-1:edit-2:0", "job-1:edit-2:1", "job-1:edit-2:2"}},
	} {
		a := fakehttp.Record(t, answerWith(500, ""))
		h := newHTTP(t, httpdest.Options{URL: a.URL, PerAttemptKey: tc.perAttempt})
		for attempt := range 3 {
			job := aJob(jobs.Request{})
			job.Attempt, job.Edits = attempt, tc.edits
			_ = h.Publish(t.Context(), job) // answered 500
		}
		var got []string
		for _, r := range a.Requests() {
			got = append(got, r.Header.Values("Idempotency-Key")...)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("per attempt %t: keys (-want +got):\n%s", tc.perAttempt, diff)
		}
	}
}

func TestHTTPRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := fakehttp.Record(t, nil)
	for status, name := range map[int]string{
		301: "Moved Permanently", 302: "Found", 303: "See Other", 307: "Temporary Redirect", 308: "Permanent Redirect", 300: "Multiple Choices",
	} {
		for _, location := range []string{other.URL + "/", "/elsewhere", "", "http://[::1/broken?" + token} {
			a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "gone away")
			})
			job := aJob(jobs.Request{})
			err := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: token}).Publish(t.Context(), job)
			wantPermanent(t, fmt.Sprintf("%d to %q", status, location), err,
				fmt.Sprintf("answered %d %s: redirects are not followed; set the destination's URL to the final address", status, name))
			if job.Response == nil || *job.Response != (jobs.Response{Status: status, Body: "gone away"}) {
				t.Errorf("%d to %q: response %+v", status, location, job.Response)
			}
			a.Only(t)
		}
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("%d requests reached the other host", n)
	}
}

func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	const (
		done = iota
		limited
		failed
		forGood
	)
	custom := httpdest.Options{RateLimitedStatus: []int{403, 429}, PermanentStatus: []int{418, 503, 599}}
	for _, tc := range []struct {
		o      httpdest.Options
		status int
		want   int
		text   string
	}{
		{status: 200, want: done},
		{status: 201, want: done},
		{status: 202, want: done},
		{status: 204, want: done},
		{status: 299, want: done},
		{status: 304, want: failed, text: "answered 304 Not Modified"},
		{status: 400, want: forGood, text: "answered 400 Bad Request"},
		{status: 401, want: forGood, text: "answered 401 Unauthorized"},
		{status: 403, want: failed, text: "answered 403 Forbidden"},
		{status: 404, want: forGood, text: "answered 404 Not Found"},
		{status: 408, want: failed, text: "answered 408 Request Timeout"},
		{status: 409, want: forGood, text: "answered 409 Conflict"},
		{status: 410, want: forGood, text: "answered 410 Gone"},
		{status: 413, want: forGood, text: "answered 413 Request Entity Too Large"},
		{status: 415, want: forGood, text: "answered 415 Unsupported Media Type"},
		{status: 422, want: forGood, text: "answered 422 Unprocessable Entity"},
		{status: 429, want: limited, text: "rate limited, retry after 7s"},
		{status: 500, want: limited, text: "rate limited, retry after 7s"},
		{status: 502, want: limited, text: "rate limited, retry after 7s"},
		{status: 503, want: limited, text: "rate limited, retry after 7s"},
		{status: 599, want: limited, text: "rate limited, retry after 7s"},

		{o: custom, status: 200, want: done},
		{o: custom, status: 403, want: limited, text: "rate limited, retry after 7s"},
		{o: custom, status: 429, want: limited, text: "rate limited, retry after 7s"},
		{o: custom, status: 404, want: failed, text: "answered 404 Not Found"},
		{o: custom, status: 418, want: forGood, text: "answered 418 I'm a teapot"},
		{o: custom, status: 503, want: forGood, text: "answered 503 Service Unavailable"},
		{o: custom, status: 599, want: forGood, text: "answered 599"},
		{o: httpdest.Options{RateLimitedStatus: []int{503}}, status: 429, want: failed, text: "answered 429 Too Many Requests"},
		// None at all: everything else is a failure.
		{o: httpdest.Options{RateLimitedStatus: []int{}, PermanentStatus: []int{}}, status: 429, want: failed, text: "answered 429 Too Many Requests"},
		{o: httpdest.Options{RateLimitedStatus: []int{}, PermanentStatus: []int{}}, status: 400, want: failed, text: "answered 400 Bad Request"},
	} {
		t.Run(fmt.Sprint(tc.status, tc.o.RateLimitedStatus, tc.o.PermanentStatus), func(t *testing.T) {
			t.Parallel()
			a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tc.status)
			})
			tc.o.URL = a.URL
			job := aJob(jobs.Request{})
			err := newHTTP(t, tc.o).Publish(t.Context(), job)
			var rateLimited *jobs.RateLimitedError
			var fail *jobs.FailError
			got, text := done, ""
			switch {
			case errors.As(err, &rateLimited):
				got = limited
			case errors.As(err, &fail) && fail.Permanent:
				got = forGood
			case err != nil:
				got = failed
			}
			if err != nil {
				text = err.Error()
			}
			if got != tc.want || text != tc.text {
				t.Errorf("outcome %d %q, want %d %q", got, text, tc.want, tc.text)
			}
			if job.Response == nil || job.Response.Status != tc.status {
				t.Errorf("response %+v, want status %d", job.Response, tc.status)
			}
		})
	}
}

// metered counts the bytes of answers that are taken from it.
type metered struct {
	http.RoundTripper
	read *atomic.Int64
}

type meteredBody struct {
	io.ReadCloser
	read *atomic.Int64
}

func (m metered) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = meteredBody{resp.Body, m.read}
	}
	return resp, err
}

func (m meteredBody) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.read.Add(int64(n))
	return n, err
}

func TestHTTPReadsAndKeepsLittleOfAnswers(t *testing.T) {
	t.Parallel()
	// 4096 bytes end in the middle of a character.
	huge := "x" + strings.Repeat("é", 5<<20)
	want := huge[:4095]
	for _, packed := range []bool{false, true} {
		a := fakehttp.Record(t, func(w http.ResponseWriter, _ *http.Request) {
			out := io.Writer(w)
			if packed { // a few KB on the wire
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				defer z.Close()
				out = z
			}
			_, _ = io.WriteString(out, huge) // fails when the client has had enough
		})
		own := &http.Transport{}
		t.Cleanup(own.CloseIdleConnections)
		var read atomic.Int64
		job := aJob(jobs.Request{})
		if err := newHTTP(t, httpdest.Options{URL: a.URL, Transport: metered{own, &read}}).Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if got := job.Response.Body; got != want || !utf8.ValidString(got) {
			t.Errorf("packed %t: kept %d bytes, %q…, want %d bytes of valid UTF-8", packed, len(got), got[:min(len(got), 20)], len(want))
		}
		if n := read.Load(); n > 64<<10 {
			t.Errorf("packed %t: read %d bytes of the answer, want at most 64 KiB", packed, n)
		}
	}
}

func TestHTTPKeptAnswerIsClean(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, body, want string }{
		{"control characters", "a\x00b\x07c\r\nd\te\x7ff\u0085g", "abc\nd\tefg"},
		{"terminal escapes", "\x1b[31mred\x1b[0m \x1b]0;title\x07\u009b2J", "[31mred[0m ]0;title2J"},
		{"reordered text", "a\u202eb\u2066c\u2028d", "abcd"},
		{"broken UTF-8", "a\xff\xfeb", "a\ufffdb"},
		{"token", "Bearer " + token + "; " + token, "Bearer [redacted]; [redacted]"},
		{"token in JSON", `{"got":"s3cr3t/+\"tok&n\"="}`, `{"got":"[redacted]"}`},
		{"token in JSON with escaped slashes", `{"got":"s3cr3t\/+\"tok&n\"="}`, `{"got":"[redacted]"}`},
		{"token in Go's JSON", `{"got":"s3cr3t/+\"tok\u0026n\"="}`, `{"got":"[redacted]"}`},
		{"token in a URL", "/?t=s3cr3t%2F%2B%22tok%26n%22%3D", "/?t=[redacted]"},
		{"token in HTML", "<b>s3cr3t/+&#34;tok&amp;n&#34;=</b>", "<b>[redacted]</b>"},
		{"token with controls in it", "s3cr3t/\x00+\"tok\x1b&n\"=", "[redacted]"},
		{"token at the cut", strings.Repeat("x", 4090) + token, strings.Repeat("x", 4090) + "[redac"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{200, 404, 429, 500} {
				a := fakehttp.Record(t, answerWith(status, tc.body))
				job := aJob(jobs.Request{})
				err := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: token}).Publish(t.Context(), job)
				if (err == nil) != (status == 200) {
					t.Errorf("answer %d: %v", status, err)
				}
				if job.Response == nil || *job.Response != (jobs.Response{Status: status, Body: tc.want}) {
					t.Errorf("answer %d: kept %+v, want %q", status, job.Response, tc.want)
				}
			}
		})
	}
}

// The status has arrived: a body that never ends does not change the outcome.
func TestHTTPBodyThatNeverEnds(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{"200 OK": "", "500 Oops": "answered 500 Internal Server Error"} {
		url := rawServer(t, func(c net.Conn, _, _ int) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 100\r\n\r\npart")
			_, _ = c.Read(make([]byte, 1)) // until the client hangs up
			return false
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		job := aJob(jobs.Request{})
		got := errorText(newHTTP(t, httpdest.Options{URL: url}).Publish(ctx, job))
		if cancel(); got != want {
			t.Errorf("%s: error %q, want %q", status, got, want)
		}
		if job.Response == nil || job.Response.Body != "part" {
			t.Errorf("%s: response %+v", status, job.Response)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// rawServer speaks HTTP by hand. For each request that it has read in full it
// calls answer with the numbers, from 1, of the connection and of the request
// on it; false closes the connection.
func rawServer(t *testing.T, answer func(c net.Conn, connection, request int) bool) (url string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for connection := 1; ; connection++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer stop()
				defer c.Close()
				in := bufio.NewReader(c)
				for request := 1; ; request++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, r.Body); err != nil || !answer(c, connection, request) {
						return
					}
				}
			})
		}
	})
	return "http://" + l.Addr().String()
}

// net/http repeats some calls by itself when a reused connection breaks, as often as that happens. We
// do so once, if the limits have room, for any method.
func TestHTTPRepeatsACallOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		o    httpdest.Options
		r    jobs.Request
	}{
		{name: "POST"},
		{name: "PUT", o: httpdest.Options{Method: "PUT"}},
		{name: "GET", o: httpdest.Options{Method: "GET"}},
		{name: "HEAD", o: httpdest.Options{Method: "HEAD"}},
		{name: "OPTIONS", o: httpdest.Options{Method: "OPTIONS"}},
		{name: "a job's own key", r: jobs.Request{Headers: map[string]string{"X-Idempotency-Key": "theirs"}}},
		{name: "a destination's own key", o: httpdest.Options{Header: http.Header{"X-Idempotency-Key": {"theirs"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var requests, connections atomic.Int32
			url := rawServer(t, func(c net.Conn, connection, request int) bool {
				requests.Add(1)
				connections.Store(int32(connection))
				if connection == 1 && request == 2 || connection == 2 {
					return false // read, perhaps acted upon, and not answered
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				return true
			})
			tc.o.URL = url
			h := newHTTP(t, tc.o)
			if err := h.Publish(t.Context(), aJob(tc.r)); err != nil {
				t.Fatal(err)
			}
			job := aJob(tc.r)
			err := h.Publish(t.Context(), job)
			if requests.Load() != 3 || connections.Load() != 2 {
				t.Errorf("%d requests on %d connections for two calls, want 3 on 2", requests.Load(), connections.Load())
			}
			var fail *jobs.FailError
			if err == nil || errors.As(err, &fail) || !strings.HasPrefix(err.Error(), "call failed: ") {
				t.Errorf("the call that was not answered: %v (%T), want a failure that may be retried", err, err)
			}
			if job.Response != nil {
				t.Errorf("response %+v to a call without an answer", job.Response)
			}
			if err := h.Publish(t.Context(), aJob(tc.r)); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

func TestHTTPErrorsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	garbage := rawServer(t, func(c net.Conn, _, _ int) bool {
		_, _ = io.WriteString(c, "unauthorized:\x1b[31m"+token+"\r\n\r\n")
		return false
	})
	silent := rawServer(t, func(net.Conn, int, int) bool { return false })
	for _, tc := range []struct {
		name, base, want string
		is               error
	}{
		// Nothing listens on port 1.
		{"connection refused", "http://127.0.0.1:1", "the call was not sent: dial tcp 127.0.0.1:1: connect: connection refused", syscall.ECONNREFUSED},
		{"no answer", silent, "call failed: EOF", io.EOF},
		{"no HTTP", garbage, `call failed: net/http: HTTP/1.x transport connection broken: malformed HTTP response "unauthorized:\x1b[31m[redacted]"`, nil},
		{"TLS expected", strings.Replace(fakehttp.Record(t, nil).URL, "http:", "https:", 1), "the call was not sent: http: server gave HTTP response to HTTPS client", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHTTP(t, httpdest.Options{URL: tc.base + "/hidden-path?key=hidden-query", AuthToken: token, Header: http.Header{"X-Api-Key": {"hidden-header"}}})
			job := aJob(jobs.Request{Path: "/hidden-job", Query: "q=hidden-too"})
			err := h.Publish(t.Context(), job)
			if got := errorText(err); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is not %v", err, tc.is)
			}
			var fail *jobs.FailError
			if errors.As(err, &fail) || job.Response != nil {
				t.Errorf("%T with response %+v, want a failure that may be retried and no response", err, job.Response)
			}
			for _, format := range []string{"%v", "%+v", "%#v"} {
				if s := fmt.Sprintf(format, err); strings.Contains(s, "hidden") || strings.Contains(s, "s3cr3t") || strings.Contains(s, "\x1b") {
					t.Errorf("printed with %s it tells %q", format, s)
				}
			}
		})
	}
}

func TestHTTPTimeoutAndCancellation(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 2)
	a := fakehttp.Record(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done() // the client has hung up
	})
	h := newHTTP(t, httpdest.Options{URL: a.URL, AuthToken: token})

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := h.Publish(ctx, aJob(jobs.Request{}))
	if !errors.Is(err, context.DeadlineExceeded) || errorText(err) != "no answer within the destination's timeout: context deadline exceeded" {
		t.Errorf("after the timeout: %v", err)
	}
	<-arrived

	reason := errors.New("the worker is shutting down")
	cancelled, cut := context.WithCancelCause(t.Context())
	go func() { <-arrived; cut(reason) }()
	err = h.Publish(cancelled, aJob(jobs.Request{}))
	if !errors.Is(err, reason) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cut by a shutdown: %v", err)
	}
}

func TestHTTPReusesConnections(t *testing.T) {
	t.Parallel()
	const rounds, concurrency = 10, 10
	arrived, goOn := make(chan struct{}, concurrency), make(chan struct{})
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- struct{}{}
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		_, _ = w.Write(body)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	h := newHTTP(t, httpdest.Options{URL: s.URL, Connections: concurrency})
	for range rounds {
		var wg sync.WaitGroup
		for range concurrency {
			wg.Go(func() {
				job := aJob(jobs.Request{})
				job.Payload = bytes.Repeat([]byte("1"), 10<<10) // more is answered than is kept
				if err := h.Publish(t.Context(), job); err != nil {
					t.Error(err)
				}
			})
		}
		// No answer before all calls are there: each needs a connection, and
		// afterwards all of them are idle at once.
		for range concurrency {
			select {
			case <-arrived:
			case <-time.After(time.Minute):
				t.Fatal("a call did not reach the API within a minute")
			}
		}
		for range concurrency {
			goOn <- struct{}{}
		}
		wg.Wait()
	}
	if n := connections.Load(); n != concurrency {
		t.Errorf("%d connections for %d calls, %d at once; want %d", n, rounds*concurrency, concurrency, concurrency)
	}
}

func TestHTTPCloseDropsIdleConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	h := newHTTP(t, httpdest.Options{URL: s.URL})
	if err := h.Publish(t.Context(), aJob(jobs.Request{})); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	const prefix = "httpdest: new: "
	for _, tc := range []struct {
		name string
		o    httpdest.Options
		want string
	}{
		{"no URL", httpdest.Options{}, prefix + "URL: must be absolute and start with http:// or https://"},
		{"no scheme", httpdest.Options{URL: "api.example.com/v1"}, prefix + "URL: must be absolute and start with http:// or https://"},
		{"another scheme", httpdest.Options{URL: "ftp://api.example.com"}, prefix + "URL: must be absolute and start with http:// or https://"},
		{"no host", httpdest.Options{URL: "https:///v1"}, prefix + "URL: must be absolute and start with http:// or https://"},
		{"only a port", httpdest.Options{URL: "https://:443/v1"}, prefix + "URL: must be absolute and start with http:// or https://"},
		{"unreadable", httpdest.Options{URL: "https://s3cr3t:x y@host/%zz"}, prefix + "URL: cannot be parsed; expected https://host/path"},
		{"credentials", httpdest.Options{URL: "https://user:s3cr3t@host"}, prefix + "URL: must not hold a user or a password; use AuthToken"},
		{"all at once", httpdest.Options{
			URL: "https://user:s3cr3t@host", Method: "PO ST", AuthToken: "s3cr3t\n", Connections: -1,
			Header: http.Header{"X-B": {"s3cr3t\r\n"}, "X A": {"1"}, "host": {"other"}, "Idempotency-Key": {"1"}},
		}, prefix + strings.Join([]string{
			"URL: must not hold a user or a password; use AuthToken",
			`method "PO ST" is no HTTP method`,
			"AuthToken: has characters that a header must not have (a line break at its end?)",
			"header Idempotency-Key: is set by Tidegate; take it out",
			`header "X A": is not a header name`,
			"header X-B: has characters that a header must not have (a line break at its end?)",
			"header host: is taken from the URL; take it out",
			"connections must not be negative, is -1",
		}, "\n")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h, err := httpdest.New(tc.o)
			if h != nil || errorText(err) != tc.want {
				t.Errorf("New: %v, want %s", err, tc.want)
			}
		})
	}
}

// From here on the whole way, through a Publisher on a real Redis.
