package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/internal/dest/presets"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

// documented answers calls of /N with example N of a preset. The instants in their headers are
// relative to their Date.
func documented(t *testing.T, p *presets.Preset, asked func(*http.Request)) string {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked(r)
		n, err := strconv.Atoi(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		if err != nil || n >= len(p.Examples) {
			t.Errorf("%s: called %s", p.Name, r.URL)
			return
		}
		e := p.Examples[n]
		w.Header().Set("Date", "Sat, 21 Nov 2026 12:00:00 GMT")
		for name, value := range e.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(e.Status)
		_, _ = w.Write([]byte(e.Body))
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// Each answer that the documentation of an API shows comes to what its preset says.
func TestPresetExamples(t *testing.T) {
	t.Parallel()
	const token = "user:secret"
	authorization := map[string]string{
		"anthropic":   "X-Api-Key: " + token,
		"bigcommerce": "X-Auth-Token: " + token,
		"discord":     "Authorization: Bot " + token,
		"riot":        "X-Riot-Token: " + token,
		"shopify":     "X-Shopify-Access-Token: " + token,
		"twilio":      "Authorization: Basic dXNlcjpzZWNyZXQ=",
	}
	for _, name := range presets.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := presets.Get(name)
			header, value, _ := strings.Cut(cmp.Or(authorization[name], "Authorization: Bearer "+token), ": ")
			url := documented(t, p, func(r *http.Request) {
				if got := r.Header.Get(header); got != value {
					t.Errorf("%s: %q, want %q", header, got, value)
				}
			})
			if strings.Contains(p.Settings["URL"], "{key}") {
				url += "/{key}"
			}
			cfg := load(t, "DESTINATION_0_NAME=api", "DESTINATION_0_PRESET="+name, "DESTINATION_0_URL="+url, "DESTINATION_0_AUTH_TOKEN="+token,
				"DESTINATION_0_RATE=1000/1s")
			var stop teardown
			defer func() { _ = stop.run() }()
			var h captured
			if err := serve(&h, 0, cfg.Destinations[0], nil, nil, nil, nil, cfg, redistest.Logger(t), &stop); err != nil {
				t.Fatal(err)
			}
			rules, err := answers.Preset(name, p.Rules())
			if err != nil {
				t.Fatal(err)
			}
			for n, e := range p.Examples {
				job := publishertest.NewJob(jobs.New("api", map[string]string{"a": "b"}, jobs.Key("alice"), jobs.Path(fmt.Sprint("/", n)),
					jobs.Retry(jobs.RetryPolicy{MaxRetries: 3})))
				if got, want := comes(publishertest.Publish(t.Context(), h.Handler, job)), wanted(t, e); got != want {
					t.Errorf("%d %s: %s, want %s", e.Status, e.Name, got, want)
				}
				cost := 0.0
				header := http.Header{"Date": {"Sat, 21 Nov 2026 12:00:00 GMT"}}
				for name, value := range e.Headers {
					header.Set(name, value)
				}
				decided := rules.Decide(httpdest.Answered{Job: job, Status: e.Status, Header: header, Body: []byte(e.Body), Received: time.Now()})
				if got := decided.Cost; got != nil {
					cost = *got
				}
				var budgets []string
				for _, b := range decided.Budgets {
					budgets = append(budgets, budgetText(b))
				}
				if e.Budgets != nil && !slices.Equal(budgets, e.Budgets) {
					t.Errorf("%d %s: budgets %q, want %q", e.Status, e.Name, budgets, e.Budgets)
				}
				if cost != float64(e.Cost) {
					t.Errorf("%d %s: cost %v, want %d", e.Status, e.Name, cost, e.Cost)
				}
			}
		})
	}
}

// budgetText is a budget as examples write it.
func budgetText(b jobs.Budget) string {
	text := fmt.Sprintf("%s: %d left", b.Name, b.Remaining)
	if b.Limit > 0 {
		text = fmt.Sprintf("%s: %d of %d left", b.Name, b.Remaining, b.Limit)
	}
	text += ", resets in " + b.Reset.String()
	return text + map[jobs.Scope]string{jobs.ScopeUser: ", of the key", jobs.ScopeGlobal: ", of the destination"}[b.Scope]
}

// captured is the handler that serve adds.
type captured struct{ publisher.Handler }

func (c *captured) Handle(_ string, h publisher.Handler, _ ...publisher.HandleOption) error {
	c.Handler = h
	return nil
}

func wanted(t *testing.T, e presets.Example) string {
	t.Helper()
	wait, err := time.ParseDuration(cmp.Or(e.Wait, "0s"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(e.Outcome, " ", wait, " ", e.Scope)
}

func comes(r publishertest.Result) string {
	var refused *jobs.UnauthorizedError
	outcome, wait := map[string]string{publisher.Retried: "retry", publisher.FailedFinal: "fail", publisher.Completed: "ok"}[r.Result], time.Duration(0)
	switch {
	case r.RateLimited:
		outcome, wait = "limited", r.Hint
	case errors.As(r.Err, &refused):
		return "unauthorized 0s "
	case r.Result == publisher.Rescheduled:
		outcome, wait = "reschedule", r.Delay
	}
	return fmt.Sprint(outcome, " ", wait, " ", r.Scope)
}

// limitedAPI answers as answer says, which gets the number of the call and how many were answered
// well before it, and counts.
type limitedAPI struct {
	mu               sync.Mutex
	calls, ok, waste int
	answer           func(n, ok int, now time.Time) presets.Example
}

func (a *limitedAPI) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.answer(a.calls, a.ok, time.Now())
	a.calls++
	switch e.Outcome {
	case "ok":
		a.ok++
	case "limited":
		a.waste++
	}
	for name, value := range e.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write([]byte(e.Body))
}

// Fleets that call with a preset waste few calls on limits, and fail at once what is refused for
// good. Three APIs refuse in ways that statuses alone do not tell.
func TestPresetsWasteFewCalls(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	const concurrency = 4
	example := func(preset, name string) presets.Example {
		p, _ := presets.Get(preset)
		i := slices.IndexFunc(p.Examples, func(e presets.Example) bool { return e.Name == name })
		e := p.Examples[i]
		e.Headers = maps.Clone(e.Headers)
		return e
	}
	always := func(preset, name string) func(int, int, time.Time) presets.Example {
		e := example(preset, name)
		return func(int, int, time.Time) presets.Example { return e }
	}
	// window lets quota calls pass until the end of a window, which the headers tell.
	var reset time.Time
	left := 0
	primary := func(_, _ int, now time.Time) presets.Example {
		if !now.Before(reset) {
			reset, left = now.Truncate(time.Second).Add(2*time.Second), 15
		}
		e := example("github", "created")
		if left == 0 {
			e = example("github", "primary limit")
		}
		left = max(0, left-1)
		e.Headers["x-ratelimit-limit"], e.Headers["x-ratelimit-remaining"] = "15", strconv.Itoa(left)
		e.Headers["x-ratelimit-reset"] = strconv.FormatInt(reset.Unix(), 10)
		return e
	}
	var until time.Time
	secondary := func(_, ok int, now time.Time) presets.Example {
		if ok < 10 || !until.IsZero() && !now.Before(until) {
			return example("github", "created")
		}
		if until.IsZero() {
			until = now.Add(time.Second)
		}
		e := example("github", "secondary limit with retry-after")
		e.Headers["retry-after"] = "1"
		return e
	}
	unsaid := func(_, ok int, _ time.Time) presets.Example {
		if ok < 10 {
			return example("github", "created")
		}
		return example("github", "secondary limit, in the body alone")
	}
	// bucket holds 300 points and restores 400 a second; each query costs 100.
	bucket := func() func(int, int, time.Time) presets.Example {
		available, filled := 300.0, time.Now()
		return func(_, _ int, now time.Time) presets.Example {
			available, filled = min(300, available+400*now.Sub(filled).Seconds()), now
			if available >= 100 {
				available -= 100
				e := example("shopify", "GraphQL, done")
				e.Body = `{"data":{},"extensions":{"cost":{"requestedQueryCost":100,"actualQueryCost":100}}}`
				return e
			}
			e := example("shopify", "GraphQL, throttled")
			e.Body = fmt.Sprintf(`{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":100,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":300,"currentlyAvailable":%d,"restoreRate":400}}}}`, int(available))
			return e
		}
	}
	slack := func(n, _ int, _ time.Time) presets.Example {
		if n == 5 {
			e := example("slack", "rate limited")
			e.Headers["Retry-After"] = "1"
			return e
		}
		return example("slack", "sent")
	}
	type counts struct{ Completed, Failed, Waiting int }
	for i, row := range []struct {
		name, preset string
		jobs         int
		answer       func(n, ok int, now time.Time) presets.Example
		want         counts
		calls        int // at most
		waste        int // at most
	}{
		{"GitHub, primary limit", "github", 25, primary, counts{Completed: 25}, 25 + concurrency, concurrency},
		{"GitHub, secondary limit with retry-after", "github", 20, secondary, counts{Completed: 20}, 21 + concurrency, 1 + concurrency}, // and the test of a short hint
		{"GitHub, secondary limit in the body alone", "github", 20, unsaid, counts{Completed: 10, Waiting: 10}, 10 + concurrency, concurrency},
		{"GitHub, missing permission", "github", 5, always("github", "missing permission"), counts{Failed: 5}, 5, 0},
		{"GitHub, invalid input", "github", 5, always("github", "invalid input"), counts{Failed: 5}, 5, 0},
		{"Shopify, throttled", "shopify", 10, bucket(), counts{Completed: 10}, 30, 20},
		{"Shopify, with a rate", "shopify", 10, bucket(), counts{Completed: 10}, 10, 0}, // of points
		{"Slack, rate limited", "slack", 8, slack, counts{Completed: 8}, 8 + concurrency, concurrency},
		{"Slack, unknown channel", "slack", 5, always("slack", "unknown channel"), counts{Failed: 5}, 5, 0},
		{"Slack, internal error", "slack", 5, always("slack", "internal error"), counts{Failed: 5}, 5, 0},
		{"Slack, revoked token", "slack", 5, always("slack", "revoked token"), counts{Waiting: 5}, concurrency, 0},
	} {
		namespace := "row-" + strconv.Itoa(i)
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			api := &limitedAPI{answer: row.answer}
			fake := httptest.NewServer(api)
			t.Cleanup(fake.Close)
			url, rate, cost := fake.URL, "", 1
			if row.preset == "shopify" {
				url += "/{key}"
			}
			if strings.HasSuffix(row.name, "with a rate") {
				rate, cost = "380/1s:200", 100
			}
			cfg := load(t, "REDIS_URL="+server.URL(), "REDIS_NAMESPACE="+namespace, "OPS_ADDR=off", "DESTINATION_0_NAME=api", "DESTINATION_0_RETRY=none", "DESTINATION_0_PRESET="+row.preset,
				"DESTINATION_0_URL="+url, "DESTINATION_0_AUTH_TOKEN=token", "DESTINATION_0_RATE="+rate, "DESTINATION_0_CONCURRENCY="+strconv.Itoa(concurrency))
			client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent), jobs.WithNamespace(namespace))
			if err != nil {
				t.Fatal(err)
			}
			for i := range row.jobs {
				if _, err := client.Enqueue(t.Context(), jobs.New("api", i, jobs.Key("shop"), jobs.Cost(cost))); err != nil {
					t.Fatal(err)
				}
			}
			stop := run(t, cfg)
			var got counts
			redistest.Eventually(t, "the jobs to end or wait", func() bool {
				if api.called() < row.want.Completed+row.want.Failed {
					return false
				}
				page, err := client.List(t.Context(), jobs.ListOptions{Limit: 100})
				if err != nil {
					t.Fatal(err)
				}
				got = counts{}
				for _, j := range page.Items {
					switch j.Status {
					case jobs.Completed:
						got.Completed++
					case jobs.Failed:
						got.Failed++
					case jobs.Pending, jobs.Running:
						got.Waiting++
					}
				}
				return got == row.want && (row.want.Waiting == 0 || api.called() > row.want.Completed)
			})
			if err := stop(); err != nil {
				t.Error(err)
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			t.Logf("%s: %d jobs, %d calls, %d wasted", row.name, row.jobs, api.calls, api.waste)
			if api.calls > row.calls || api.waste > row.waste {
				t.Errorf("%d calls, %d of them wasted; want at most %d and %d", api.calls, api.waste, row.calls, row.waste)
			}
		})
	}
}

// called is how often it was called.
func (a *limitedAPI) called() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}
