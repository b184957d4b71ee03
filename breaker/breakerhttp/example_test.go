package breakerhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/breaker/hint"
)

// example gives each example a Redis, a breaker and an API with a handler of its own.
func example(o breaker.Options, handler http.HandlerFunc) (b *breaker.Breaker, api *httptest.Server, end func()) {
	redisServer, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), ContextTimeoutEnabled: true})
	o.Destination = "deviantart"
	b, err = breaker.New(context.Background(), rdb, o)
	if err != nil {
		log.Fatal(err)
	}
	api = httptest.NewServer(handler)
	return b, api, func() {
		api.Close()
		_ = b.Close()
		_ = rdb.Close()
		redisServer.Close()
	}
}

func show(resp *http.Response, err error) {
	if open, ok := errors.AsType[*breaker.OpenError](err); ok {
		fmt.Println("not sent, again in", open.RetryAfter.Round(time.Second))
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
}

// Any http.Client stops calling when the API has said for how long to wait.
func Example() {
	b, api, end := example(breaker.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	defer end()

	client := &http.Client{Transport: breakerhttp.New(b, api.Client().Transport), Timeout: 30 * time.Second}
	for range 2 {
		show(client.Get(api.URL))
	}
	// Output:
	// 429 Too Many Requests
	// not sent, again in 1m30s
}

// Each user of the API has a limit of their own.
func ExampleKey() {
	b, api, end := example(breaker.Options{}, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/users/alice" {
			w.Header().Set("Retry-After", "90")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	defer end()

	type userKey struct{}
	transport := breakerhttp.New(b, api.Client().Transport, breakerhttp.Key(func(req *http.Request) string {
		user, _ := req.Context().Value(userKey{}).(string)
		return user
	}))
	client := &http.Client{Transport: transport}
	for _, user := range []string{"alice", "alice", "bob"} {
		ctx := context.WithValue(context.Background(), userKey{}, user)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+"/users/"+user, http.NoBody)
		if err != nil {
			log.Fatal(err)
		}
		show(client.Do(req))
	}
	// Output:
	// 429 Too Many Requests
	// not sent, again in 1m30s
	// 200 OK
}

// Requests wait for their turn: here at 50 a second, for all instances together.
func ExampleWait() {
	o := breaker.Options{Rate: breaker.Rates{{Calls: 50, Per: time.Second}}}
	b, api, end := example(o, func(http.ResponseWriter, *http.Request) {})
	defer end()

	client := &http.Client{Transport: breakerhttp.New(b, api.Client().Transport, breakerhttp.Wait(5*time.Second))}
	started := time.Now()
	for range 3 {
		show(client.Get(api.URL))
	}
	fmt.Println("at least 40ms:", time.Since(started) >= 40*time.Millisecond)
	// Output:
	// 200 OK
	// 200 OK
	// 200 OK
	// at least 40ms: true
}

// GitHub answers 403 as well as 429 where a limit is reached, and 403 also for
// other reasons.
func ExampleRateLimitedIf() {
	b, api, end := example(breaker.Options{}, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/limited" {
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(10*time.Minute).Unix()))
		}
		w.WriteHeader(http.StatusForbidden)
	})
	defer end()

	github := func(resp *http.Response) bool {
		return resp.StatusCode == http.StatusTooManyRequests ||
			resp.StatusCode == http.StatusForbidden &&
				(resp.Header.Get("X-RateLimit-Remaining") == "0" || resp.Header.Get("Retry-After") != "")
	}
	client := &http.Client{Transport: breakerhttp.New(b, api.Client().Transport, breakerhttp.RateLimitedIf(github))}
	for _, path := range []string{"/private", "/limited"} {
		show(client.Get(api.URL + path))
		fmt.Println(b.View().State)
	}
	// Output:
	// 403 Forbidden
	// CLOSED
	// 403 Forbidden
	// OPEN
}

// An API that tells of its limit in a header that nobody else has: the dialect for
// it stands in front of the known ones.
func ExampleHints() {
	b, api, end := example(breaker.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Come-Back-In", "2m")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	defer end()

	comeBack := hint.Dialect{Name: "come-back", Read: func(a hint.Answer) hint.Hint {
		wait, _ := time.ParseDuration(a.Header.Get("X-Come-Back-In"))
		return hint.Hint{Wait: wait}
	}}
	dialects := append([]hint.Dialect{comeBack}, hint.Default...)
	client := &http.Client{Transport: breakerhttp.New(b, api.Client().Transport, breakerhttp.Hints(dialects...))}
	for range 2 {
		show(client.Get(api.URL))
	}
	// Output:
	// 429 Too Many Requests
	// not sent, again in 2m0s
}

// A reverse proxy passes the breaker's refusals on to its callers.
func ExampleOpenResponse() {
	var calls atomic.Int32
	b, api, end := example(breaker.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	defer end()

	target, err := url.Parse(api.URL)
	if err != nil {
		log.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: breakerhttp.New(b, api.Client().Transport, breakerhttp.OpenResponse()),
	})
	defer proxy.Close()
	for range 2 {
		resp, err := proxy.Client().Get(proxy.URL)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		fmt.Printf("%s, breaker %q\n", resp.Status, resp.Header.Get("X-Circuit-Breaker"))
	}
	fmt.Println("calls of the API:", calls.Load())
	// Output:
	// 429 Too Many Requests, breaker ""
	// 503 Service Unavailable, breaker "deviantart"
	// calls of the API: 1
}
