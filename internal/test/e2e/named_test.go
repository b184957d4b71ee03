package e2e

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// metered is an API with a bucket of tokens for each model, which tells how many a call has cost.
type metered struct {
	perSecond float64 // tokens of a model, of which as many may be used at once

	mu      sync.Mutex
	level   map[string]float64
	at      map[string]time.Time
	calls   map[string][]time.Time // accepted, by path
	tokens  float64
	refused []time.Time
}

func (m *metered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p struct {
		Model string  `json:"model"`
		Real  float64 `json:"real"`
	}
	_ = json.NewDecoder(r.Body).Decode(&p)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	level := m.perSecond
	if last, known := m.at[p.Model]; known {
		level = min(m.perSecond, m.level[p.Model]+now.Sub(last).Seconds()*m.perSecond)
	}
	if level < p.Real {
		m.refused = append(m.refused, now)
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	m.level[p.Model], m.at[p.Model] = level-p.Real, now
	m.tokens += p.Real
	m.calls[r.URL.Path] = append(m.calls[r.URL.Path], now)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"usage":{"total_tokens":%v}}`, p.Real)
}

// startMetered starts it with a fleet.
func startMetered(t *testing.T, perSecond float64) (m *metered, f *fleet, url string) {
	t.Helper()
	m = &metered{perSecond: perSecond, level: map[string]float64{}, at: map[string]time.Time{}, calls: map[string][]time.Time{}}
	api := httptest.NewServer(m)
	t.Cleanup(api.Close)
	f = newFleet(t, redistest.Start(t), fakeapi.Options{})
	f.env = map[string]string{"PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME"), "REDIS_URL": f.env["REDIS_URL"], "OPS_ADDR": "off", "LOG_FORMAT": "json"}
	var err error
	if f.client, err = jobs.NewClient(f.rdb, jobs.WithDestinations("chat", "a", "b", "c"), jobs.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	return m, f, api.URL
}

// serve starts a worker for a destination, by a file.
func (f *fleet) serve(dest, file string) {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "d.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.env["DESTINATIONS_FILE"], f.dest = path, dest
	f.start()
}

// awaitCalls waits for so many accepted calls, and returns them by path.
func (m *metered) awaitCalls(t *testing.T, n int) map[string][]time.Time {
	t.Helper()
	redistest.Await(t, 2*time.Minute, fmt.Sprint(n, " calls"), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		all := 0
		for _, calls := range m.calls {
			all += len(calls)
		}
		return all >= n
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.calls)
}

// The API limits requests, and tokens of each model; estimates are wrong by a factor of two, up and down. Windows of a
// minute are a second here.
func TestNamedLimitsOfTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 12 s")
	}
	const perSecond, calls = 4000, 600
	m, f, url := startMetered(t, perSecond)
	f.serve("chat", fmt.Sprintf(`
limits:
  requests: {rate: "500/1s:50"}
  tokens: {rate: "4000/1s:400", unit: tokens, key: payload.model}
defaults: {retry: max=3}
destinations:
  chat:
    url: %s/chat
    concurrency: 20
    key_by: payload.model
    limits: [requests, {name: tokens, estimate: payload.max_tokens, actual: body.usage.total_tokens}]
`, url))
	var specs []*jobs.Spec
	for i := range calls {
		estimate := 60 + 40*(i%3)
		cost := estimate * 2
		if i/2%2 == 0 {
			cost = estimate / 2
		}
		specs = append(specs, jobs.New("chat", map[string]any{"model": []string{"small", "large"}[i%2], "max_tokens": estimate, "real": cost}))
	}
	f.enqueueSpecs(specs)
	all := m.awaitCalls(t, calls)["/chat"]
	took := all[calls-1].Sub(all[0])
	share := (m.tokens - 2*400) / took.Seconds() / (2 * perSecond) // a burst of each model is free
	t.Logf("%d calls and %v tokens in %v, %.3f of what the limits allow, %d refused", calls, m.tokens, took, share, len(m.refused))
	if windows := took.Seconds(); float64(len(m.refused)) > 2*windows {
		t.Errorf("%d calls were refused in %.0f windows", len(m.refused), windows)
	}
	if share < .3 { // a busy machine had .5; alone it is .97
		t.Errorf("%.3f of what the limits allow", share)
	}
}

// Three destinations, each served by a process of its own, draw on one budget: it is never exceeded, and each has its share.
func TestNamedLimitsOfDestinations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	const rate, burst = 40, 10
	names := []string{"a", "b", "c"}
	m, f, url := startMetered(t, 1e9)
	for _, name := range names {
		f.serve(name, fmt.Sprintf("limits: {shop: {rate: '%d/1s:%d', concurrency: 6}}\ndestinations:\n  %s: {url: '%s/%s', concurrency: 10, limits: [shop]}\n", rate, burst, name, url, name))
	}
	var specs []*jobs.Spec
	for i := range 600 {
		specs = append(specs, jobs.New(names[i%3], map[string]int{"n": i}))
	}
	f.enqueueSpecs(specs)
	calls := m.awaitCalls(t, 300)
	var all []time.Time
	for _, name := range names {
		n := len(calls["/"+name])
		t.Logf("%s: %d calls", name, n)
		if n < 50 {
			t.Errorf("%s had %d of 300 calls", name, n)
		}
		all = append(all, calls["/"+name]...)
	}
	slices.SortFunc(all, time.Time.Compare)
	for i := range all {
		for j := i; j < len(all); j++ {
			// A call may be on its way for a while after it was permitted.
			if n, most := j-i+1, burst+1+rate*(all[j].Sub(all[i])+300*time.Millisecond).Seconds(); float64(n) > most {
				t.Fatalf("%d calls within %v, of which %.0f are allowed", n, all[j].Sub(all[i]), most)
			}
		}
	}
	t.Logf("%d calls in %v", len(all), all[len(all)-1].Sub(all[0]))
}
