package breaker

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// leased does an action with calls of that lease.
func leased(d time.Duration, do action) action {
	return func(h *harness) string {
		other := *h
		other.b = h.b.Lease(d)
		return do(&other)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	remote := Options{Remote: true, FailureThreshold: 1, Cooldown: minute, MaxInFlight: 8}
	capped := remote
	capped.FleetConcurrency = 1
	runRules(t, []rule{
		{"a lost probe is waited for no longer than ProbeTimeout", remote, []row{
			{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
			{minute, leased(time.Hour, try("lost")), "probe"},
			{minute + 34*second, try("x"), "D HALF_OPEN threshold for 1s"},
			{minute + 36*second, leased(time.Hour, try("p")), "probe"},
			{minute + 36*second, tell("p", Success()), "CLOSED slow=1"},
			{minute + 36*second, leased(time.Hour, try("lost")), "counted"},
			{minute + 70*second, try("x"), "D CLOSED slow_start for 1s"},
			{minute + 72*second, try("q"), "counted"},
		}},
		{"a slot is taken for the whole lease", capped, []row{
			{0, leased(time.Hour, try("a")), "counted"},
			{59 * minute, try("x"), "D CLOSED concurrency for 1s"},
			{61 * minute, try("b"), "counted"},
		}},
	})
}

// A call that another program makes counts in Redis alone, so that it ends with the report by any process, and a lost one
// with its own lease.
func TestRemoteCallsCountInRedis(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{Remote: true})
		other := h.instance("worker-2")
		inFlight := func(want int) {
			t.Helper()
			got, err := rdb.ZCount(t.Context(), h.place.keys[10], "-inf", "+inf").Result()
			if _, here, _ := h.b.inFlight.count(""); err != nil || int(got) != want || here != 0 {
				t.Errorf("%d calls in flight in Redis and %d here, want %d and none (%v)", got, here, want, err)
			}
		}
		var texts [][]byte
		for _, lease := range []time.Duration{0, time.Hour} {
			p, err := h.b.Key("alice").Lease(lease).Allow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			text, err := p.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		inFlight(2)
		p, err := other.Permit(texts[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Report(t.Context(), Success()); err != nil {
			t.Fatal(err)
		}
		inFlight(1)
		h.clock.advance(minute, minute)
		if _, err := h.b.Allow(t.Context()); err != nil {
			t.Fatal(err)
		}
		inFlight(1)
	})
}

// What workers declare is shown, whatever others have; theirs is, while no worker is there.
func TestRemoteInstancesDeclareNothingBesideWorkers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		remote := newHarness(t, rdb, Options{Remote: true, FleetConcurrency: 3, MaxInFlight: 5})
		o := remote.options
		o.Remote, o.FleetConcurrency, o.Instance = false, 7, "worker-2"
		worker, err := newTestBreaker(rdb, o, remote.clock.clock())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, step := range []struct {
			b     *Breaker
			valid time.Duration
		}{{remote.b, minute}, {worker, minute}, {remote.b, minute}, {worker, 0}, {remote.b, minute}} {
			if err := step.b.register(t.Context(), step.valid); err != nil {
				t.Fatal(err)
			}
			caps, err := rdb.HGet(t.Context(), remote.place.keys[1], ":caps").Result()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, caps)
		}
		if want := []string{"3 0", "7 0", "7 0", "7 0", "3 0"}; !slices.Equal(got, want) || worker.capacity.Load() != 5 {
			t.Errorf("calls in flight are shown as %q, want %q; the capacity without the worker is %d, want 5", got, want, worker.capacity.Load())
		}
	})
}
