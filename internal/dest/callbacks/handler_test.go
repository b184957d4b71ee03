package callbacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/jobs"
)

// aJob is one as the relay enqueues it.
func aJob(destination string) *jobs.Job {
	return &jobs.Job{
		ID: destination + ":default:1763762400000-0", Destination: Destination, Key: destination,
		Payload: []byte(`{"type":"job.completed","timestamp":"2026-11-21T10:00:00Z","data":{"id":"a"}}`),
	}
}

// withoutRedis makes a Callbacks that needs no Redis.
func withoutRedis(t *testing.T, receivers ...Receiver) *Callbacks {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := New(rdb, Options{Receivers: receivers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// outcome is the outcome of a job, in short.
func outcome(err error) string {
	if err == nil {
		return "delivered"
	}
	if e, ok := errors.AsType[*jobs.RateLimitedError](err); ok {
		return fmt.Sprintf("paused %s %s", e.Scope, e.RetryAfter)
	}
	if e, ok := errors.AsType[*jobs.RescheduleError](err); ok {
		return fmt.Sprintf("rescheduled %s", e.Delay)
	}
	if e, ok := errors.AsType[*jobs.FailError](err); ok && e.Permanent {
		return "given up"
	}
	return "failed"
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
		says   string // the error's text
		body   string // that is kept
	}{
		{name: "200", answer: status(200), want: "delivered", body: "as you like it"},
		{name: "204", answer: nil, want: "delivered"},
		{name: "299", answer: status(299), want: "delivered", body: "as you like it"},
		{name: "410", answer: status(410), want: "given up", says: "the receiver answered 410 Gone: it wants no more of these callbacks", body: "as you like it"},
		{name: "429 with seconds", answer: status(429, "Retry-After", "7"), want: "paused user 7s", says: "the receiver answered 429 Too Many Requests", body: "as you like it"},
		{name: "429 with a date", answer: status(429, "Date", "Sat, 21 Nov 2026 10:00:00 GMT", "Retry-After", "Sat, 21 Nov 2026 10:01:00 GMT"), want: "paused user 1m1s", says: "the receiver answered 429 Too Many Requests", body: "as you like it"},
		{name: "429 without", answer: status(429), want: "paused user 0s", says: "the receiver answered 429 Too Many Requests", body: "as you like it"},
		{name: "503 with seconds", answer: status(503, "Retry-After", "2"), want: "paused user 2s", says: "the receiver answered 503 Service Unavailable", body: "as you like it"},
		{name: "529 with seconds", answer: status(529, "Retry-After", "2"), want: "paused user 2s", says: "the receiver answered 529", body: "as you like it"},
		{name: "503 without", answer: status(503), want: "failed", says: "the receiver answered 503 Service Unavailable", body: "as you like it"},
		{name: "503 with nonsense", answer: status(503, "Retry-After", "soon"), want: "failed", says: "the receiver answered 503 Service Unavailable", body: "as you like it"},
		{name: "500", answer: status(500), want: "failed", says: "the receiver answered 500 Internal Server Error", body: "as you like it"},
		{name: "400", answer: status(400), want: "failed", says: "the receiver answered 400 Bad Request", body: "as you like it"},
		{name: "304", answer: status(304), want: "failed", says: "the receiver answered 304 Not Modified"},
		{
			name: "elsewhere", answer: status(302, "Location", "https://other.example/hook?token=hunter22"), want: "failed",
			says: "the receiver answered 302 Found, a redirect to https://other.example: redirects are not followed; set CALLBACK_URL to the final address", body: "as you like it",
		},
		{
			name: "elsewhere with the body", answer: status(308, "Location", "//user:hunter22@other.example:81/hunter22"), want: "failed",
			says: "the receiver answered 308 Permanent Redirect, a redirect to http://other.example:81: redirects are not followed; set CALLBACK_URL to the final address", body: "as you like it",
		},
		{
			name: "nowhere", answer: status(301, "Location", "http://[::1/%zz"), want: "failed",
			says: "the receiver answered 301 Moved Permanently, a redirect: redirects are not followed; set CALLBACK_URL to the final address", body: "as you like it",
		},
		{
			name: "10 MB", want: "delivered", body: big[:maxKept],
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				for range 10 {
					if _, err := io.WriteString(w, big); err != nil {
						return
					}
				}
			},
		},
		{
			name: "500 of 10 MB", want: "failed", says: "the receiver answered 500 Internal Server Error", body: big[:maxKept],
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				for range 10 {
					if _, err := io.WriteString(w, big); err != nil {
						return
					}
				}
			},
		},
		{
			name: "control characters", want: "delivered", body: "a[31mb\ufffd\nc",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				_, _ = io.WriteString(w, "a\x1b[31m\x00b\xff\nc")
			},
		},
		{
			name: "hangs up", want: "paused user 0s", says: "the receiver cannot be reached: EOF",
			answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		},
		{
			name: "hangs up in its body", want: "delivered", body: "part",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(http.StatusOK)
				_, _ = io.WriteString(w, "part")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := listen(t, tc.answer, secretOne, secretTwo)
			job := aJob("shop")
			err := withoutRedis(t, e.receiver("shop")).Publish(t.Context(), job)
			if got := outcome(err); got != tc.want {
				t.Errorf("it is %s (%v), want %s", got, err, tc.want)
			}
			if err != nil && err.Error() != tc.says {
				t.Errorf("error %q, want %q", err, tc.says)
			}
			switch {
			case strings.HasSuffix(tc.says, "EOF"):
				if job.Response != nil {
					t.Errorf("response %+v, want none", job.Response)
				}
			case job.Response == nil || job.Response.Body != tc.body:
				t.Errorf("response %.100v, want the body %.100q", job.Response, tc.body)
			}
			e.await("a call", func() bool { return len(e.all()) == 1 })
			h := e.all()[0]
			if h.id != job.ID || !bytes.Equal(h.raw, job.Payload) {
				t.Errorf("received %s %s", h.id, h.raw)
			}
			for name, want := range map[string]string{"Content-Type": "application/json", "User-Agent": "tidegate"} {
				if got := h.header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

// The wait for a slow receiver is bounded, in whatever part of the answer.
func TestSlowReceivers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		answer func(release <-chan struct{}) http.HandlerFunc
		want   string
	}{
		{"no answer", func(release <-chan struct{}) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { <-release }
		}, "paused user 0s: the receiver did not answer within 2s"},
		{"a slow body", func(release <-chan struct{}) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				_, _ = io.WriteString(w, "a")
				_ = http.NewResponseController(w).Flush()
				<-release
			}
		}, "delivered: <nil>"},
		{"a slow body of an error", func(release <-chan struct{}) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, "a")
				_ = http.NewResponseController(w).Flush()
				<-release
			}
		}, "failed: the receiver answered 500 Internal Server Error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			e := listen(t, tc.answer(release))
			t.Cleanup(func() { close(release) })
			c := withoutRedis(t, e.receiver("shop"))
			c.receivers["shop"].timeout = 2 * time.Second
			began := time.Now()
			err := c.Publish(t.Context(), aJob("shop"))
			if got := fmt.Sprintf("%s: %v", outcome(err), err); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(secure.Close)
	for name, tc := range map[string]struct{ url, want string }{
		"nobody listens":      {gone.URL, "connection refused"},
		"no such host":        {"http://nowhere.invalid/hook", "nowhere.invalid"},
		"no TLS":              {"https" + strings.TrimPrefix(plain.URL, "http"), "does not look like a TLS handshake"},
		"unknown certificate": {secure.URL, "certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := withoutRedis(t, Receiver{Destination: "shop", URL: tc.url, Secrets: []string{secretOne}}).Publish(t.Context(), aJob("shop"))
			if outcome(err) != "paused user 0s" || !strings.HasPrefix(err.Error(), "the receiver cannot be reached: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it is %s: %v", outcome(err), err)
			}
		})
	}
}

// A call that the worker interrupts is no failure of the receiver, and no failed try.
func TestCutCalls(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	e := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-called
		cancel()
	}()
	err := withoutRedis(t, e.receiver("shop")).Publish(ctx, aJob("shop"))
	if !errors.Is(err, context.Canceled) || outcome(err) != "failed" {
		t.Errorf("it is %s: %v", outcome(err), err)
	}
}

// Secrets in an address are sent, and shown nowhere.
func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	var log loggingtest.Buffer
	echo := func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "ann" || password != "hunter22:x/y" || r.URL.RawQuery != "token=s3cr3t-t0ken&v=1" || r.URL.Path != "/hooks/B0123456789ABCDEFGH" {
			t.Errorf("called as %s:%s at %s", user, password, r.URL)
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "cannot POST %s for %s (%s:%s) by %s %s", r.RequestURI, r.Header.Get("Authorization"), user, password, secretOne, secretOne[6:])
	}
	e := listen(t, echo)
	at := func(base string) string {
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		u.User, u.Path, u.RawQuery = url.UserPassword("ann", "hunter22:x/y"), "/hooks/B0123456789ABCDEFGH", "token=s3cr3t-t0ken&v=1"
		return u.String()
	}
	secrets := []string{"hunter22", "s3cr3t", "B0123456789ABCDEFGH", secretOne[6:], "YW5uOmh1bnRlcjIyOngveQ=="}
	show := func(what, text string) {
		t.Helper()
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s shows %s: %s", what, s, text)
			}
		}
	}
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	for name, base := range map[string]string{"an echo": e.server.URL, "nobody": "http://127.0.0.1:1", "no host": "http://nowhere.invalid"} {
		c, err := New(rdb, Options{Receivers: []Receiver{{Destination: "shop", URL: at(base), Secrets: []string{secretOne}}}, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		job := aJob("shop")
		err = c.Publish(t.Context(), job)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		show("the error of "+name, fmt.Sprintf("%v %+v %#v %s", err, err, err, errors.Unwrap(err)))
		if job.Response != nil {
			show("what is kept of the answer of "+name, job.Response.Body)
			if !strings.HasPrefix(job.Response.Body, "cannot POST /hooks/[redacted]?token=[redacted]&v=1 for Basic [redacted] (") {
				t.Errorf("kept of the answer: %s", job.Response.Body)
			}
		}
		show("a Receiver's printed form", fmt.Sprintf("%v %+v", c.receivers["shop"].secrets, c.receivers["shop"].secrets))
		_ = c.Close()
	}
	_, err := New(rdb, Options{Receivers: []Receiver{
		{Destination: "shop", URL: "http://ann:hunter22@%zz/s3cr3t", Secrets: []string{"s3cr3t"}},
		{Destination: "blog", URL: "ftp://ann:hunter22@a/s3cr3t", Secrets: []string{"whsec_s3cr3t"}},
	}})
	if err == nil {
		t.Fatal("wrong options are taken")
	}
	show("the error of wrong options", err.Error())
	show("the log", log.String())
}

func TestWrongOptionsAreReportedTogether(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	good := []string{secretOne}
	_, err := New(rdb, Options{Receivers: []Receiver{
		{Destination: "Shop!", URL: "https://a.example", Secrets: good},
		{Destination: Destination, URL: "https://a.example", Secrets: good},
		{Destination: "blog", URL: "https://a.example", Secrets: nil},
		{Destination: "news", URL: "a.example/hook", Secrets: []string{secretOne, "whsec_AAAA"}},
		{Destination: "twice", URL: "https://a.example", Secrets: good},
		{Destination: "twice", URL: "https://a.example", Secrets: good},
	}})
	if err == nil {
		t.Fatal("they are taken")
	}
	for _, want := range []string{
		`"Shop!" is not a valid name of a destination`,
		"receiver of tidegate-callbacks: jobs of Tidegate's own destinations have no callbacks",
		"receiver of blog: there is no secret; make one with",
		"receiver of news: the URL must be absolute and start with http:// or https://",
		"receiver of news: secret 2 has 3 bytes behind whsec_, must have 24 to 64; make one with",
		"receiver of twice: it has another receiver",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no Redis client is taken")
	}
}

// A callback of an unknown receiver is left to other workers.
func TestUnknownReceiver(t *testing.T) {
	t.Parallel()
	e := listen(t, nil)
	err := withoutRedis(t, e.receiver("shop")).Publish(t.Context(), aJob("blog"))
	if got := outcome(err); got != "rescheduled 1m0s" {
		t.Errorf("it is %s: %v", got, err)
	}
	if n := len(e.all()); n != 0 {
		t.Errorf("%d calls to another receiver", n)
	}
}
