package publisher_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

var tokenOfKey = httpdest.TokensFunc(func(key string) (string, bool) { return "token-of-" + key, true })

func byPath(j *jobs.Job) (string, error) { return j.Request.Path, nil }

// limitedPath is an API that refuses calls of a path, with a hint in a header, until it is free.
func limitedPath(t *testing.T, path, header, hint string) (*fakehttp.Recorder, *atomic.Bool) {
	t.Helper()
	var free atomic.Bool
	return fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, path) && !free.Load() {
			w.Header().Set(header, hint)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}), &free
}

// heldBy reports whether a job waits for the breaker of a key.
func (b *fixture) heldBy(id, key string) bool {
	j := b.get(id)
	return j.Status == jobs.Pending && (j.ReasonCode == "held "+b.dest+"/"+key || j.ReasonCode == "breaker_open "+b.dest+"/"+key)
}

// Two paths of an API have limits of their own: the one that is used up does not hold jobs of the other,
// and its jobs are called in their order once it is free.
func TestKeyByHoldsAPathAlone(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a, free := limitedPath(t, "/v1/full", "Retry-After", "600")
	b.runHandler(b.options(), newHTTP(t, httpdest.Options{URL: a.URL}), publisher.KeyBy(byPath), publisher.Concurrency(1),
		publisher.Breaker(breaker.Options{FailureThreshold: 1, NoEarlyTests: true}))
	full := []string{b.enqueue(jobs.Path("/v1/full")).ID}
	b.want(publisher.Rescheduled)
	for i := range 10 {
		var own []jobs.Option
		if i%2 == 1 {
			own = append(own, jobs.Key("alice")) // keys share the limit of the path
		}
		full = append(full, b.enqueue(append(own, jobs.Path("/v1/full"))...).ID)
		if e := b.result(b.enqueue(append(own, jobs.Path("/v1/other"))...).ID); e.Result != publisher.Completed {
			t.Errorf("a job of another path: %s", e.Result)
		}
	}
	for _, id := range full {
		redistest.Eventually(t, "the jobs of the path wait for its breaker", func() bool { return b.heldBy(id, "v1:full") })
	}
	if n := len(a.Requests()); n != 11 {
		t.Errorf("%d calls, want 10 and one that was refused", n)
	}
	if list, err := b.client.List(t.Context(), jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest, Key: "alice", Statuses: []jobs.Status{jobs.Pending}}}); err != nil || len(list.Items) != 5 || list.Items[0].ReasonCode != "held "+b.dest+"/v1:full" {
		t.Errorf("%d held jobs of alice are listed, want 5: %v, %+v", len(list.Items), err, list.Items)
	}
	if list, err := b.client.List(t.Context(), jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest}, HeldBy: "v1:full"}); err != nil || len(list.Items) != 10 {
		t.Errorf("%d jobs that the path holds are listed, want 10: %v", len(list.Items), err)
	}
	free.Store(true)
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), b.rdb, b.dest+"/v1:full", "test"); err != nil {
		t.Fatal(err)
	}
	for _, id := range full {
		if e := b.result(id); e.Result != publisher.Completed || id != full[0] && e.Job.RescheduleCount != 0 {
			t.Errorf("a held job: %s after %d reschedules", e.Result, e.Job.RescheduleCount)
		}
	}
	var order []string
	for _, r := range a.Requests()[11:] {
		if id := r.Header.Get("Idempotency-Key"); id != full[0] { // it had been called, and comes when it is released
			order = append(order, id)
		}
	}
	if !slices.Equal(order, full[1:]) {
		t.Errorf("the jobs were called in the order\n%v, want\n%v", order, full[1:])
	}
	for _, id := range full {
		if j := b.get(id); j.Key != "" && j.Key != "alice" {
			t.Errorf("the key of a job is %s", j.Key)
		}
	}
	b.mustBeEmpty()
}

// A job for which the function fails is held by its own key; one without a result by none.
func TestKeyByFails(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := fakehttp.Record(t, nil)
	b.runHandler(b.options(), newHTTP(t, httpdest.Options{URL: a.URL}), publisher.KeyBy(func(j *jobs.Job) (string, error) {
		switch j.Request.Path {
		case "/fails":
			return "x", errors.New("no such value")
		case "/panics":
			panic("no such value")
		case "/none":
			return "", nil
		}
		return strings.Repeat("ö/", 100), nil
	}), publisher.Breaker(breaker.Options{KeyRate: breaker.Rates{{Calls: 1, Per: time.Hour}}}))
	first := b.result(b.enqueue(jobs.Key("alice"), jobs.Path("/fails")).ID)
	for range 2 { // KEY_RATE has nothing to count
		if e := b.result(b.enqueue(jobs.Key("alice"), jobs.Path("/none")).ID); e.Result != publisher.Completed {
			t.Errorf("a job without a key: %s", e.Result)
		}
	}
	second := b.enqueue(jobs.Key("alice"), jobs.Path("/panics")).ID
	redistest.Eventually(t, "the second job waits for its key", func() bool { return b.heldBy(second, "alice") })
	long := b.result(b.enqueue(jobs.Key("alice"), jobs.Path("/long")).ID)
	if first.Result != publisher.Completed || long.Result != publisher.Completed {
		t.Errorf("the first call: %s, one with a long key: %s", first.Result, long.Result)
	}
}

// A refused token holds the jobs of its key, whatever their paths, and no other job of the path.
func TestKeyByAndRefusedToken(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var renewed atomic.Bool
	a := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "alice") && !renewed.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	b.runHandler(b.options(), newHTTP(t, httpdest.Options{URL: a.URL, Tokens: tokenOfKey}), publisher.KeyBy(byPath), publisher.Concurrency(1),
		publisher.Breaker(breaker.Options{Cooldown: time.Hour}))
	var alice []string
	for i := range 6 {
		path := jobs.Path(fmt.Sprintf("/%d", i%2))
		alice = append(alice, b.enqueue(jobs.Key("alice"), path).ID)
		if e := b.result(b.enqueue(jobs.Key("bob"), path).ID); e.Result != publisher.Completed {
			t.Errorf("a job of another key: %s", e.Result)
		}
	}
	for _, id := range alice {
		redistest.Eventually(t, "the jobs wait for the token of their key", func() bool { return b.heldBy(id, "alice") })
	}
	s, err := breaker.DefaultNamespace.Get(t.Context(), b.rdb, b.dest+"/alice")
	if err != nil || s.State != breaker.Open || s.Cause != breaker.CauseCredentials {
		t.Errorf("the breaker of the key is %s because of %s: %v", s.State, s.Cause, err)
	}
	if n := len(a.Requests()); n != 7 {
		t.Errorf("%d calls, want 6 and one that was refused", n)
	}
	renewed.Store(true)
	if _, err := breaker.DefaultNamespace.Reset(t.Context(), b.rdb, b.dest+"/alice", "test"); err != nil {
		t.Fatal(err)
	}
	for _, id := range alice {
		redistest.Eventually(t, "they are called with the new token", func() bool { return b.get(id).Status == jobs.Completed })
	}
	b.mustBeEmpty()
}
