package breaker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
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
		// Calls are spaced: as close as a refusal allows at first.
		row{121 * second, try("a"), "D CLOSED learned for 400ms"},
	)
}

func TestSingleCallerWastesLessThanTwoCallsAnIncident(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, alone())
		var windows []int // refused calls
		var started, now time.Duration
		accepted := 0
		for now < 2*time.Hour {
			p, err := h.b.Allow(patient(t))
			step := 20 * time.Millisecond
			if err == nil {
				if now-started >= minute {
					started, accepted = now, 0
					windows = append(windows, 0)
				}
				o := Success()
				if accepted++; accepted > 5 {
					windows[len(windows)-1]++
					o = RateLimited(0)
				}
				if _, err := p.Report(patient(t), o); err != nil {
					t.Fatal(err)
				}
			} else {
				if refusal, ok := errors.AsType[*OpenError](err); ok {
					step = max(step, refusal.RetryAfter)
				}
			}
			if len(windows) == 0 {
				windows = append(windows, 0)
			}
			h.clock.advance(step, step)
			now += step
		}
		learned := windows[10:]
		if got := float64(sum(learned)) / float64(len(learned)); got >= 2 || windows[0] >= 5 {
			t.Errorf("refused calls by window %v: %.2f after ten of them, want fewer than 2; want fewer than 5 in the first", windows, got)
		}
		if len(windows) < 110 {
			t.Errorf("%d windows of a minute in two hours", len(windows))
		}
	})
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
		row{minute, both(calls(5, accept), call(refuse)), "OPEN 57s failures=1 hint wasted=1"},
		row{2 * minute, both(calls(5, accept), limit), "nothing"},
		row{123 * second, call(refuse), "OPEN 57s failures=1 hint wasted=1"},
		row{3 * minute, both(call(accept), limit), "5 per 1m0s, at once 0, confidence 0.3"},
		row{3 * minute, try("a"), "D CLOSED learned for 1.2s"},
	)
}

// Hints of calls that may be refused for their own sake teach nothing, and where it is sure, all that hints taught is
// forgotten.
func TestRefusalsOfACallTeachNothing(t *testing.T) {
	t.Parallel()
	refuse, accept := RateLimited(57*second), Success()
	rounds := []row{
		{0, both(calls(5, accept), call(refuse)), "OPEN 57s failures=1 hint wasted=1"},
		{minute, both(calls(5, accept), call(refuse)), "OPEN 57s failures=1 hint wasted=1"},
		{2 * minute, calls(5, accept), "CLOSED"},
	}
	runRows(t, alone(), append(rounds,
		row{123 * second, call(refuse.WithDoubt()), "OPEN 57s failures=1 hint wasted=1"},
		row{3 * minute, both(calls(5, accept), limit), "nothing"},
		row{183 * second, call(refuse), "OPEN 57s failures=1 hint wasted=1"},
		row{4 * minute, both(call(accept), limit), "5 per 1m0s, at once 0, confidence 0.3"},
		row{250 * second, both(call(Neutral().WithDoubt()), limit), "nothing"},
	)...)
}

func TestResetForgetsWhatIsLearned(t *testing.T) {
	t.Parallel()
	runRows(t, alone(),
		row{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{minute, call(Success()), "CLOSED"},
		row{61 * second, both(calls(4, Success()), calls(2, RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{121 * second, both(call(Success()), limit), "5 per 1m1s, at once 0, confidence 0.3"},
		row{61 * second, reset, "CLOSED"},
		row{61 * second, limit, "nothing"},
		row{61 * second, calls(2, RateLimited(0)), "CLOSED failures=2"},
	)
}

func TestOperatorForgetsWhatIsLearned(t *testing.T) {
	t.Parallel()
	runRows(t, alone(),
		row{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{minute, call(Success()), "CLOSED"},
		row{61 * second, both(calls(4, Success()), calls(2, RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{121 * second, both(call(Success()), limit), "5 per 1m1s, at once 0, confidence 0.3"},
		row{61 * second, forgetLimits, "forgotten"},
		row{61 * second, limit, "nothing"},
		row{61 * second, forgetLimits, "unchanged"},
		row{90 * second, call(Success()), "CLOSED"},
		row{90 * second, limit, "nothing"},
	)
}

// A worker that does not learn forgets what was learned: that would limit its calls for ever.
func TestLearningIsSwitchedOff(t *testing.T) {
	t.Parallel()
	o := alone()
	o.NoLearning, o.MaxInFlight = true, 8
	learned := func(h *harness) string {
		fields := []any{
			"learned_since", epoch / 1000, "learned_cap", 1, "learned_gap", int64(1_800_000_000), "learned_length", int64(3_600_000_000),
			"round_started", epoch, "round_anchor", epoch, "round_used", 2,
			"learner", `{"pace":{"stage":"holding","slow":1800,"length":3600,"seen":3},"slots":{"most":1}}`,
		}
		if err := h.rdb.HSet(h.t.Context(), h.place.keys[0], fields...).Err(); err != nil {
			h.t.Fatal(err)
		}
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

func TestWhatIsLearnedIsLostWithTheDataOfRedis(t *testing.T) {
	t.Parallel()
	runRows(t, alone(),
		row{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{minute, call(Success()), "CLOSED"},
		row{61 * second, both(calls(4, Success()), calls(2, RateLimited(0))), "OPEN 1m0s failures=2 threshold wasted=2"},
		row{121 * second, both(call(Success()), limit), "5 per 1m1s, at once 0, confidence 0.3"},
		row{122 * second, both(lose(), look), "CLOSED"},
		row{122 * second, limit, "nothing"},
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

// Ten callers, and an API that bears 3 calls at once.
func TestLearnsHowManyCallsMayBeInFlight(t *testing.T) {
	t.Parallel()
	o := alone()
	o.MaxInFlight = 10
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, o)
		most := 0
		for round := range 80 {
			var permits []Permit
			for len(permits) < 10 {
				p, err := h.b.Allow(patient(t))
				if err != nil {
					break
				}
				permits = append(permits, p)
			}
			if round > 60 {
				most = max(most, len(permits))
			}
			for i, p := range slices.Backward(permits) { // refusals are quick
				outcome := Success()
				if i >= 3 {
					outcome = RateLimited(0)
				}
				if _, err := p.Report(patient(t), outcome); err != nil {
					t.Fatal(err)
				}
			}
			h.clock.advance(second, second)
			if len(permits) == 0 {
				h.clock.advance(h.b.Status().Remaining, h.b.Status().Remaining)
			}
		}
		if l := h.b.view.Load().record.learned(); most < 3 || most > 4 || l == nil || l.Concurrency < 3 || l.Concurrency > 4 {
			t.Errorf("%d calls in flight, learned %+v; want 3 or 4", most, l)
		}
	})
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

// A bucket has a call each second. Where half of the time had half of the calls, it is paced, and now and then a call tries
// whether there are more.
func TestRateIsPaced(t *testing.T) {
	t.Parallel()
	h := newHarness(t, redistest.Database(t).Client(t), Options{Cooldown: minute, MaxInFlight: 30})
	const burst = 60.
	tokens, refused, accepted := burst, 0, 0
	step := func(d time.Duration) {
		h.clock.advance(d, d)
		tokens = min(burst, tokens+d.Seconds())
	}
	play := func(length time.Duration) {
		accepted, refused = 0, 0
		for end := h.clock.now().Add(length); h.clock.now().Before(end); {
			p, err := h.b.Allow(patient(t))
			if err != nil {
				step(250 * time.Millisecond)
				continue
			}
			o := Success()
			if tokens--; tokens < 0 {
				tokens++
				refused++
				o = RateLimited(0)
			} else {
				accepted++
			}
			step(20 * time.Millisecond)
			if _, err := p.Report(patient(t), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	play(10 * minute)
	play(10 * minute)
	if accepted < 570 || refused > 24 {
		t.Errorf("in 10 minutes %d calls were accepted and %d refused; want at least 570, at most 24", accepted, refused)
	}
}

// Whatever the outcomes: it waits no longer than it may, hands out one probe at a time, and calls
// that are never reported are in flight no longer than their lease.
func TestLearningKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		o := alone()
		o.MaxInFlight = rapid.IntRange(1, 8).Draw(rt, "callers")
		o.NoLearning = rapid.Bool().Draw(rt, "no learning") // then, slow starts become paced ones
		o.Destination = fmt.Sprint("bounds-", n)
		c := newFakeClock()
		b, err := newTestBreaker(rdb, o, c.clock())
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		at := placeOf(o.Destination, "")
		defer rdb.Del(t.Context(), at.keys...)
		if err := rdb.HSet(t.Context(), at.keys[1], ":capacity", o.MaxInFlight).Err(); err != nil {
			rt.Fatal(err)
		}
		if err := b.readSnapshot(patient(t)); err != nil {
			rt.Fatal(err)
		}
		var permits []Permit
		var blocked time.Time // since when no call was accepted, while OPEN
		advance := func(d time.Duration) { c.advance(d, d) }
		rt.Repeat(map[string]func(*rapid.T){
			"spaced": func(rt *rapid.T) { // an API that accepts the probe and no call after it
				outcomes := []Outcome{RateLimited(0), RateLimited(0), RateLimited(0), Success(), RateLimited(0), Success(), RateLimited(0), Success()}
				for _, outcome := range outcomes {
					advance(b.Status().Remaining)
					if p, err := b.Allow(patient(t)); err == nil {
						if _, err := p.Report(patient(t), outcome); err != nil {
							rt.Fatal(err)
						}
					}
				}
			},
			"allow": func(*rapid.T) {
				p, err := b.Allow(patient(t))
				if refusal, ok := errors.AsType[*OpenError](err); ok && refusal.State == Closed && refusal.RetryAfter > o.Cooldown*6/5 {
					rt.Fatalf("a call waits %v in CLOSED: %+v", refusal.RetryAfter, b.view.Load().record)
				}
				if err == nil {
					if p.Probe() {
						for _, other := range permits {
							if other.Probe() && c.now().Before(other.Until()) && other.Generation() == p.Generation() {
								rt.Fatal("two probes")
							}
						}
					}
					permits = append(permits, p)
				}
			},
			"report": func(rt *rapid.T) {
				if len(permits) == 0 {
					return
				}
				i := rapid.IntRange(0, len(permits)-1).Draw(rt, "call")
				outcome := rapid.SampledFrom([]Outcome{Success(), Success(), RateLimited(0), RateLimited(0), Failure(), Neutral()}).Draw(rt, "outcome")
				if _, err := permits[i].Report(patient(t), outcome); err != nil {
					rt.Fatal(err)
				}
				permits = append(permits[:i], permits[i+1:]...)
			},
			"time": func(rt *rapid.T) {
				advance(time.Duration(rapid.Int64Range(1, int64(minute)).Draw(rt, "time")))
			},
			"cooldown": func(*rapid.T) { advance(b.Status().Remaining) },
			"loss": func(*rapid.T) {
				advance(o.ProbeTimeout)
				permits = nil
				b.expirePermits()
				advance(o.ProbeTimeout)
				b.expirePermits()
				if b.view.Load().state != Open {
					if _, err := b.Allow(patient(t)); err != nil && b.Status().State == Closed {
						rt.Fatalf("no call is in flight, and none may start: %v\n%+v", err, b.view.Load().record)
					}
				}
			},
			"": func(rt *rapid.T) {
				v := b.view.Load()
				if v.state == Closed {
					blocked = c.now()
				}
				longest := max(o.Cooldown, c.now().Sub(blocked)/4+o.Cooldown)
				if pace := v.record.learner().Pace; pace.Seen >= 2 {
					longest = max(longest, fromSeconds(pace.Length))
				}
				if wait := b.Status().Remaining; v.state == Open && wait > longest+time.Millisecond {
					rt.Fatalf("it waits %v, more than %v: %+v", wait, longest, v.record)
				}
			},
		})
	})
}

func sum(of []int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
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
	learns := func(h *harness) string { return fmt.Sprint(!h.b.view.Load().record.plain()) }
	runRows(t, alone(),
		row{0, calls(3, RateLimited(0)), "OPEN 1m0s failures=3 threshold wasted=3"},
		row{time.Minute, call(Success()), "CLOSED"},
		row{0, learns, "true"},
		row{26 * time.Hour, call(Success()), "CLOSED"},
		row{0, learns, "false"},
	)
}
