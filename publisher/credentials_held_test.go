package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// A worker that starts with another token than the one that the API refused ends the wait, long
// before the cooldown; one that starts with the same token makes no call.
func TestNewTokenAtTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(`{"alice":"`+token+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, with := range map[string]func(token string) httpdest.Options{
		"the destination's": func(token string) httpdest.Options { return httpdest.Options{AuthToken: token} },
		"in a header": func(token string) httpdest.Options {
			return httpdest.Options{Header: http.Header{"Authorization": {"Bearer " + token}}}
		},
		"the key's": func(token string) httpdest.Options {
			write(token)
			all, err := httpdest.OpenTokens(file, httpdest.TokensFileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return httpdest.Options{Tokens: all}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			api := newGuarded(t, "right")
			start := func(token string) (stop func()) {
				o := with(token)
				o.URL = api.URL
				return b.runHandler(b.options(), newHTTP(t, o), rules(time.Hour))
			}
			stop := start("old")
			held := b.enqueue(jobs.Key("alice")).ID
			if e := b.result(held); e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonCredentials {
				t.Fatalf("%s, %s; want rescheduled, credentials", e.Result, e.Reason)
			}
			stop()
			stop = start("old")
			second := b.enqueue(jobs.Key("alice")).ID
			stop()
			start("right")
			for _, id := range []string{held, second} {
				if j := b.waitStatus(id, jobs.Completed); j.Attempt != 0 {
					t.Errorf("attempt %d", j.Attempt)
				}
			}
			if got, want := api.seen(), []string{"Bearer old", "Bearer right", "Bearer right"}; !slices.Equal(got, want) {
				t.Errorf("calls %q, want %q", got, want)
			}
		})
	}
}

// The jobs of a key that wait for a token do not fail because the refused one is taken out of the
// file; they run when there is another one.
func TestRefusedTokenIsTakenOut(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	file := openTokens(t, `{"alice":"old","bob":"right"}`)
	h := newHTTP(t, httpdest.Options{URL: api.URL, Tokens: file.TokensFile})
	b.runHandler(b.options(), h, rules(300*time.Millisecond))
	held := b.enqueue(jobs.Key("alice")).ID
	b.result(held)
	file.write(`{"bob":"right"}`)
	redistest.Eventually(t, "the breaker says that the token is missing", func() bool {
		s, err := breaker.DefaultNamespace.Get(t.Context(), b.rdb, b.dest+"/alice")
		return err == nil && s.State != breaker.Closed && s.Reason != "answered 401 Unauthorized"
	})
	if j := b.get(held); j.Status == jobs.Failed || j.Attempt != 0 {
		t.Errorf("the job is %s: %s", j.Status, j.LastError)
	}
	file.write(`{"alice":"right","bob":"right"}`)
	b.waitStatus(held, jobs.Completed)
	// Without a hold a job whose key has no token fails at once.
	b.waitStatus(b.enqueue(jobs.Key("carol")).ID, jobs.Failed)
}

// No list of permanent statuses fails a job for a refused token; an answer rule does.
func TestPermanent401(t *testing.T) {
	t.Parallel()
	rule := rulesFunc(func(a httpdest.Answered) (httpdest.Decision, bool) {
		return httpdest.Decision{Then: httpdest.ThenFail, By: "rule 1"}, a.Status == http.StatusUnauthorized
	})
	for name, row := range map[string]struct {
		list  []int
		rules httpdest.Rules
		want  string
	}{
		"the default":          {httpdest.DefaultPermanentStatus, nil, publisher.Rescheduled},
		"the default with 403": {append([]int{403}, httpdest.DefaultPermanentStatus...), nil, publisher.Rescheduled},
		"401 alone":            {[]int{401}, nil, publisher.Rescheduled},
		"without 401":          {[]int{400}, nil, publisher.Rescheduled},
		"a rule":               {[]int{400}, rule, publisher.FailedFinal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			api := newGuarded(t, "right")
			h := newHTTP(t, httpdest.Options{URL: api.URL, AuthToken: "old", PermanentStatus: row.list, Rules: row.rules})
			b.runHandler(b.options(), h, rules(time.Hour))
			if e := b.result(b.enqueue().ID); e.Result != row.want {
				t.Errorf("the job is %s, want %s", e.Result, row.want)
			}
			if got := b.breaker().State; (got == breaker.Open) != (row.want == publisher.Rescheduled) {
				t.Errorf("the breaker is %s", got)
			}
		})
	}
}

// calls collects the calls that a publisher reports.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) observe(o *publisher.Options) {
	o.Observe(publisher.Observer{OnCall: func(call publisher.Call) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, fmt.Sprint(call.Outcome, " ", call.Status))
	}})
}

func (c *calls) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// A call that the API has refused because of its token was made, whether a second one follows or
// not.
func TestRefusedCallCounts(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		source *source
		rate   breaker.Rates
		want   []string
	}{
		"the second succeeds":  {&source{tokens: []string{"old", "right"}}, nil, []string{"unauthorized 401", "success 200"}},
		"there is no token":    {&source{tokens: []string{"old"}, renewal: fmt.Errorf("down: %w", breakerhttp.ErrNotSent)}, nil, []string{"unauthorized 401"}},
		"consent is withdrawn": {&source{tokens: []string{"old"}, renewal: &jobs.UnauthorizedError{Err: errors.New("invalid_grant"), Permanent: true}}, nil, []string{"unauthorized 401"}},
		"the rate is used up":  {&source{tokens: []string{"old", "right"}}, breaker.Rates{{Calls: 1, Per: time.Hour}}, []string{"unauthorized 401"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			api := newGuarded(t, "right")
			o, made := b.options(), &calls{}
			made.observe(&o)
			h := newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: row.source})
			b.runHandler(o, h, publisher.Breaker(breaker.Options{Rate: row.rate, Cooldown: time.Hour}))
			if e := b.result(b.enqueue().ID); !e.Called || e.Job.Attempt != 0 {
				t.Errorf("%s, called %t", e.Result, e.Called)
			}
			if got := made.seen(); !slices.Equal(got, row.want) {
				t.Errorf("calls %q, want %q", got, row.want)
			}
			if len(row.rate) > 0 {
				if s := b.breaker(); s.Rate == nil {
					t.Error("the rate has counted no call")
				}
			}
		})
	}
}

// A refused call is one of the API's budget: the second one waits if that was the last.
func TestRefusedCallIsOfTheBudget(t *testing.T) {
	t.Parallel()
	const limit = 3
	b := newFixture(t)
	var mu sync.Mutex
	made := 0
	api := fakehttp.Record(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		made++
		w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(max(0, limit-made)))
		w.Header().Set("X-RateLimit-Reset", "3600")
		if made >= limit && r.Header.Get("Authorization") == "Bearer old" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	h := newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: &source{tokens: []string{"old", "new"}}})
	b.runHandler(b.options(), h, publisher.Concurrency(1), rules(time.Hour))
	for range limit - 1 {
		if e := b.result(b.enqueue().ID); e.Result != publisher.Completed {
			t.Fatalf("a job is %s", e.Result)
		}
	}
	if e := b.result(b.enqueue().ID); e.Result != publisher.Rescheduled {
		t.Errorf("the job is %s, want rescheduled", e.Result)
	}
	mu.Lock()
	defer mu.Unlock()
	if made != limit {
		t.Errorf("%d calls, and the API lets %d in", made, limit)
	}
}

// away is a TokenSource whose token server is away until it is set back.
type away struct {
	asked atomic.Int64
	back  atomic.Bool
}

func (a *away) Token(context.Context, string) (string, error) {
	if a.back.Load() {
		return "right", nil
	}
	a.asked.Add(1)
	return "", &jobs.UnauthorizedError{Err: errors.New("the token server answered 503"), Scope: jobs.ScopeGlobal, RetryAfter: 200 * time.Millisecond}
}

func (a *away) Renew(ctx context.Context, key, _ string) (string, error) { return a.Token(ctx, key) }
func (a *away) PerKey() bool                                             { return false }
func (a *away) Changed() []string                                        { return nil }

// While the token server is away the jobs wait as one: a single one asks it at a time in the fleet,
// and none fails, whatever its bounds.
func TestTokenServerAway(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	tokens := &away{}
	for range 2 {
		h := newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: tokens})
		b.runHandler(b.options(), h, publisher.Concurrency(2), rules(time.Hour))
	}
	ids := b.enqueueMany(20, jobs.MaxReschedules(1))
	redistest.Eventually(t, "the token server is asked again", func() bool { return tokens.asked.Load() > 8 })
	n := tokens.asked.Load()
	s, err := breaker.DefaultNamespace.Get(t.Context(), b.rdb, b.dest)
	if err != nil || s.State == breaker.Closed || s.Cause != breaker.CauseCredentials || !s.NoCredentials || s.Wasted != 0 {
		t.Errorf("breaker %+v, %v", s, err)
	}
	// Up to 4 calls at once, then one per opening.
	if n > int64(4+s.Probes+1) {
		t.Errorf("the token server was asked %d times with %d probes", n, s.Probes)
	}
	for _, id := range ids {
		// One that was fetched as the breaker opened counts that.
		if j := b.get(id); j.Status == jobs.Failed || j.RescheduleCount > 1 {
			t.Fatalf("job %s is %s after %d reschedules: %s", id, j.Status, j.RescheduleCount, j.LastError)
		}
	}
	tokens.back.Store(true)
	for _, id := range ids {
		b.waitStatus(id, jobs.Completed)
	}
}

// ownAway is a TokenSource of a process with tokens of its own, which cannot reach the token server.
type ownAway struct{ away }

func (a *ownAway) Token(context.Context, string) (string, error) {
	a.asked.Add(1)
	err := fmt.Errorf("the token server cannot be reached: %w", breakerhttp.ErrNotSent)
	return "", &jobs.UnauthorizedError{Err: err, Scope: jobs.ScopeGlobal, RetryAfter: time.Second}
}

// A worker that alone gets no token leaves the jobs to the others.
func TestOneWorkerGetsNoToken(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	tokens := &ownAway{}
	alone := b.options()
	alone.Worker = "alone"
	b.runHandler(alone, newHTTP(t, httpdest.Options{URL: api.URL, TokenSource: tokens}), rules(time.Hour))
	held := b.enqueue(jobs.MaxReschedules(0)).ID
	redistest.Eventually(t, "it asks again", func() bool { return tokens.asked.Load() > 1 })
	b.waitStatus(held, jobs.Pending)
	if s := b.breaker(); s.State != breaker.Closed {
		t.Errorf("the breaker is %s", s.State)
	}
	b.runHandler(b.options(), newHTTP(t, httpdest.Options{URL: api.URL, AuthToken: "right"}), rules(time.Hour))
	for _, id := range append(b.enqueueMany(20, jobs.MaxReschedules(0)), held) {
		b.waitStatus(id, jobs.Completed)
	}
	if n := tokens.asked.Load(); n > 8 {
		t.Errorf("it asked %d times", n)
	}
}

// keysAway is a TokenSource whose token server is away for the keys that begin with "away".
type keysAway struct{ away }

func (a *keysAway) Token(_ context.Context, key string) (string, error) {
	if !strings.HasPrefix(key, "away") {
		return "right", nil
	}
	return "", &jobs.UnauthorizedError{Err: errors.New("the token server answered 503"), Scope: jobs.ScopeUser, RetryAfter: time.Hour}
}

func (a *keysAway) PerKey() bool { return true }

// A job without a token is not an answer of the API, which is down: the jobs of other keys still
// wait for it as one.
func TestKeyWithoutATokenEndsNoOutage(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := newOutageAPI(t, http.StatusServiceUnavailable, "")
	var failing []string
	for i := range 3 {
		failing = append(failing, b.enqueue(jobs.Key(fmt.Sprint("up", i))).ID)
		b.enqueue(jobs.Key(fmt.Sprint("away", i)))
	}
	h := newHTTP(t, httpdest.Options{URL: a.URL, TokenSource: &keysAway{}})
	b.run(b.options(), h.Publish, publisher.Concurrency(1), publisher.Breaker(breaker.Options{Cooldown: time.Second, OutageThreshold: 3}))
	redistest.Eventually(t, "the outage opened the breaker", func() bool { return b.breaker().IncidentCause == breaker.CauseOutage })
	for i := 3; i < 6; i++ {
		b.enqueue(jobs.Key(fmt.Sprint("away", i)))
	}
	redistest.Eventually(t, "the API is probed", func() bool { return b.breaker().Probes >= 3 })
	for _, e := range b.breakerHistory() {
		if e.To == breaker.Closed {
			t.Errorf("an API that is down closed the breaker: %+v", e)
		}
	}
	for _, id := range failing {
		if j := b.get(id); j.Status == jobs.Failed {
			t.Errorf("job %s failed: %s", id, j.LastError)
		}
	}
}

// Without a key of the fleet nothing is kept of a password that was refused.
func TestRefusedPasswordIsNotHashed(t *testing.T) {
	t.Parallel()
	header := http.Header{"Authorization": {"basic dTpw"}}
	for name, row := range map[string]struct {
		o    httpdest.Options
		kept bool
	}{
		"token":              {httpdest.Options{AuthToken: "old"}, true},
		"password":           {httpdest.Options{AuthToken: "user:pass", AuthScheme: "Basic"}, false},
		"password in header": {httpdest.Options{Header: header}, false},
		"password, with key": {httpdest.Options{AuthToken: "user:pass", AuthScheme: "Basic", CredentialsKey: "key"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			row.o.URL = newGuarded(t, "right").URL
			b.runHandler(b.options(), newHTTP(t, row.o), rules(time.Hour))
			b.result(b.enqueue().ID)
			if s := b.breaker(); s.State != breaker.Open || (s.Credentials != "") != row.kept {
				t.Errorf("the breaker is %s, of the credentials %q is kept", s.State, s.Credentials)
			}
		})
	}
}

// AUTH_TOKEN_FILE is read again when it changes.
func TestChangedTokenFile(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := newGuarded(t, "right")
	file := filepath.Join(t.TempDir(), "token")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	var known []string
	h := newHTTP(t, httpdest.Options{URL: api.URL, AuthTokenFile: file, OnToken: func(secrets ...string) { known = append(known, secrets...) }})
	stop := b.runHandler(b.options(), h, rules(time.Hour))
	held := b.enqueue().ID
	if e := b.result(held); e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonCredentials {
		t.Fatalf("%s, %s; want rescheduled, credentials", e.Result, e.Reason)
	}
	write("two\nlines\n") // no token: the old one stays
	write("right\n")
	if e := b.result(held); e.Result != publisher.Completed {
		t.Errorf("%s, want completed", e.Result)
	}
	if got, want := api.seen(), []string{"Bearer old", "Bearer right"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
	stop()
	if want := []string{"old", "right"}; !slices.Equal(known, want) {
		t.Errorf("OnToken got %q, want %q", known, want)
	}
}

// Without a breaker that holds them the jobs wait for as long as the token server asks for.
func TestTokenServerAwayWithoutABreaker(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]breaker.Options{"disabled": {Disabled: true}, "forced closed": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			if !o.Disabled {
				if _, err := breaker.DefaultNamespace.ForceClosed(t.Context(), b.rdb, b.dest, breaker.TripOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			b.run(b.options(), func(context.Context, *jobs.Job) error {
				return &jobs.UnauthorizedError{Err: errors.New("the token server answered 503"), RetryAfter: time.Hour}
			}, publisher.Breaker(o))
			e := b.result(b.enqueue().ID)
			if wait := time.Until(e.AvailableAt); e.Result != publisher.Rescheduled || wait < 50*time.Minute {
				t.Errorf("the job is %s for %v", e.Result, wait)
			}
		})
	}
}
