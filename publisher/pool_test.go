package publisher_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// poolFixture is a destination with a pool of tokens, and its API.
type poolFixture struct {
	*fixture
	api   *fakeapi.API
	h     *httpdest.Destination
	file  *httpdest.TokensFile
	write func(names ...string) // the token of a name is name-token; "name=token" gives another one

	mu      sync.Mutex
	revoked map[string]bool // tokens
}

func newPool(t *testing.T, o fakeapi.Options, names ...string) *poolFixture {
	t.Helper()
	b := &poolFixture{fixture: newFixture(t), revoked: map[string]bool{}}
	o.PerToken = true
	o.Script = func(_ int, r *http.Request) *fakeapi.Answer {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.revoked[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
			return &fakeapi.Answer{Status: http.StatusUnauthorized}
		}
		return nil
	}
	b.api = fakeapi.New(o)
	url, err := b.api.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.api.Close() })
	path := filepath.Join(t.TempDir(), "pool.json")
	b.write = func(names ...string) {
		var fields []string
		for _, name := range names {
			name, token, own := strings.Cut(name, "=")
			if !own {
				token = name + "-token"
			}
			fields = append(fields, fmt.Sprintf("%q: %q", name, token))
		}
		next := path + ".next"
		if err := os.WriteFile(next, []byte("{"+strings.Join(fields, ", ")+"}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	b.write(names...)
	if b.file, err = httpdest.OpenPool(path, httpdest.TokensFileOptions{CheckEvery: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	b.h = newHTTP(t, httpdest.Options{URL: url, Tokens: b.file})
	return b
}

// publish serves the destination with the pool.
func (b *poolFixture) publish(opts ...publisher.HandleOption) {
	b.t.Helper()
	b.runHandler(b.options(), b.h, append(opts, publisher.Pool(b.file.Keys))...)
}

// revoke has the API refuse a token.
func (b *poolFixture) revoke(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked[token] = true
}

// callsWith are the calls with a token.
func (b *poolFixture) callsWith(token string) []fakeapi.Receipt {
	auth := fakeapi.HashAuth("Bearer " + token)
	return slices.DeleteFunc(b.api.Receipts(), func(r fakeapi.Receipt) bool { return r.Auth != auth })
}

// accepted waits until the API has accepted n calls.
func (b *poolFixture) accepted(n int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	if err := b.api.Wait(ctx, func(s fakeapi.Stats) bool { return s.Accepted >= n }); err != nil {
		b.t.Fatalf("%d of %d calls accepted: %v", b.api.Stats().Accepted, n, err)
	}
}

// publishedOnce checks that each job was accepted once, and that nothing is left of any.
func (b *poolFixture) publishedOnce(ids []string) {
	b.t.Helper()
	for _, id := range ids {
		b.waitStatus(id, jobs.Completed)
	}
	accepted := b.api.Accepted()
	for _, id := range ids {
		if n := accepted[id]; n != 1 {
			b.t.Errorf("job %s was accepted %d times", id, n)
		}
	}
	b.mustBeEmpty()
}

// The declared limits of four tokens are used together: no call is refused, and the calls take no longer than at the
// sum of the four limits.
func TestPoolUsesAllLimits(t *testing.T) {
	t.Parallel()
	const calls, burst, n = 5, 5, 160
	b := newPool(t, fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: calls + burst, Window: time.Second}, Light: true}, "a", "b", "c", "d")
	ids := b.enqueueMany(n)
	b.publish(publisher.Breaker(breaker.Options{KeyRate: breaker.Rates{{Calls: calls, Per: time.Second, Burst: burst}}}))
	b.publishedOnce(ids)
	receipts := b.api.Receipts()
	took := receipts[len(receipts)-1].At.Sub(receipts[0].At)
	ideal := time.Duration(n-4*burst) * time.Second / (4 * calls)
	t.Logf("%d calls in %s: %.3f of the four limits together", n, took, ideal.Seconds()/took.Seconds())
	if part := ideal.Seconds() / took.Seconds(); part < .95 {
		t.Errorf("%.3f of the four limits together was used", part)
	}
	if limited := b.api.Stats().Limited; limited != 0 {
		t.Errorf("%d calls were refused", limited)
	}
	for _, name := range b.file.Keys() {
		if got := len(b.callsWith(name + "-token")); got < n/4-2*burst || got > n/4+2*burst {
			t.Errorf("%d calls with token %s, want about %d", got, name, n/4)
		}
	}
}

// Limits that nobody has declared are found by refusals: a refused job goes on at once with another token.
func TestPoolWithUnknownLimits(t *testing.T) {
	t.Parallel()
	for name, hints := range map[string]fakeapi.Hint{"hints": fakeapi.RetryAfter, "no hints": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const quota, n = 20, 300
			b := newPool(t, fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: quota, Window: time.Second}, Hints: hints, Latency: 5 * time.Millisecond}, "a", "b", "c", "d")
			ids := b.enqueueMany(n)
			b.publish(publisher.Breaker(breaker.Options{}))
			b.publishedOnce(ids)
			receipts := b.api.Receipts()
			took := receipts[len(receipts)-1].At.Sub(receipts[0].At)
			t.Logf("%d calls in %s, %d refused; %.2f of the limits", n, took, b.api.Stats().Limited, float64(n-4*quota)/4/quota/took.Seconds())
			if limited := b.api.Stats().Limited; limited > n {
				t.Errorf("%d calls were refused", limited)
			}
		})
	}
}

// A token that is limited for a long time holds no job: the refused one goes on at once with the other token.
func TestPoolGoesOnWithoutALimitedToken(t *testing.T) {
	t.Parallel()
	b := newPool(t, fakeapi.Options{}, "a", "b")
	full := fakeapi.HashAuth("Bearer a-token")
	b.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		if fakeapi.HashAuth(r.Header.Get("Authorization")) == full {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"600"}}}
		}
		return nil
	})
	b.publish(publisher.Concurrency(1), publisher.Breaker(breaker.Options{}))
	ids := b.enqueueMany(20)
	b.publishedOnce(ids)
	if n := len(b.callsWith("a-token")); n != 1 {
		t.Errorf("%d calls with the token that is limited, want one", n)
	}
	for n := 0; n < len(ids); {
		switch e := b.event(); {
		case e.Result == publisher.Completed && e.Member == "b":
			n++
		case e.Result == publisher.Rescheduled && e.Member == "a" && !e.AvailableAt.After(b.redisNow()):
		default:
			t.Errorf("job %s with token %s: %s, put off until %s", e.Job.ID, e.Member, e.Result, e.AvailableAt)
		}
	}
}

// A token that is revoked stops nobody: its jobs go on with the other tokens and lose no attempt. A new token in the
// file ends its hold, and tokens join and leave with the file.
func TestPoolGoesOnWithoutARevokedToken(t *testing.T) {
	t.Parallel()
	b := newPool(t, fakeapi.Options{Latency: time.Millisecond}, "a", "b", "c")
	b.publish(publisher.Breaker(breaker.Options{Cooldown: time.Hour, KeyRate: breaker.Rates{{Calls: 50, Per: time.Second, Burst: 20}}}))
	ids := b.enqueueMany(150)
	b.accepted(60)
	b.revoke("b-token")
	b.publishedOnce(ids)
	refused := 0
	for _, r := range b.callsWith("b-token") {
		if r.Status == http.StatusUnauthorized {
			refused++
		}
	}
	if refused == 0 || refused > 10 {
		t.Errorf("%d calls with the revoked token, want one or, at the same moment, a few", refused)
	}
	for _, id := range ids {
		if j := b.get(id); j.Attempt != 0 || j.RescheduleCount > 1 || time.Duration(j.RescheduleCount)*j.AvailableAt.Sub(j.CreatedAt) > time.Minute {
			t.Errorf("job %s: %d attempts, %d reschedules", id, j.Attempt, j.RescheduleCount)
		}
	}
	if s := b.statusOf("b"); s.State != breaker.Open || s.Cause != breaker.CauseCredentials {
		t.Errorf("the breaker of the revoked token: %s, %s", s.State, s.Cause)
	}

	b.write("a", "b=b-new", "d") // c leaves, d joins
	redistest.Eventually(t, "the new token is used", func() bool { return b.statusOf("b").State == breaker.Closed })
	before := len(b.callsWith("c-token"))
	more := b.enqueueMany(30)
	b.publishedOnce(more)
	if len(b.callsWith("b-new")) == 0 || len(b.callsWith("d-token")) == 0 {
		t.Error("no call with a token that came")
	}
	if got := len(b.callsWith("c-token")); got != before {
		t.Errorf("%d calls with a token that had left", got-before)
	}
}

// statusOf reads the breaker of a member.
func (b *poolFixture) statusOf(member string) breaker.Status {
	b.t.Helper()
	s, err := breaker.DefaultNamespace.Get(b.t.Context(), b.rdb, b.dest+"/"+member)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// While all tokens are refused, the jobs wait in their queue; a new token lets them go.
func TestPoolWithoutAValidToken(t *testing.T) {
	t.Parallel()
	b := newPool(t, fakeapi.Options{}, "a", "b")
	b.revoke("a-token")
	b.revoke("b-token")
	b.publish(publisher.Concurrency(1), publisher.Breaker(breaker.Options{Cooldown: time.Hour}))
	ids := b.enqueueMany(3)
	for _, member := range []string{"a", "b"} {
		redistest.Eventually(t, "the token is held", func() bool { return b.statusOf(member).Cause == breaker.CauseCredentials })
	}
	redistest.Eventually(t, "the jobs wait", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return b.record(id).Status != jobs.Pending })
	})
	if n := b.api.Stats().Calls; n != 2 {
		t.Errorf("%d calls, want one with each token", n)
	}
	b.write("a=right", "b")
	b.publishedOnce(ids)
}

// Limits and costs of the destination hold beside those of the tokens; each call is charged to one token.
func TestPoolChargesCosts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	used := map[string]int{}
	b := newFixture(t)
	names := []string{"a", "b"}
	b.run(b.options(), func(ctx context.Context, j *jobs.Job) error {
		mu.Lock()
		defer mu.Unlock()
		used[publisher.Member(ctx)] += j.Cost
		return nil
	}, publisher.Pool(func() []string { return names }), publisher.Breaker(breaker.Options{
		Rate:    breaker.Rates{{Calls: 1, Per: time.Hour, Burst: 16}},
		KeyRate: breaker.Rates{{Calls: 1, Per: time.Hour, Burst: 10}},
	}))
	for range 4 {
		b.enqueue(jobs.Cost(4))
	}
	for range 4 {
		b.want(publisher.Completed)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := map[string]int{"a": 8, "b": 8}; !maps.Equal(used, want) {
		t.Errorf("charged %v, want %v", used, want)
	}
	last := b.enqueue(jobs.Cost(1)).ID // the destination has nothing left
	redistest.Eventually(t, "the last job waits", func() bool { return b.record(last).Status == jobs.Pending })
}

// The fixture's Handle refuses a pool beside KeyBy.
func TestPoolAndKeyBy(t *testing.T) {
	t.Parallel()
	p, err := publisher.New(redistest.Database(t).Client(t), publisher.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Handle("shop", publisher.Func(func(context.Context, *jobs.Job) error { return nil }), publisher.KeyBy(byPath), publisher.Pool(func() []string { return nil }))
	if err == nil || !strings.Contains(err.Error(), "Pool and KeyBy") {
		t.Errorf("%v", err)
	}
}

// A job that costs more than any member has left waits for that, and is not fetched again and again because another
// member is open for a shorter time.
func TestPoolWaitsForACost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := fixtureOn(t, server)
	if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, b.dest+"/b", breaker.TripOptions{For: 30 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.run(b.options(), func(context.Context, *jobs.Job) error { return nil },
		publisher.Pool(func() []string { return []string{"a", "b"} }),
		publisher.Breaker(breaker.Options{KeyRate: breaker.Rates{{Calls: 1, Per: time.Hour, Burst: 10}}}))
	b.enqueue(jobs.Cost(6))
	b.want(publisher.Completed)
	b.enqueue(jobs.Cost(6))
	<-time.After(time.Second) // what a look at it costs at first does not count
	server.ResetStats(t)
	<-time.After(2 * time.Second) // what is asserted is that little happens meanwhile
	if n := server.CommandStats(t)["rpop"]; n > 100 {
		t.Errorf("the job was fetched %d times in two seconds", n)
	}
}
