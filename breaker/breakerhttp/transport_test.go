package breakerhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// What the answers in turn make of a breaker with threshold 2.
func TestAnswersAreJudged(t *testing.T) {
	t.Parallel()
	github := func(resp *http.Response) bool {
		return resp.StatusCode == http.StatusForbidden && resp.Header.Get("X-Ratelimit-Remaining") == "0"
	}
	empty := http.Header{"X-Ratelimit-Remaining": {"0"}}
	for _, test := range []struct {
		name    string
		options []breakerhttp.Option
		answers []fakeapi.Answer
		want    breaker.State
		counted int
	}{
		{name: "none is limited", answers: answers(201, 204, 400, 404)},
		{
			name: "nil options are ignored", options: []breakerhttp.Option{nil, breakerhttp.Key(nil), breakerhttp.Logger(nil), breakerhttp.RateLimitedIf(nil), breakerhttp.Hints(hint.Dialect{})},
			answers: answers(201, 429), counted: 1,
		},
		{name: "one 429", answers: answers(201, 429), counted: 1},
		{name: "two", answers: answers(429, 429), want: breaker.Open, counted: 2},
		{name: "a success between them", answers: answers(429, 201, 429), counted: 1},
		{name: "a 404 says that the API accepts calls", answers: answers(429, 404, 429), counted: 1},
		{name: "a 500 between them neither counts nor resets", answers: answers(429, 500, 429), want: breaker.Open, counted: 2},
		{name: "a connection that broke does not, either", answers: []fakeapi.Answer{{Status: 429}, {Drop: true, Status: 200}, {Status: 429}}, want: breaker.Open, counted: 2},
		{name: "Retry-After opens at once", answers: []fakeapi.Answer{{Status: 429, Header: http.Header{"Retry-After": {"60"}}}}, want: breaker.Open, counted: 1},
		{name: "and that of a 5xx", answers: []fakeapi.Answer{{Status: 503, Header: http.Header{"Retry-After": {"60"}}}}, want: breaker.Open, counted: 1},
		{name: "whatever its number", answers: []fakeapi.Answer{{Status: 529, Header: http.Header{"Retry-After": {"60"}}}}, want: breaker.Open, counted: 1},
		{name: "but not one that is not valid", answers: []fakeapi.Answer{{Status: 503, Header: http.Header{"Retry-After": {"soon"}}}}},
		{name: "nor that of a 404", answers: []fakeapi.Answer{{Status: 404, Header: http.Header{"Retry-After": {"60"}}}}},
		{name: "nor where no header is trusted", options: []breakerhttp.Option{breakerhttp.Hints()}, answers: []fakeapi.Answer{{Status: 503, Header: http.Header{"Retry-After": {"60"}}}}},
		{
			name: "unless 503 means limited", options: []breakerhttp.Option{breakerhttp.RateLimitedStatus(429, 503)},
			answers: []fakeapi.Answer{{Status: 503, Header: http.Header{"Retry-After": {"60"}}}}, want: breaker.Open, counted: 1,
		},
		{name: "another status instead of 429", options: []breakerhttp.Option{breakerhttp.RateLimitedStatus(420)}, answers: answers(429, 420), counted: 1},
		{
			name: "of 403 those that say so", options: []breakerhttp.Option{breakerhttp.RateLimitedStatus(403)},
			answers: []fakeapi.Answer{{Status: 403}, {Status: 403, Header: empty}}, counted: 1,
		},
		{
			name: "a function decides", options: []breakerhttp.Option{breakerhttp.RateLimitedIf(github)},
			answers: []fakeapi.Answer{{Status: 403}, {Status: 403, Header: empty}}, counted: 1,
		},
		{
			name: "no hints are believed", options: []breakerhttp.Option{breakerhttp.Hints()},
			answers: []fakeapi.Answer{{Status: 429, Header: http.Header{"Retry-After": {"60"}}}}, counted: 1,
		},
		{
			name: "only those of another dialect", options: []breakerhttp.Option{breakerhttp.Hints(hint.XRateLimit)},
			answers: []fakeapi.Answer{{Status: 429, Header: http.Header{"Retry-After": {"60"}}}}, counted: 1,
		},
		{
			name: "nothing is left", answers: []fakeapi.Answer{{Status: 200, Header: http.Header{"Ratelimit": {`"a";r=0;t=60`}}}},
			want: breaker.Open,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fake, url := api(t, fakeapi.Options{})
			i := join(t, redistest.Shared(t).Client(t), breaker.Options{
				Destination: redistest.Name(t, "judged"), FailureThreshold: 2, Cooldown: time.Minute,
			}, test.options...)
			fake.Queue(test.answers...)
			for _, answer := range test.answers {
				status, err := i.call(t.Context(), url)
				if answer.Drop != (err != nil) || err == nil && status != answer.Status {
					t.Fatalf("call: %d, %v; the API answered %d", status, err, answer.Status)
				}
			}
			if v := i.breaker.View(); v.State != test.want || v.Failures != test.counted {
				t.Errorf("the breaker is %s with %d failures; want %s with %d", v.State, v.Failures, test.want, test.counted)
			}
		})
	}
}

// Two instances, one of which is told to wait: the other sends nothing, until one
// call of the two has found that the API answers again.
func TestInstancesShare(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	rdb := redistest.Shared(t).Client(t)
	o := breaker.Options{Destination: redistest.Name(t, "share"), FailureThreshold: 1, Cooldown: 2 * time.Second, MaxInFlight: 1}
	one, other := join(t, rdb, o), join(t, rdb, o)

	fake.Queue(answers(429)...)
	one.expect(t, url, 429)
	awaitView(t, other.breaker, "the other knows", inState(breaker.Open))
	for _, i := range []instance{one, other} {
		open := i.refusal(t, url)
		if open.Cause != breaker.CauseThreshold || open.RetryAfter <= 0 || open.Name != o.Destination {
			t.Errorf("refused with %+v", open)
		}
	}
	if calls := fake.Stats().Calls; calls != 1 {
		t.Fatalf("%d calls arrived while the breaker was open; want the first alone", calls)
	}

	awaitView(t, one.breaker, "the cooldown is over", inState(breaker.HalfOpen))
	fake.SetLatency(100 * time.Millisecond)
	var mu sync.Mutex
	sent := map[string]int{}
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() {
			i := []instance{one, other}[n%2]
			_, err := i.call(t.Context(), url)
			mu.Lock()
			defer mu.Unlock()
			sent[fmt.Sprint(err == nil)]++
			if err != nil && !errors.Is(err, breaker.ErrOpen) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if diff := cmp.Diff(map[string]int{"true": 1, "false": 15}, sent); diff != "" {
		t.Errorf("of 16 calls at once in HALF_OPEN (-want +got):\n%s", diff)
	}
	fake.SetLatency(0)
	awaitView(t, one.breaker, "closed", inState(breaker.Closed))
	awaitView(t, other.breaker, "closed", inState(breaker.Closed))
	one.expect(t, url, 201)
}

func TestKeysAndScopes(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	i := join(t, redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "keys"), Cooldown: time.Minute},
		breakerhttp.Key(func(req *http.Request) string { return strings.TrimPrefix(req.URL.Path, "/") }))
	limited := func(scope string) fakeapi.Answer {
		return fakeapi.Answer{Status: 429, Header: http.Header{"Retry-After": {"60"}, "X-Ratelimit-Scope": {scope}}}
	}
	fake.Queue(limited("user"))
	i.expect(t, url+"/alice", 429)
	if open := i.refusal(t, url+"/alice"); open.Name != i.breaker.Name()+"/alice" {
		t.Errorf("refused by %s", open.Name)
	}
	i.expect(t, url+"/bob", 201)
	i.expect(t, url+"/", 201) // no key

	fake.Queue(limited("global"))
	i.expect(t, url+"/bob", 429)
	for _, path := range []string{"/bob", "/carol", "/"} {
		if open := i.refusal(t, url+path); open.Name != i.breaker.Name() {
			t.Errorf("%s refused by %s; want the destination", path, open.Name)
		}
	}

	_, err := i.call(t.Context(), url+"/not%20a%20key")
	if !errors.Is(err, breakerhttp.ErrNotSent) || !strings.Contains(fmt.Sprint(err), `key "not a key" is not valid`) {
		t.Errorf("with an invalid key: %v", err)
	}
}

// 30 callers at once and 40 calls allowed: what the API says is left keeps each
// call within it.
func TestBudgetWastesNothing(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 40, Window: time.Hour}, Hints: fakeapi.XRateLimit, Latency: 5 * time.Millisecond,
	})
	rdb := redistest.Shared(t).Client(t)
	o := breaker.Options{Destination: redistest.Name(t, "budget"), MaxInFlight: 10}
	fleet := []instance{join(t, rdb, o), join(t, rdb, o), join(t, rdb, o)}
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			for range 10 {
				status, err := fleet[n%3].call(t.Context(), url)
				if err != nil && !errors.Is(err, breaker.ErrOpen) || err == nil && status != 201 {
					t.Errorf("call: %d, %v", status, err)
				}
			}
		})
	}
	group.Wait()
	if s := fake.Stats(); s.Limited != 0 || s.Accepted > 40 {
		t.Errorf("the API accepted %d calls and refused %d", s.Accepted, s.Limited)
	}
}

func TestRefusedRequestIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	i := joinWith(t, redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "refused")},
		roundTripper(func(*http.Request) (*http.Response, error) {
			t.Error("a request was sent")
			return nil, io.ErrUnexpectedEOF
		}))
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), redistest.Shared(t).Client(t), i.breaker.Name(), breaker.TripOptions{Reason: "maintenance"}); err != nil {
		t.Fatal(err)
	}
	awaitView(t, i.breaker, "tripped", inState(breaker.Open))
	sent := &closeCounter{Reader: strings.NewReader("body")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/x?y=z", sent)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("A", "b")
	before := req.Clone(req.Context())
	resp, err := i.Transport.RoundTrip(req) //nolint:bodyclose // there is none
	if resp != nil || !errors.Is(err, breaker.ErrOpen) || !errors.Is(err, breakerhttp.ErrNotSent) {
		t.Fatalf("got %v, %v", resp, err)
	}
	want := "breakerhttp: request not sent: breaker " + i.breaker.Name() + " is OPEN until it is reset (manual: maintenance)"
	if err.Error() != want {
		t.Errorf("error is %q\nwant     %q", err, want)
	}
	if sent.closed != 1 {
		t.Errorf("the request's body was closed %d times", sent.closed)
	}
	if diff := cmp.Diff(before.Header, req.Header); diff != "" || before.URL.String() != req.URL.String() || req.Context() != t.Context() {
		t.Errorf("the request was changed: %s %v", diff, req)
	}
}

// A context that ended before is no reason to ask anybody.
func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	i := join(t, redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "ended")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.call(ctx, url); !errors.Is(err, context.Canceled) || !errors.Is(err, breakerhttp.ErrNotSent) {
		t.Errorf("call: %v", err)
	}
	if calls := fake.Stats().Calls; calls != 0 {
		t.Errorf("%d calls arrived", calls)
	}
}

func TestClosedBreakerSendsNothing(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	i := join(t, redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "closed")}, breakerhttp.OpenResponse())
	if err := i.breaker.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := i.call(t.Context(), url); !errors.Is(err, breaker.ErrClosed) || !errors.Is(err, breakerhttp.ErrNotSent) {
		t.Errorf("call: %v", err)
	}
	if calls := fake.Stats().Calls; calls != 0 {
		t.Errorf("%d calls arrived", calls)
	}
}

func TestOpenResponse(t *testing.T) {
	t.Parallel()
	fake, url := api(t, fakeapi.Options{})
	fake.Queue(fakeapi.Answer{Status: 429, Header: http.Header{"Retry-After": {"89.5"}}})
	i := join(t, redistest.Shared(t).Client(t), breaker.Options{Destination: redistest.Name(t, "response")}, breakerhttp.OpenResponse())
	i.expect(t, url, 429)
	resp, err := i.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	got := []string{resp.Status, resp.Header.Get("Retry-After"), resp.Header.Get("X-Circuit-Breaker"), string(body)}
	want := []string{
		"503 Service Unavailable", "90", i.breaker.Name(),
		"breaker " + i.breaker.Name() + " is OPEN (hint): ask again in 1m30s\n",
	}
	if diff := cmp.Diff(want, got); diff != "" || resp.ContentLength != int64(len(body)) {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if calls := fake.Stats().Calls; calls != 1 {
		t.Errorf("%d calls arrived", calls)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error {
	c.closed++
	return nil
}
