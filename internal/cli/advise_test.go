package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// Advice is what would have wasted less of what was recorded, as its user writes it.
func TestAdvise(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	variables := append(slices.Clone(shop), "CIRCUIT_BREAKER_LEARN=false", "CIRCUIT_BREAKER_COOLDOWN_MS=240000", "CIRCUIT_BREAKER_COOLDOWN_JITTER=0")
	runIn(t, append(variables, b.env...), "", "advise", "shop").want(t, 0, "shop: no jobs were counted in the last 24 hours: advice needs a worker that publishes some\n", "")

	rdb := b.server.Client(t)
	now := time.Now().Add(-2 * time.Hour).Truncate(time.Minute)
	count := func(name string, n int) {
		t.Helper()
		if err := rdb.HIncrBy(t.Context(), store.DefaultNamespace.MinutesKey("shop", now.Unix()/3600), store.MinuteField(now.UTC().Minute(), name), int64(n)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	count("backlog", 70)
	runIn(t, append(variables, b.env...), "", "advise", "shop").want(t, 0, "shop: no limit of its API is known: none is declared or announced, and there were not three incidents in the last 24 hours\n", "")
	virtual, err := breaker.NewVirtual(t.Context(), rdb, breaker.Options{Destination: "shop", FailureThreshold: 2, Cooldown: 10 * time.Minute, NoLearning: true, MaxInFlight: 4}, func() time.Time { return now }, func() float64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // windows of 10 minutes, with 20 calls
		count("calls", 22)
		count("limited", 2)
		count("completed", 20)
		for i := range 12 {
			o := breaker.Answered(200)
			if i >= 10 {
				o = breaker.RateLimited(0)
			}
			p, err := virtual.Allow(t.Context())
			if err == nil {
				_, err = p.Report(t.Context(), o)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(10 * time.Minute)
	}

	file := filepath.Join(t.TempDir(), "destinations.yaml")
	if err := os.WriteFile(file, []byte("defaults: {circuit_breaker_learn: false, circuit_breaker_cooldown_ms: 240000}\ndestinations:\n  another: {url: https://example.com}\n  shop: {url: https://api.github.com/x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		env                   []string
		rate, cooldown, other string
	}{
		{variables, "DESTINATION_0_RATE=20/10m", "DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_MS=600000", "DESTINATION_0_CIRCUIT_BREAKER_LEARN=true"},
		{[]string{"DESTINATIONS_FILE=" + file}, "destinations.shop.rate: 20/10m", "destinations.shop.circuit_breaker_cooldown_ms: 600000", "destinations.shop.preset: github"},
	} {
		env := append(slices.Clone(row.env), b.env...)
		doc := decode[advice](t, runIn(t, env, "", "advise", "shop", "-o", "json").ok(t))
		if doc.API != "window:20/10m" || doc.From != "observed" || doc.Jobs != 90 || doc.Refused != 8 || doc.Today.Wasted == 0 || !slices.Contains(doc.Tried, row.other) {
			t.Errorf("%+v", doc)
		}
		best := doc.Better[0]
		if best.Setting != row.rate || best.Wasted != 0 || *best.Drained > 1.05**doc.Today.Drained || !slices.ContainsFunc(doc.Better, func(s tried) bool { return s.Setting == row.cooldown && s.Wasted < doc.Today.Wasted }) {
			t.Errorf("%+v", doc.Better)
		}
	}
	out := runIn(t, append(variables, b.env...), "", "advise", "shop").ok(t)
	for _, want := range []string{"SETTING ", "\ntoday ", "\nDESTINATION_0_RATE=20/10m ", "\nsimulated: 90 jobs of 2h", "the API refused 8 calls (9", "limits: observed, window:20/10m\n", "\nslower: DESTINATION_0_RATE=15/10m:5: 0 wasted a day, drained in "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
	declared := runIn(t, append(variables, append(b.env, "DESTINATION_0_RATE=20/10m")...), "", "advise", "shop").ok(t)
	if !strings.HasSuffix(declared, "\n") || !strings.Contains(declared, "no call is wasted with today's settings\n") {
		t.Error(declared)
	}
	if r := runIn(t, b.env, "", "advise", "shop"); r.status != 2 || !strings.Contains(r.stderr, "shop is not configured here") {
		t.Errorf("%+v", r)
	}
}
