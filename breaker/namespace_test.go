package breaker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Two installations share a database: what happens to a breaker of one changes nothing
// in the other, and no key of the one is a key of the other.
func TestNamespacesOfOneDatabaseAreApart(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		d := redistest.Name(t, "shared")
		other := Namespace(redistest.Name(t, "ns")[:8])
		options := Options{Destination: d, RefreshInterval: 20 * time.Millisecond, FailureThreshold: 1}
		b := start(t, rdb, options)
		options.Namespace = string(other)
		c := start(t, rdb, options)

		permit, err := c.Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p, err := b.Allow(permit.Context(t.Context())); err != nil || p.c == nil {
			t.Errorf("a permit of another namespace counts: %+v, %v", p, err)
		}
		if _, err := permit.Report(t.Context(), RateLimited(time.Hour)); err != nil {
			t.Fatal(err)
		}
		awaitView(t, c, "OPEN", func(v View) bool { return v.State == Open })
		if _, err := DefaultNamespace.Trip(t.Context(), rdb, d+"/bob", TripOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitView(t, b.Key("bob"), "OPEN", func(v View) bool { return v.State == Open })

		for _, test := range []struct {
			of             Namespace
			states         string
			events, closed int
		}{{DefaultNamespace, "CLOSED OPEN", 0, 0}, {"", "CLOSED OPEN", 0, 0}, {other, "OPEN", 1, 1}} {
			read, err := test.of.ReadOne(t.Context(), rdb, Query{Keys: true, History: All, Incidents: All}, d)
			var states []string
			for _, s := range read.Breakers() {
				states = append(states, s.State.String())
			}
			if got := strings.Join(states, " "); err != nil || got != test.states {
				t.Errorf("breakers in %q: %q, %v; want %q", test.of, got, err, test.states)
			}
			if len(read.History) != test.events || len(read.Incidents) != test.closed {
				t.Errorf("history and incidents in %q: %+v, %+v", test.of, read.History, read.Incidents)
			}
			transitions, _, _, err := test.of.ReadTransitions(t.Context(), rdb, d, 0, 10)
			if err != nil || len(transitions) != 1 {
				t.Errorf("transitions in %q: %+v, %v", test.of, transitions, err)
			}
		}
		if v := b.View(); v.State != Closed {
			t.Errorf("opened by another namespace: %+v", v)
		}
		if s, err := other.Reset(t.Context(), rdb, d, "ann"); err != nil || s.State != Closed {
			t.Errorf("Reset: %+v, %v", s, err)
		}
		keys, err := rdb.Keys(t.Context(), string(other)+":{"+d+"}:*").Result()
		if err != nil || len(keys) == 0 {
			t.Errorf("keys of %q: %v, %v", other, keys, err)
		}
	})
}

func TestNamespaceIsValidated(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	for _, n := range []Namespace{"-a", "A", "a:b", "a{b}", Namespace(strings.Repeat("a", 32))} {
		ctx := context.Background()
		for what, err := range map[string]error{
			"New":         second1(New(ctx, rdb, Options{Destination: "api", Namespace: string(n)})),
			"Get":         second1(n.Get(ctx, rdb, "api")),
			"Read":        second1(n.Read(ctx, rdb, Query{}, "api")),
			"Trip":        second1(n.Trip(ctx, rdb, "api", TripOptions{})),
			"ForceClosed": second1(n.ForceClosed(ctx, rdb, "api", TripOptions{})),
			"Reset":       second1(n.Reset(ctx, rdb, "api", "")),
		} {
			if err == nil || !strings.Contains(err.Error(), "namespace") {
				t.Errorf("%s with the namespace %q: %v", what, n, err)
			}
		}
	}
}
