package publisher_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// A job that cannot be sent at all is no probe: the next one is.
func TestJobWithoutATokenIsNoProbe(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := fakeapi.New(fakeapi.Options{})
	url, err := api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	h, err := httpdest.New(httpdest.Options{URL: url, Tokens: httpdest.TokensFunc(func(key string) (string, bool) {
		return "secret", key == "alice"
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest, breaker.TripOptions{For: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	unknown := b.enqueue(jobs.Key("bob"))
	known := b.enqueue(jobs.Key("alice"))
	b.run(b.options(), h.Publish, publisher.Concurrency(1), rules(time.Hour))

	if e := b.event(); e.Job.ID != unknown.ID || e.Result != publisher.FailedFinal || e.Called {
		t.Errorf("the job without a token: %s, called %v (%v)", e.Result, e.Called, e.Err)
	}
	if e := b.event(); e.Job.ID != known.ID || e.Result != publisher.Completed {
		t.Errorf("the job with one: %s (%v)", e.Result, e.Err)
	}
	history := b.breakerHistory()
	last := history[len(history)-1]
	if last.To != breaker.Closed || last.Cause != breaker.CauseSuccess || last.Probes != 0 {
		t.Errorf("closed by %+v", last)
	}
	if began, ended := history[len(history)-2], last; ended.At.Sub(began.At) > 20*time.Second {
		t.Errorf("the probe was held up for %v", ended.At.Sub(began.At))
	}
}

// The producer's library does not know KEY_PATTERN: the worker fails such a job without a call,
// whatever its retry policy, and says why.
func TestKeyThatDoesNotMatchFailsWithoutACall(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var calls atomic.Int32
	api := fakehttp.Record(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	b.runHandler(b.options(), newHTTP(t, httpdest.Options{URL: api.URL + "/{key}", KeyPattern: "[a-z]+"}))
	bad := b.enqueue(jobs.Key("a7"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3}))
	good := b.enqueue(jobs.Key("alice"))
	j := b.waitStatus(bad.ID, jobs.Failed)
	if want := `key: "a7" does not match KEY_PATTERN of destination ` + b.dest; j.LastError != want || j.Attempt != 0 {
		t.Errorf("it failed after %d retries: %q, want %q", j.Attempt, j.LastError, want)
	}
	b.waitStatus(good.ID, jobs.Completed)
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}
