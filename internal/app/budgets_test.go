package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// announcer is an API that answers alice's first call with its headers.
type announcer struct {
	mu     sync.Mutex
	calls  map[string][]time.Time // by key
	header map[string]string
}

func (a *announcer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := r.URL.Path[1:]
	a.calls[key] = append(a.calls[key], time.Now())
	if key == "alice" && len(a.calls[key]) == 1 {
		for name, value := range a.header {
			if after, ok := strings.CutPrefix(value, "in "); ok {
				d, _ := time.ParseDuration(after)
				value = time.Now().Add(d).UTC().Format(time.RFC3339)
			}
			w.Header().Set(name, value)
		}
	}
	_, _ = w.Write([]byte(`{"id":1,"data":{"a":1}}`))
}

func (a *announcer) called(key string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[key]
}

// An API that announces in fields of its own that no call is left is not called until the reset: by the key where
// the limit is the key's, else by the destination. Of several budgets the smallest binds.
func TestBudgetsHoldCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	in := func(d time.Duration) string { return "in " + d.String() } // after the call, see announcer
	const hour = time.Hour
	for i, row := range []struct {
		name, preset, answers string
		header                map[string]string
		of                    string // name of the breaker that opens
		window                string
		least, most           time.Duration // until the reset
	}{
		{"openai requests", "openai", "", map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-tokens": "20", "x-ratelimit-reset-tokens": "9ms"}, "api/alice", "requests", 5 * time.Minute, 6 * time.Minute},
		{"openai tokens", "openai", "", map[string]string{"x-ratelimit-remaining-requests": "50", "x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h"}, "api/alice", "tokens", hour - time.Minute, hour},
		{"x of the app", "x", "", map[string]string{"x-app-limit-24hour-remaining": "0", "x-app-limit-24hour-reset": in(hour), "x-user-limit-24hour-remaining": "40", "x-user-limit-24hour-reset": in(hour)}, "api", "app", hour - time.Minute, hour + time.Second},
		{"x of the user", "x", "", map[string]string{"x-app-limit-24hour-remaining": "10", "x-app-limit-24hour-reset": in(hour), "x-user-limit-24hour-remaining": "0", "x-user-limit-24hour-reset": in(hour)}, "api/alice", "user", hour - time.Minute, hour + time.Second},
		{"anthropic", "anthropic", "", map[string]string{"anthropic-ratelimit-requests-remaining": "40", "anthropic-ratelimit-requests-reset": in(time.Minute), "anthropic-ratelimit-output-tokens-remaining": "0", "anthropic-ratelimit-output-tokens-reset": in(hour)}, "api/alice", "output-tokens", hour - time.Minute, hour + time.Second},
		{"linear", "graphql", "", map[string]string{"x-ratelimit-requests-remaining": "4000", "x-ratelimit-requests-reset": "60", "x-ratelimit-complexity-remaining": "0", "x-ratelimit-complexity-reset": "3600"}, "api/alice", "complexity", hour - time.Minute, hour},
		{"xero", "xero", "", map[string]string{"x-minlimit-remaining": "12", "x-daylimit-remaining": "0", "x-appminlimit-remaining": "9000"}, "api/alice", "day", hour - time.Minute, hour},
		{"bigcommerce", "bigcommerce", "", map[string]string{"x-rate-limit-requests-left": "0", "x-rate-limit-time-reset-ms": "90000"}, "api/alice", "store", time.Minute, 90 * time.Second},
		{"meta", "meta", "", map[string]string{"x-business-use-case-usage": `{"1":[{"call_count":100,"estimated_time_to_regain_access":0}],"2":[{"call_count":100,"estimated_time_to_regain_access":19}]}`}, "api/alice", "business", 18 * time.Minute, 19 * time.Minute},
		{"meta, of the app", "meta", "", map[string]string{"x-app-usage": `{"call_count":28,"total_time":101,"total_cputime":25}`}, "api", "app", 4 * time.Minute, 5 * time.Minute},
		{"azure, over soon", "azure", "", map[string]string{"x-ms-ratelimit-remaining-subscription-writes": "0"}, "api/alice", "writes", time.Second, time.Second},
		{"a file", "", `
budgets:
- {name: tokens, scope: destination, left: 'float(headers["x-tokens"]) / 1000', resets: 'body.data.a + 3599', limit: "100"}
`, map[string]string{"x-tokens": "700"}, "api", "tokens", hour - time.Minute, hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			api := &announcer{calls: map[string][]time.Time{}, header: row.header}
			fake := httptest.NewServer(api)
			t.Cleanup(fake.Close)
			namespace := "row-" + strconv.Itoa(i)
			env := []string{
				"REDIS_URL=" + server.URL(), "REDIS_NAMESPACE=" + namespace, "OPS_ADDR=off", "DESTINATION_0_NAME=api", "DESTINATION_0_PRESET=" + row.preset,
				"DESTINATION_0_URL=" + fake.URL + "/{key}", "DESTINATION_0_KEY_PATTERN=[a-z]+", "DESTINATION_0_AUTH_TOKEN=token", "DESTINATION_0_CONCURRENCY=1", "DESTINATION_0_RATE=off",
			}
			if row.answers != "" {
				file := filepath.Join(t.TempDir(), "answers.yaml")
				if err := os.WriteFile(file, []byte(row.answers), 0o600); err != nil {
					t.Fatal(err)
				}
				env = append(env, "DESTINATION_0_ANSWERS_FILE="+file)
			}
			rdb := server.Client(t)
			client, err := jobs.NewClient(rdb, jobs.WithLogger(silent), jobs.WithNamespace(namespace))
			if err != nil {
				t.Fatal(err)
			}
			enqueue := func(key string) {
				if _, err := client.Enqueue(t.Context(), jobs.New("api", 1, jobs.Key(key))); err != nil {
					t.Fatal(err)
				}
			}
			stop := run(t, load(t, env...))
			enqueue("alice")
			var s breaker.Status
			redistest.Eventually(t, "the breaker to open", func() bool {
				s, err = breaker.Namespace(namespace).Get(t.Context(), rdb, row.of)
				return err == nil && (s.Cause == breaker.CauseBudget || row.most == time.Second && len(api.called("alice")) == 1)
			})
			enqueue("alice")
			switch {
			case row.most == time.Second:
				redistest.Eventually(t, "the second call", func() bool { return len(api.called("alice")) == 2 })
				if calls := api.called("alice"); calls[1].Sub(calls[0]) < row.least {
					t.Errorf("called again after %s", calls[1].Sub(calls[0]))
				}
			case s.State != breaker.Open || s.Remaining < row.least || s.Remaining > row.most+time.Second:
				t.Errorf("%s for %s, want OPEN for %s", s.State, s.Remaining, row.most)
			case row.of == "api/alice":
				enqueue("bob")
				redistest.Eventually(t, "a call of the other key", func() bool { return len(api.called("bob")) == 1 })
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if n := len(api.called("alice")); row.most > time.Second && n != 1 {
				t.Errorf("%d calls before the reset", n)
			}
		})
	}
}

// Of several low budgets all are kept by their names, and the smallest binds.
func TestSeveralBudgets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api := &announcer{calls: map[string][]time.Time{}, header: map[string]string{
		"x-ratelimit-remaining-requests": "2", "x-ratelimit-limit-requests": "60", "x-ratelimit-reset-requests": "6m0s", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "600", "x-left": "1",
	}}
	fake := httptest.NewServer(api)
	t.Cleanup(fake.Close)
	file := filepath.Join(t.TempDir(), "answers.yaml")
	if err := os.WriteFile(file, []byte(`{"budgets": [{"name": "day", "left": "headers[\"x-left\"]", "resets": "1h"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := run(t, load(t, "REDIS_URL="+server.URL(), "OPS_ADDR=off", "DESTINATION_0_NAME=api", "DESTINATION_0_PRESET=openai", "DESTINATION_0_ANSWERS_FILE="+file,
		"DESTINATION_0_URL="+fake.URL+"/{key}", "DESTINATION_0_KEY_PATTERN=[a-z]+", "DESTINATION_0_AUTH_TOKEN=token", "DESTINATION_0_CONCURRENCY=1"))
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Enqueue(t.Context(), jobs.New("api", 1, jobs.Key("alice"))); err != nil {
		t.Fatal(err)
	}
	var names []string
	redistest.Eventually(t, "the budgets", func() bool {
		read, err := breaker.DefaultNamespace.ReadOne(t.Context(), server.Client(t), breaker.Query{Limits: true}, "api/alice")
		names = nil
		for _, w := range read.Limits.Announced {
			names = append(names, fmt.Sprint(w.Name, " ", w.Remaining))
		}
		return err == nil && len(names) > 0
	})
	if diff := cmp.Diff([]string{"day 1", " 1", "requests 2"}, names); diff != "" {
		t.Error(diff)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
