package breaker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/quota"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// alone are options of a single caller that learns limits.
func alone() Options {
	return Options{Cooldown: minute, MaxInFlight: 1, ProbeTimeout: 30 * second}
}

// limit describes what is learned.
func limit(h *harness) string {
	look(h)
	l := h.b.view.Load().record.learned()
	if l == nil {
		return "nothing"
	}
	return fmt.Sprintf("%d per %v, at once %d, confidence %.1f", l.Calls, l.Window, l.Concurrency, l.Confidence)
}

// An API takes 5 calls a minute, from the first one on.
func TestLearnsTheWindowOfASingleCaller(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0), Success()
	runRows(t, alone(),
		// The first incident is as ever.
		row{0, both(calls(5, accept), calls(2, refuse)), "CLOSED failures=2"},
		row{0, call(refuse), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{0, limit, "nothing"},
		row{minute, call(accept), "CLOSED"},
		// One refused call, and one more to be sure.
		row{61 * second, both(calls(4, accept), call(refuse)), "CLOSED failures=1 slow=1"},
		row{61 * second, call(refuse), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{61 * second, limit, "nothing"},
		row{121 * second, call(accept), "CLOSED"},
		row{121 * second, limit, "5 per 1m1s, at once 0, confidence 0.3"},
		// Calls are made as they come, and one more. Then a shorter length is tried.
		row{121 * second, both(calls(4, accept), call(refuse)), "CLOSED"},
		row{122 * second, both(limit, try("a")), "D CLOSED learned for 29.11s"},
	)
}

func TestLearnsFromRefusalsAlone(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]Outcome{"5xx": NoAnswer(), "failure": Failure(), "neutral": Neutral()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				h := newHarness(t, rdb, alone())
				for range 30 {
					if p, err := h.b.Allow(t.Context()); err == nil {
						if _, err := p.Report(t.Context(), outcome); err != nil {
							t.Fatal(err)
						}
					}
					h.clock.advance(minute, minute)
				}
				if since := h.b.view.Load().record.LearnedSince; since != 0 {
					t.Errorf("learned since %d", since)
				}
			})
		})
	}
}

func TestHintsAreBetterThanWhatIsLearned(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(0), Success()
	runRows(t, alone(),
		row{0, calls(3, refuse), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{minute, call(accept), "CLOSED"},
		row{61 * second, both(calls(4, accept), calls(2, refuse)), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{121 * second, call(accept), "CLOSED"},
		row{129 * second, call(RateLimited(7 * second)), "OPEN 7s failures=1 hint wasted=1"},
		row{136 * second, call(accept), "CLOSED"},
		row{136 * second, limit, "5 per 1m1s, at once 0, confidence 0.3"},
	)
}

// The second hint within a day begins to teach: how many calls there were until the third.
func TestHintsTeach(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(57*second), Success()
	runRows(t, alone(),
		row{0, both(calls(5, accept), call(refuse)), "OPEN 57s failures=1 hint wasted=1"},
		row{minute, both(calls(5, accept), limit), "nothing"},
		row{63 * second, call(refuse), "OPEN 57s failures=1 hint wasted=1"},
		row{2 * minute, both(call(accept), limit), "5 per 1m0s, at once 0, confidence 0.3"},
		row{2 * minute, both(calls(3, accept), look), "CLOSED"}, // as they come
	)
}

// Hints of calls that may be refused for their own sake teach nothing, and where it is sure, all that hints taught is
// forgotten.
func TestRefusalsOfACallTeachNothing(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(57*second), Success()
	runRows(t, alone(),
		row{0, both(calls(5, accept), call(refuse)), "OPEN 57s failures=1 hint wasted=1"},
		row{minute, calls(5, accept), "CLOSED"},
		row{63 * second, call(refuse.WithDoubt()), "OPEN 57s failures=1 hint wasted=1"},
		row{2 * minute, both(calls(5, accept), limit), "nothing"},
		row{123 * second, call(refuse), "OPEN 57s failures=1 hint wasted=1"},
		row{3 * minute, both(call(accept), limit), "5 per 1m0s, at once 0, confidence 0.3"},
		row{190 * second, both(call(Neutral().WithDoubt()), limit), "nothing"},
	)
}

func TestLearning(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"reset forgets what is learned", alone(), []row{
			{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
			{minute, call(Success()), "CLOSED"},
			{61 * second, both(calls(4, Success()), calls(2, RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
			{121 * second, both(call(Success()), limit), "5 per 1m1s, at once 0, confidence 0.3"},
			{61 * second, reset, "CLOSED"},
			{61 * second, limit, "nothing"},
			{61 * second, calls(2, RateLimited(0)), "CLOSED failures=2"},
		}},
		{"operator forgets what is learned", alone(), []row{
			{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
			{minute, call(Success()), "CLOSED"},
			{61 * second, both(calls(4, Success()), calls(2, RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
			{121 * second, both(call(Success()), limit), "5 per 1m1s, at once 0, confidence 0.3"},
			{61 * second, forgetLimits, "forgotten"},
			{61 * second, limit, "nothing"},
			{61 * second, forgetLimits, "unchanged"},
			{90 * second, call(Success()), "CLOSED"},
			{90 * second, limit, "nothing"},
		}},
		{"what is learned is lost with the data of redis", alone(), []row{
			{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
			{minute, call(Success()), "CLOSED"},
			{61 * second, both(calls(4, Success()), calls(2, RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
			{121 * second, both(call(Success()), limit), "5 per 1m1s, at once 0, confidence 0.3"},
			{122 * second, both(lose(), look), "CLOSED"},
			{122 * second, limit, "nothing"},
		}},
	})
}

// A worker that does not learn forgets what was learned: that would limit its calls for ever.
func TestLearningIsSwitchedOff(t *testing.T) {
	t.Parallel()
	o := alone()
	o.NoLearning, o.MaxInFlight = true, 8
	learned := func(h *harness) string {
		fields := []any{
			"round_started", epoch, "round_anchor", epoch, "round_used", 2,
		}
		if err := h.rdb.HSet(h.t.Context(), h.place.keys[0], fields...).Err(); err != nil {
			h.t.Fatal(err)
		}
		redistest.SetRecord(h.t, h.rdb, h.place.keys[0],
			"learned_since", epoch/1000, "learned_cap", 1, "learned_gap", int64(1_800_000_000), "learned_length", int64(3_600_000_000),
			"learner", `{"pace":{"stage":"holding","slow":1800,"length":3600,"seen":3},"slots":{"most":1}}`)
		return ""
	}
	runRows(t, o,
		row{0, both(learned, advance), "CLOSED"},
		row{0, both(look, limit), "2 per 1h0m0s, at once 1, confidence 1.0"},
		row{0, tries(6, "a"), "6"},
		row{0, limit, "nothing"},
		row{0, tell("a5", Success()), "CLOSED"},
		row{0, both(look, try("b")), "permit"}, // without a script
	)
}

// force ends the confirmation of a limit, too: a refusal after it opens.
func TestForceEndsTheConfirmationOfALimit(t *testing.T) {
	t.Parallel()
	o := alone()
	o.FailureThreshold = 1
	runRows(t, o,
		row{0, call(RateLimited(0)), "OPEN 1m0s failures=1 threshold wasted=1"},
		row{minute, call(Success()), "CLOSED"},
		row{61 * second, both(calls(4, Success()), call(RateLimited(0))), "CLOSED failures=1 slow=1"}, // one call is to confirm it
		row{61 * second, force(second), "CLOSED forced closed"},
		row{70 * second, look, "CLOSED"},
		row{70 * second, calls(2, RateLimited(0)), "OPEN 1m0s failures=2 threshold wasted=2"},
	)
}

// A replica that was behind becomes the master: what it knows holds, and the rest is learned again.
func TestLearnsAgainAfterAFailover(t *testing.T) {
	t.Parallel()
	h := newHarness(t, redistest.Database(t).Client(t), alone())
	refuse, accept := RateLimited(0), Success()
	expect := func(want string, do action) {
		t.Helper()
		if got := do(h); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	expect("OPEN 1m0s failures=3 threshold wasted=3", both(calls(3, refuse), look))
	h.clock.advance(minute, minute)
	call(accept)(h)
	replica := map[string]string{}
	for _, key := range h.place.keys {
		if value, err := h.rdb.Dump(t.Context(), key).Result(); err == nil {
			replica[key] = value
		}
	}
	round := both(both(calls(4, accept), pass(second)), both(calls(2, refuse), both(pass(minute), call(accept))))
	expect("5 per 1m1s, at once 0, confidence 0.3", both(round, limit))
	lose()(h)
	for key, value := range replica {
		if err := h.rdb.Restore(t.Context(), key, 0, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	expect("CLOSED", look)
	expect("nothing", limit)
	expect("5 per 2m2s, at once 0, confidence 0.3", both(round, limit))
}

// While the number of calls of a window is not known, they go one at a time.
func TestFewCallsAreRefusedWhereALimitIsMetEarly(t *testing.T) {
	t.Parallel()
	o := alone()
	o.MaxInFlight = 30
	refuse, accept := RateLimited(0), Success()
	runRows(t, o,
		row{0, both(live, calls(3, refuse)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{minute, call(accept), "CLOSED slow=1"},
		row{61 * second, calls(20, accept), "CLOSED slow=16"},
		row{62 * second, tries(30, "a"), "1, then D CLOSED learned for 1s"},
		row{62 * second, tell("a0", refuse), "CLOSED failures=1 slow=1"}, // none is in flight: the next one confirms the limit
		row{62 * second, call(refuse), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{122 * second, both(call(accept), limit), "21 per 1m2s, at once 0, confidence 0.3"},
	)
}

// While the breaker is open, no caller asks for a night. The breaker must not take that time for a window of the API.
func TestTimeWithoutCallersSlowsNothingDown(t *testing.T) {
	t.Parallel()
	o := alone()
	o.MaxInFlight = 30
	refuse, accept := RateLimited(0), Success()
	const night = 12 * 60 * minute
	runRows(t, o,
		row{0, both(live, calls(3, refuse)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{night, call(accept), "CLOSED slow=1"},
		row{night + minute, calls(20, accept), "CLOSED slow=16"},
		row{night + 2*minute, calls(60, accept), "CLOSED"},
	)
}

// A worker keeps nothing of keys that learned a limit and then were idle.
func TestIdleLearnersLeaveNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, redistest.Database(t).Client(t), alone())
	for i := range 5 {
		key := h.b.Key(fmt.Sprint("user-", i))
		publish := func(o Outcome) {
			t.Helper()
			permit, err := key.Allow(patient(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := permit.Report(patient(t), o); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			publish(RateLimited(0))
		}
		h.clock.advance(minute, minute)
		publish(Success())
		look(h)
		publish(Success())
		publish(Success())
	}
	if n := h.b.keys.n.Load(); n != 5 {
		t.Fatalf("%d keys are known, want 5", n)
	}
	h.clock.advance(3*60*minute, 3*60*minute)
	if err := h.b.register(patient(t), time.Minute); err != nil {
		t.Fatal(err)
	}
	h.b.whole.Store(true)
	look(h)
	if views := h.b.keys.n.Load(); views != 0 {
		t.Errorf("%d views remain", views)
	}
}

// A limit that was met once, and not again within the longest window, costs nothing any more.
func TestLimitThatIsNoneIsForgotten(t *testing.T) {
	t.Parallel()
	learns := func(h *harness) string { return fmt.Sprint(!h.b.view.Load().record.Plain()) }
	runRows(t, alone(),
		row{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{time.Minute, call(Success()), "CLOSED"},
		row{0, learns, "true"},
		row{26 * time.Hour, call(Success()), "CLOSED"},
		row{0, learns, "false"},
	)
}

// plays makes calls to an API for a time: as many at once as the breaker permits, and there are callers. Refused calls bear
// the hint until when, in whole seconds.
func (h *harness) plays(api quota.Limiter, callers int, took time.Duration, hints bool, length time.Duration) (accepted, refused int) {
	type running struct {
		Permit
		outcome Outcome
		ends    time.Duration
	}
	var calls []running
	now := func() time.Duration { return time.Duration(h.clock.redis) * time.Microsecond }
	for end := now() + length; now() < end; {
		next := end
		for len(calls) < callers {
			p, err := h.b.Allow(patient(h.t))
			if open, ok := errors.AsType[*OpenError](err); ok {
				next = now() + max(ms, open.RetryAfter)
				break
			} else if err != nil {
				h.t.Fatal(err)
			}
			o := Success()
			if api.Take(now(), now()+took) {
				accepted++
			} else {
				refused++
				o = RateLimited(0)
				if hints {
					o = RateLimited((api.Next(now()) - now() + second).Truncate(second))
				}
			}
			calls = append(calls, running{p, o, now() + took})
		}
		if len(calls) > 0 {
			next = min(next, calls[0].ends)
		}
		h.clock.advance(next-now(), next-now())
		for len(calls) > 0 && calls[0].ends <= now() {
			h.report(calls[0].Permit, calls[0].outcome)
			calls = calls[1:]
		}
	}
	return accepted, refused
}

// With the scripts limits are used, and few calls refused, as TestLimits plays them without; and with hints about as few as without.
func TestLearnedLimits(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for _, c := range []struct {
		model             string
		callers           int
		took              time.Duration // of a call
		accepted, refused int           // at least and at most, in the last two thirds of fifteen windows
	}{
		{"fixed 100/1m", 30, 20 * ms, 980, 20},
		{"fixed 100/1m, 1 caller", 1, 20 * ms, 980, 35},
		{"from call 100/1m", 30, 20 * ms, 980, 20},
		{"sliding 100/1m", 30, 20 * ms, 980, 70},
		{"bucket 50, 1/s", 30, 20 * ms, 490, 60},
		{"bucket 5, 2/s", 30, 20 * ms, 180, 50},
		{"5 at once", 30, 500 * ms, 400, 40},
	} {
		for _, hints := range []bool{false, true} {
			t.Run(fmt.Sprint(c.model, ", hints ", hints), func(t *testing.T) {
				t.Parallel()
				h := newDefaultHarness(t, redistest.Database(t).Client(t), Options{Cooldown: 30 * second, MaxCooldown: 48 * time.Hour, MaxInFlight: c.callers})
				m := quota.Models()[slices.IndexFunc(quota.Models(), func(m quota.Model) bool { return m.Name == c.model })]
				if m.Name == "5 at once" {
					m.Window = 10 * second
				}
				api := m.New(quota.Run{})
				h.plays(api, c.callers, c.took, hints, 5*m.Window)
				accepted, refused := h.plays(api, c.callers, c.took, hints, 10*m.Window)
				t.Logf("%d accepted, %d refused", accepted, refused)
				if accepted < c.accepted || refused > c.refused {
					t.Errorf("%d calls accepted, %d refused; want at least %d, at most %d", accepted, refused, c.accepted, c.refused)
				}
			})
		}
	}
}

// A call that its key does not permit begins no round of the destination.
func TestDeniedCallBeginsNoRound(t *testing.T) {
	t.Parallel()
	o := alone()
	o.MaxInFlight, o.KeyConcurrency = 8, 1
	learned := func(h *harness) string {
		fields := []any{
			"round_started", epoch, "round_anchor", epoch, "round_used", 1,
		}
		if err := h.rdb.HSet(h.t.Context(), h.place.keys[0], fields...).Err(); err != nil {
			h.t.Fatal(err)
		}
		redistest.SetRecord(h.t, h.rdb, h.place.keys[0],
			"learned_since", epoch/1000, "learned_gap", int64(1_000_000), "learned_length", int64(10_000_000), "learned_quota", 10,
			"learner", `{"pace":{"stage":"holding","slow":1,"length":10,"seen":3}}`)
		return ""
	}
	round := func(h *harness) string {
		at, err := h.rdb.HGet(h.t.Context(), h.place.keys[0], "round_started").Int64()
		if err != nil {
			h.t.Fatal(err)
		}
		return (time.Duration(at-epoch) * time.Microsecond).String()
	}
	runRows(t, o,
		row{0, both(learned, advance), "CLOSED"},
		row{second, both(look, of("a", try("first"))), "counted key-counted"},
		row{13 * second, of("a", try("second")), "D/a CLOSED concurrency for 1s"},
		row{13 * second, round, "0s"},
		row{14 * second, of("b", try("third")), "counted key-counted"},
		row{14 * second, round, "14s"},
	)
}
