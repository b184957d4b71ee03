package breaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// What a permit holds in Redis is freed as soon as Redis takes commands again, long before its lease
// ends; and a refusal that one instance could not report reaches the fleet.
func TestReportsAreRepeatedUntilRedisTakesThem(t *testing.T) {
	t.Parallel()
	faults := map[string]func(t *testing.T, s *redistest.Server) (over func()){
		"writes refused": func(t *testing.T, s *redistest.Server) func() {
			set := func(replicas string) {
				if err := s.Client(t).ConfigSet(t.Context(), "min-replicas-to-write", replicas).Err(); err != nil {
					t.Fatal(err)
				}
			}
			set("1")
			return func() { set("0") }
		},
		"hung":      func(_ *testing.T, s *redistest.Server) func() { s.Pause(); return s.Resume },
		"restarted": func(_ *testing.T, s *redistest.Server) func() { s.Kill(); return s.Restart },
	}
	told := map[string]struct {
		tell func(ctx context.Context, p Permit) error
		want func(v View) bool
	}{
		"accepted": {reported(Success()), func(v View) bool { return v.State == Closed && v.SlowStart == 1 }},
		"refused":  {reported(RateLimited(time.Hour)), func(v View) bool { return v.State == Open && v.Probes == 1 }},
		"released": {func(ctx context.Context, p Permit) error { return p.Release(ctx) }, func(v View) bool { return v.State == HalfOpen && v.ProbeAt.IsZero() }},
	}
	for fault, begin := range faults {
		for outcome, c := range told {
			t.Run(fault+"/"+outcome, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t, redistest.WithAOF())
				o := fastRefresh(Options{Destination: "api", ProbeTimeout: time.Hour, MaxInFlight: 4, MaxCooldown: 2 * time.Hour})
				one, two := start(t, s.Client(t), o), start(t, s.Client(t), o)
				report(t, one, RateLimited(time.Millisecond))
				probe := soon(t, one)
				if !probe.Probe() {
					t.Fatal("the first permit after the cooldown is no probe's")
				}
				over := begin(t, s)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := c.tell(ctx, probe); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("told a Redis that takes nothing: %v, want ErrUnavailable", err)
				}
				over()
				awaitView(t, two, outcome, c.want)
			})
		}
	}
}

func reported(o Outcome) func(ctx context.Context, p Permit) error {
	return func(ctx context.Context, p Permit) error {
		_, err := p.Report(ctx, o)
		return err
	}
}

// A permit whose grant was lost on its way is handed in, also if Redis is away for longer.
func TestLostGrantIsHandedIn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithAOF())
	o := fastRefresh(Options{Destination: "api", ProbeTimeout: time.Hour, FleetConcurrency: 1, FailClosed: true})
	one, two := start(t, s.Client(t), o), start(t, s.Client(t), o)
	s.Pause() // what is sent now is done later
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := one.Allow(ctx); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("asked a Redis that hangs: %v, want ErrUnavailable", err)
	}
	s.Resume()
	soon(t, two)
}

// A report is owed for a minute, and its hint for as long as the API said.
func TestOwedReportsEnd(t *testing.T) {
	t.Parallel()
	runRows(t, Options{},
		row{0, ask("a"), "permit"},
		row{0, func(h *harness) string {
			ctx, cancel := context.WithTimeout(h.t.Context(), -1)
			defer cancel()
			_, err := h.permits["a"].Report(ctx, RateLimited(10*second))
			if !errors.Is(err, ErrUnavailable) {
				h.t.Fatalf("report: %v", err)
			}
			return ""
		}, ""},
		row{4 * second, sendOwed, "OPEN 6s failures=1 hint wasted=1"},
		row{4 * second, sendOwed, "OPEN 6s failures=1 hint wasted=1"},
	)
}

// soon waits for a permit.
func soon(t *testing.T, b *Breaker) Permit {
	t.Helper()
	p, err := b.Wait(patient(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sendOwed(h *harness) string {
	h.b.sendOwed(patient(h.t))
	return get(h)
}

// While Redis is known to be away, calls are decided at once: only one per RefreshInterval waits for it. With a declared
// limit none is made, whatever FailClosed says.
func TestCallsDoNotWaitForARedisThatIsAway(t *testing.T) {
	t.Parallel()
	const calls = 40
	for name, closed := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			b := start(t, s.Client(t), Options{
				Destination: "api", FleetConcurrency: 100, FailClosed: closed, Timeout: 300 * time.Millisecond, RefreshInterval: time.Minute,
			})
			soon(t, b)
			s.Pause()
			before := time.Now()
			for range calls {
				if _, err := b.Allow(t.Context()); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("without Redis: %v", err)
				}
			}
			if took := time.Since(before); took > calls*300*time.Millisecond/4 {
				t.Errorf("%d calls took %v, though Redis was known to be away", calls, took)
			}
		})
	}
}

// A connection that breaks under the reply costs neither the call nor its slot: the same permit is asked for again.
func TestALostReplyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	hook := &lostReply{}
	rdb.(*redis.Client).AddHook(hook)
	b := start(t, rdb, Options{Destination: "api", FleetConcurrency: 2, RefreshInterval: time.Hour})
	hook.lose.Store(true)
	p, err := b.Allow(patient(t))
	if err != nil || !p.Metered() {
		t.Fatalf("a reply was lost: %v, counted: %v", err, p.Metered())
	}
	soon(t, b)
	if _, err := b.Allow(patient(t)); !errors.Is(err, ErrOpen) {
		t.Errorf("a third call: %v, want none", err)
	}
	hook.lose.Store(true)
	if _, err := p.Report(patient(t), Success()); err != nil {
		t.Errorf("the reply of a report was lost: %v", err)
	}
	if _, err := b.Allow(patient(t)); err != nil {
		t.Errorf("the slot of the call that ended: %v", err)
	}
}

// What an instance has heard of the API holds, also if Redis could not be told: no call is made until Redis permits it.
func TestAnAnnouncedLimitNeedsRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithAOF())
	b := start(t, s.Client(t), fastRefresh(Options{Destination: "api", MaxInFlight: 1}))
	if err := b.readSnapshot(patient(t)); err != nil { // with its own registration: it knows when few calls are left
		t.Fatal(err)
	}
	p, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if q, err := b.Allow(t.Context()); err != nil {
		t.Fatalf("nothing is declared: %v", err)
	} else if err := q.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	// No error if it is known already that Redis is away: the instance keeps what the report says.
	if _, err := p.Report(t.Context(), Success().WithBudget(Budget{Remaining: 1, Reset: time.Hour})); err != nil && !errors.Is(err, ErrUnavailable) {
		t.Fatalf("report: %v", err)
	}
	if _, err := b.Allow(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("one call is left, and Redis is away: %v, want ErrUnavailable", err)
	}
	s.Restart()
	redistest.Eventually(t, "a permit of Redis", func() bool {
		_, err := b.Allow(t.Context())
		return err == nil
	})
}

// Redis is asked again as soon as it is known to answer.
func TestRedisThatIsBackIsAsked(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, s.Client(t), fastRefresh(Options{Destination: "api", FleetConcurrency: 1, FailClosed: true, Timeout: 300 * time.Millisecond}))
	s.Pause()
	if _, err := b.Allow(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("without Redis: %v, want ErrUnavailable", err)
	}
	s.Resume()
	redistest.Eventually(t, "a permit", func() bool {
		_, err := b.Allow(t.Context())
		return err == nil
	})
}

// A release whose reply was lost is repeated, and gives its call back once.
func TestOwedReleaseGivesBackOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	hook := &lostReply{}
	rdb.(*redis.Client).AddHook(hook)
	b := start(t, rdb, fastRefresh(Options{Destination: "api", Rate: Rates{{Calls: 10, Per: 24 * time.Hour, Zone: "UTC"}}}))
	soon(t, b)
	kept := soon(t, b)
	hook.lose.Store(true)
	if err := kept.Release(patient(t)); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("released without a reply: %v, want ErrUnavailable", err)
	}
	redistest.Eventually(t, "the release is repeated", func() bool { return !b.owed.any() && !b.away() })
	n := 0
	for _, err := b.Allow(patient(t)); err == nil; _, err = b.Allow(patient(t)) {
		n++
	}
	if n > 9 {
		t.Errorf("%d calls beside the first one, of 10", n)
	}
}

// lostReply is a connection that breaks after the next script has run.
type lostReply struct{ lose atomic.Bool }

func (*lostReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*lostReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lostReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && err == nil && strings.Contains(fmt.Sprint(cmd.Args()...), "permit") && l.lose.CompareAndSwap(true, false) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}
