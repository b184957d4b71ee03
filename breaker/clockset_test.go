package breaker

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// clients returns the Redis clients of a test: of one server, or of a Cluster.
type clients interface {
	Client(t testing.TB) redis.UniversalClient
}

// instancesOf are some of a destination, each with a client of its own.
func instancesOf(t *testing.T, s clients, n int, o Options) (all []*Breaker) {
	t.Helper()
	for range n {
		all = append(all, start(t, s.Client(t), o))
	}
	return all
}

// grantedBy asks each instance some times, and returns the permits.
func grantedBy(t *testing.T, all []*Breaker, key string) (permits []Permit) {
	t.Helper()
	for range 3 {
		for _, b := range all {
			p, err := b.Key(key).Allow(patient(t))
			if err == nil {
				permits = append(permits, p)
			} else if !errors.Is(err, ErrOpen) {
				t.Fatal(err)
			}
		}
	}
	return permits
}

// A clock of Redis that is set forward frees no slot of a call that is in flight: neither of the fleet, nor of a key or a
// named limit.
func TestClockSetForwardFreesNoSlot(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for name, row := range map[string]struct {
		key     string
		cluster bool
		options Options
	}{
		"of the fleet":                  {"", false, Options{FleetConcurrency: 2}},
		"of a key":                      {"alice", false, Options{KeyConcurrency: 2}},
		"of a named limit":              {"", false, Options{Limits: []NamedLimit{{Name: "shared", Concurrency: 2}}}},
		"of a named limit on a Cluster": {"", true, Options{Limits: []NamedLimit{{Name: "shared", Concurrency: 2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock, option := redistest.WithClock(t)
			var s clients
			if row.cluster {
				s = redistest.StartCluster(t, option)
			} else {
				s = redistest.Start(t, option)
			}
			o := row.options
			o.Destination, o.ProbeTimeout = "api", time.Hour
			all := instancesOf(t, s, 3, o)
			held := grantedBy(t, all, row.key)
			if len(held) != 2 {
				t.Fatalf("%d calls in flight, want 2", len(held))
			}
			for i := range 20 {
				clock.Step([]time.Duration{90 * time.Minute, 1900 * time.Millisecond, 59 * time.Minute}[i%3])
				if i%5 == 0 {
					all = append(all, start(t, s.Client(t), o)) // it does not know of the step
				}
				if more := grantedBy(t, all, row.key); len(more) > 0 {
					t.Fatalf("%d more calls in flight after %d steps", len(more), i+1)
				}
			}
			for _, p := range held {
				if _, err := p.Report(patient(t), Success()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := all[0].Key(row.key).Wait(patient(t), time.Minute); err != nil {
				t.Errorf("after the end of the two: %v", err)
			}
		})
	}
}

// Nor does it allow a second probe.
func TestClockSetForwardAllowsNoSecondProbe(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "alice"} {
		t.Run("of "+key, func(t *testing.T) {
			t.Parallel()
			clock, option := redistest.WithClock(t)
			s := redistest.Start(t, option)
			o := Options{Destination: "api", ProbeTimeout: time.Hour, Cooldown: time.Millisecond, FailureThreshold: 1}
			all := instancesOf(t, s, 3, o)
			report(t, all[0].Key(key), RateLimited(0))
			var probe Permit
			redistest.Eventually(t, "a probe", func() bool {
				p, err := all[1].Key(key).Allow(patient(t))
				probe = p
				return err == nil && probe.Probe()
			})
			for i := range 20 {
				clock.Step([]time.Duration{30 * time.Minute, 1900 * time.Millisecond, 2 * time.Hour}[i%3])
				if i%5 == 0 {
					all = append(all, start(t, s.Client(t), o))
				}
				if more := grantedBy(t, all, key); len(more) > 0 {
					t.Fatalf("%d more probes after %d steps", len(more), i+1)
				}
			}
			if status, err := probe.Report(patient(t), Success()); err != nil || status.State != Closed {
				t.Errorf("after the probe's success: %s, %v", status.State, err)
			}
		})
	}
}

// A slot of a dead process is free when its lease ends; if the clock was set since, a lease after an instance has seen
// that. So is the probe.
func TestDeadCallsLeaseEnds(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	refused := "CLOSED for 1s"
	runRules(t, []rule{
		{"a slot", Options{FleetConcurrency: 1, ProbeTimeout: lease}, []row{
			{0, ask("dead"), "permit"},
			{lease - second, ask("next"), refused},
			{lease, ask("next"), "permit"},
		}},
		{"after a step", Options{FleetConcurrency: 1, ProbeTimeout: lease}, []row{
			{0, ask("dead"), "permit"},
			{second, jump(time.Hour), ""},
			{second, ask("next"), refused},
			{lease, ask("next"), refused},
			{second + lease + second/5, ask("next"), "permit"},
			{second + 2*lease + second/5, ask("later"), "permit"}, // as without a step
		}},
		{"the probe", Options{Cooldown: second, FailureThreshold: 1, ProbeTimeout: lease}, []row{
			{0, call(RateLimited(0)), "OPEN 1s failures=1 threshold wasted=1"},
			{second, ask("dead"), "probe"},
			{second + lease, ask("next"), "probe"},
			{2*second + lease, jump(time.Hour), ""},
			{2*second + lease, ask("other"), "HALF_OPEN for 9s"},
			{second + 2*lease, ask("other"), "HALF_OPEN for 1s"}, // it sees the step
			{3 * lease, ask("other"), "HALF_OPEN for 1s"},
			{second + 3*lease, ask("other"), "probe"},
		}},
	})
}
