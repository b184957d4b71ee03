package breaker

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// ofJobs makes calls of the jobs from first to last, one after the other.
func ofJobs(first, last int, o Outcome) action {
	return func(h *harness) (got string) {
		for i := first; i <= last; i++ {
			got = call(o.WithJob(fmt.Sprint("job", i)))(h)
		}
		return got
	}
}

// streak is how many calls count for an outage.
func streak(h *harness) string { return fmt.Sprint(h.status().Streak) }

func TestOutages(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"outage opens", Options{Cooldown: minute, OutageThreshold: 4}, []row{
			{0, ofJobs(1, 3, Answered(503)), "CLOSED"},
			{0, ofJobs(3, 3, NoAnswer()), "CLOSED"}, // the job again
			{0, streak, "3"},
			{0, ofJobs(4, 4, NoAnswer()), "OPEN 1s outage wasted=4"},
			// One probe at a time.
			{minute, ask("probe"), "probe"},
			{minute, ask("other"), "HALF_OPEN for 35s"},
			{minute, tell("probe", Answered(500)), "OPEN 2s outage probes=1 wasted=5"},
			{2 * minute, call(Answered(422)), "CLOSED"},
			{2 * minute, ofJobs(1, 3, Answered(503)), "CLOSED"},
			{2 * minute, story, "CLOSED→OPEN outage #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1; " +
				"HALF_OPEN→OPEN outage #1 by worker-1; OPEN→HALF_OPEN cooldown #1 by worker-1; HALF_OPEN→CLOSED success #1 by worker-1"},
		}},
	})
}

// An outage may be short: it is tested after 1 s, then 2, 4 … up to the cooldown, whichever 5xx it consists of. A slow
// start that fails waits for the whole cooldown, and so does what may be a ban: 401 and 403.
func TestOutageIsTestedEarly(t *testing.T) {
	t.Parallel()
	for _, down := range []Outcome{Answered(500), Answered(503)} {
		runRows(t, Options{Cooldown: 5 * second, OutageThreshold: 2, MaxInFlight: 8},
			row{0, live, "8"},
			row{0, ofJobs(1, 2, down), "OPEN 1s outage wasted=2"},
			row{1 * second, call(down), "OPEN 2s outage probes=1 wasted=3"},
			row{3 * second, call(NoAnswer()), "OPEN 4s outage probes=2 wasted=4"},
			row{7 * second, call(down), "OPEN 5s outage probes=3 wasted=5"},
			row{12 * second, call(down), "OPEN 5s outage probes=4 wasted=6"},
			row{17 * second, call(Success()), "CLOSED slow=1"},
			row{17 * second, ofJobs(3, 3, down), "OPEN 5s outage wasted=1"},
			row{22 * second, call(down), "OPEN 5s outage probes=1 wasted=2"},
		)
	}
	for status, want := range map[int]string{401: "OPEN 5s outage wasted=2", 403: "OPEN 5s outage wasted=2"} {
		runRows(t, Options{Cooldown: 5 * second, OutageThreshold: 2},
			row{0, ofJobs(1, 2, Answered(status)), want},
			row{5 * second, call(Answered(status)), "OPEN 5s outage probes=1 wasted=3"},
		)
	}
}

// Only calls of one kind add up, and any other answer ends a streak.
func TestWhatEndsAStreak(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		between Outcome
		want    string
	}{
		"a success":        {Success(), "1"},
		"another answer":   {Answered(404), "1"},
		"a limit":          {RateLimited(0), "1"},
		"a 403":            {Answered(403), "1"},
		"another failure":  {Failure(), "3"},
		"a cancelled call": {Neutral(), "3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRows(t, Options{},
				row{0, ofJobs(1, 2, Answered(503)), "CLOSED"},
				row{0, func(h *harness) string { call(test.between)(h); return "" }, ""},
				row{0, ofJobs(3, 3, Answered(502)), func() string {
					if test.between.kind == limited {
						return "CLOSED failures=1"
					}
					return "CLOSED"
				}()},
				row{0, streak, test.want},
			)
		})
	}
}

func TestBanOpens(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403} {
		runRows(t, Options{Cooldown: minute, OutageThreshold: 3},
			row{0, ofJobs(1, 2, Answered(status)), "CLOSED"},
			row{0, ofJobs(3, 3, Answered(status)), "OPEN 1m0s outage wasted=3"},
			row{minute, ofJobs(4, 4, Answered(status)), "OPEN 1m0s outage probes=1 wasted=4"},
			row{2 * minute, ofJobs(4, 4, Answered(503)), "OPEN 1m0s outage probes=2 wasted=5"},
			row{3 * minute, ofJobs(4, 4, Answered(404)), "CLOSED"},
		)
	}
}

// Answers that mean no outage, or a threshold that is off, open nothing; the rules of 429 stay.
func TestNoOutage(t *testing.T) {
	t.Parallel()
	runRows(t, Options{OutageThreshold: -1}, row{0, ofJobs(1, 50, Answered(503)), "CLOSED"}, row{0, streak, "0"})
	runRows(t, Options{Disabled: true}, row{0, ofJobs(1, 50, Answered(503)), "CLOSED"}, row{0, streak, "0"})
	runRows(t, Options{}, row{0, ofJobs(1, 50, Failure()), "CLOSED"}, row{0, streak, "0"})
	runRows(t, Options{},
		row{0, calls(2, RateLimited(0)), "CLOSED failures=2"},
		row{0, ofJobs(1, 5, Answered(503)), "CLOSED failures=2"},
		row{0, call(RateLimited(0)), "OPEN 5m0s failures=3 threshold wasted=3"},
		// Of a limit's incident a failure proves nothing, and a 403 that the limit is gone.
		row{5 * minute, call(Answered(503)), "HALF_OPEN failures=3 threshold wasted=3"},
		row{5*minute + second, call(Answered(403)), "CLOSED"},
	)
}

// After an outage, as many failures in a row as calls may be in flight open the breaker again.
func TestSlowStartAfterAnOutage(t *testing.T) {
	t.Parallel()
	runRows(t, Options{Cooldown: minute, OutageThreshold: 10, MaxInFlight: 8},
		row{0, ofJobs(1, 10, Answered(503)), "OPEN 1s outage wasted=10"},
		row{minute, call(Success()), "CLOSED slow=1"},
		row{minute, ofJobs(1, 1, Answered(503)), "OPEN 1m0s outage wasted=1"},
		row{2 * minute, calls(2, Success()), "CLOSED slow=2"},
		row{2 * minute, ofJobs(1, 1, Answered(503)), "CLOSED slow=2"},
		row{2 * minute, ofJobs(2, 2, Answered(503)), "OPEN 1m0s outage wasted=2"},
		row{3 * minute, calls(8, Success()), "CLOSED"},
		row{3 * minute, ofJobs(1, 9, Answered(503)), "CLOSED"},
	)
	runRows(t, Options{Cooldown: minute, MaxInFlight: 8}, // after a limit, they do not
		row{0, call(RateLimited(minute)), "OPEN 1m0s failures=1 hint wasted=1"},
		row{minute, call(Success()), "CLOSED slow=1"},
		row{minute, ofJobs(1, 9, Answered(503)), "CLOSED slow=1"},
	)
}

// A limiter that accepts a call each half second without a burst, and answers 503 or 429, is met at its
// pace, with one caller or several, and the rate to declare is known within 30 %.
func TestSpacedCalls(t *testing.T) {
	t.Parallel()
	const interval = 500 * time.Millisecond
	for name, refusal := range map[string]Outcome{"503": Answered(503), "429": RateLimited(0), "429 with a hint": RateLimited(second)} {
		for _, o := range []Options{{MaxInFlight: 8, NoLearning: true}, {NoLearning: true}, {MaxInFlight: 8}} {
			t.Run(fmt.Sprint(name, " ", o.MaxInFlight, " ", !o.NoLearning), func(t *testing.T) {
				t.Parallel()
				o := o
				o.Cooldown = 30 * second
				runRows(t, o, row{0, func(h *harness) string {
					began := h.clock.now()
					after := func() time.Duration { return h.clock.now().Sub(began) }
					accepted, total, refused := began.Add(-interval), 0, 0
					learns := !o.NoLearning && name != "503"
					known := func() bool {
						if !learns {
							return suggested(h) != ""
						}
						l := h.b.Status().Learned
						return l != nil && l.Confidence == 1
					}
					for ; !known() && total < 200; total++ {
						p := h.patientPermit()
						if now := h.clock.now(); now.Sub(accepted) >= interval {
							accepted = now
							h.report(p, Success())
						} else {
							refused++
							h.report(p, refusal.WithJob(fmt.Sprint("job", total)))
						}
						h.clock.advance(5*time.Millisecond, 5*time.Millisecond)
					}
					if learns {
						least := 1.4
						if name != "429" {
							least = 1 // a hint is whole seconds
						}
						if l := h.b.Status().Learned; l == nil || l.RatePerSec < least || l.RatePerSec > 2.6 {
							t.Errorf("learned %+v after %v, want about 2 calls a second", l, after())
						}
						t.Logf("learned after %v, %d of %d calls refused", after(), refused, total)
						return ""
					}
					rate, err := ParseRate(suggested(h))
					if n := rate.Calls; err != nil || rate.Per != minute || n < 84 || n > 156 {
						t.Errorf("suggested %q (%v), want about 120/1m", suggested(h), err)
					}
					t.Logf("%s after %v, %d of %d calls refused", suggested(h), after(), refused, total)
					for i := range 50 {
						p := h.patientPermit()
						if now := h.clock.now(); now.Sub(accepted) >= interval {
							accepted = now
							h.report(p, Success())
						} else {
							t.Errorf("call %d at the pace that was found is refused", i)
							h.report(p, refusal.WithJob(fmt.Sprint("late", i)))
						}
					}
					return ""
				}, ""})
			})
		}
	}
}

// patientPermit waits until the breaker grants a permit.
func (h *harness) patientPermit() Permit {
	for {
		look(h)
		p, err := h.b.Allow(patient(h.t))
		open, refused := errors.AsType[*OpenError](err)
		if err == nil {
			return p
		}
		if !refused {
			h.t.Fatal(err)
		}
		h.clock.advance(open.RetryAfter, open.RetryAfter)
	}
}

func (h *harness) report(p Permit, o Outcome) {
	if _, err := p.Report(patient(h.t), o); err != nil {
		h.t.Fatal(err)
	}
}

// suggested is the rate to declare.
func suggested(h *harness) string { return h.status().SuggestedRate }

// Jobs that take turns to fail in each slow start reopen the breaker once each.
func TestBadJobsThatAlternateReopenOnce(t *testing.T) {
	t.Parallel()
	rows := []row{{0, ofJobs(1, 10, Answered(503)), "OPEN 1s outage wasted=10"}}
	for i := 1; i <= 25; i++ {
		at := time.Duration(i) * minute
		rows = append(rows, row{at, call(Success()), "CLOSED slow=1"}, row{at, ofJobs(i, i, Answered(500)), "OPEN 1m0s outage wasted=1"})
	}
	rows = append(rows,
		row{26 * minute, call(Success()), "CLOSED slow=1"},
		row{26 * minute, ofJobs(24, 25, Answered(500)), "CLOSED slow=1"},
		row{26 * minute, ofJobs(6, 6, Answered(500)), "CLOSED slow=1"},
		row{26 * minute, ofJobs(5, 5, Answered(500)), "OPEN 1m0s outage wasted=4"}, // it is forgotten
	)
	runRows(t, Options{Cooldown: minute, MaxInFlight: 8}, rows...)
}

// A 403 of one key holds that key; of several keys, the destination. 5xx is of the destination.
func TestOutageOfKeys(t *testing.T) {
	t.Parallel()
	of := func(keys string, o Outcome) action {
		return func(h *harness) string {
			for i, key := range keys {
				p, err := h.b.Key(string(key)).Allow(patient(h.t))
				if err != nil {
					h.t.Fatal(err)
				}
				if _, err := p.Report(patient(h.t), o.WithJob(fmt.Sprint(keys, i))); err != nil {
					h.t.Fatal(err)
				}
			}
			look(h)
			return describe(h.b.Key("a").Status()) + ", " + describe(h.b.Status())
		}
	}
	o := Options{Cooldown: minute, OutageThreshold: 4}
	runRows(t, o, row{0, of("aaaa", Answered(403)), "OPEN 1m0s outage wasted=4, CLOSED"}, row{0, streak, "0"})
	runRows(t, o, row{0, of("abab", Answered(403)), "CLOSED, OPEN 1m0s outage wasted=4"})
	runRows(t, o, row{0, of("aaaa", Answered(500)), "CLOSED, OPEN 1s outage wasted=4"})
}

// While a streak counts, and only then, a success costs a command.
func TestStreakIsResetByAnotherInstance(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{})
		other, err := newTestBreaker(rdb, h.b.options, h.clock.clock())
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, other)
		if err := other.readSnapshot(patient(t)); err != nil {
			t.Fatal(err)
		}
		o := Success()
		if other.mustReport(other.view.Load(), nil, "", &o) {
			t.Error("a success is reported without a streak")
		}
		ofJobs(1, 5, Answered(503))(h)
		h.clock.advance(time.Millisecond, time.Millisecond)
		if err := other.readSnapshot(patient(t)); err != nil {
			t.Fatal(err)
		}
		p, err := other.Allow(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Report(patient(t), Success()); err != nil {
			t.Fatal(err)
		}
		if got := streak(h); got != "0" {
			t.Errorf("the streak is %s after a success of another instance", got)
		}
	})
}

// A success that Redis did not get ends the streak for its own instance.
func TestStreakEndsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := start(t, s.Client(t), Options{Destination: "api", RefreshInterval: time.Hour})
	report(t, b, Answered(503).WithJob("1"))
	if v := b.View(); v.Streak != 1 {
		t.Fatalf("the streak is %d", v.Streak)
	}
	s.Kill()
	p, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Report(t.Context(), Success()); err != nil && !errors.Is(err, ErrUnavailable) {
		t.Errorf("report without Redis: %v", err) // none if the instance knows that Redis is down
	}
	if v := b.View(); v.Streak != 0 {
		t.Errorf("the streak is %d after a success", v.Streak)
	}
}

// At the pace that was found calls go on though some of them fail.
func TestPacedCallsGoOnBesideFailures(t *testing.T) {
	t.Parallel()
	const interval, total = 500 * time.Millisecond, 900
	runRows(t, Options{MaxInFlight: 8}, row{0, func(h *harness) string {
		began := h.clock.now()
		accepted, refused := began.Add(-interval), 0
		for n := range total {
			p := h.patientPermit()
			outcome := Success()
			switch now := h.clock.now(); {
			case now.Sub(accepted) < interval:
				outcome = Answered(http.StatusServiceUnavailable)
				refused++
			case n%30 == 29:
				accepted, outcome = now, Answered(http.StatusInternalServerError)
			default:
				accepted = now
			}
			h.report(p, outcome.WithJob(fmt.Sprint("job", n)))
			h.clock.advance(5*time.Millisecond, 5*time.Millisecond)
		}
		if took := h.clock.now().Sub(began); took > time.Hour/2 || refused > 30 {
			t.Errorf("%d calls took %v, %d were refused", total, took, refused)
		}
		return ""
	}, ""})
}

// An API that spaced its calls and is healthy again is paced no more after two cooldowns. While it spaces them, trying
// that costs a call now and then, and no opening.
func TestPaceEndsWithTheLimit(t *testing.T) {
	t.Parallel()
	const interval, cooldown = 10 * time.Second, 5 * time.Minute
	busy := Answered(http.StatusServiceUnavailable)
	for name, refusal := range map[string]Outcome{"503": busy, "503, learning": busy, "429": RateLimited(0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRows(t, Options{MaxInFlight: 8, NoLearning: name != "503, learning"}, row{0, func(h *harness) string {
				accepted, job := h.clock.now().Add(-interval), 0
				call := func(spaces bool) bool {
					p, outcome := h.patientPermit(), Success()
					now := h.clock.now()
					refused := spaces && now.Sub(accepted) < interval
					if refused {
						outcome = refusal
					} else {
						accepted = now
					}
					job++
					h.report(p, outcome.WithJob(fmt.Sprint("job", job)))
					if v := h.b.View(); refused && v.SlowStart > 0 && name != "429" && v.OutageID <= p.Generation() {
						t.Error("the call is not of an outage: its job would fail")
					}
					h.clock.advance(5*time.Millisecond, 5*time.Millisecond)
					return !refused
				}
				for h.b.Status().SuggestedRate == "" {
					call(true)
				}
				wasted, from := 0, h.clock.now()
				for h.clock.now().Sub(from) < 4*cooldown {
					if !call(true) {
						wasted++
					}
					if s := h.b.Status(); s.State != Closed {
						t.Fatalf("a test of a shorter pace opened it: %s", describe(s))
					}
				}
				if wasted < 1 || wasted > 4 {
					t.Errorf("%d calls were refused in 4 cooldowns", wasted)
				}
				from = h.clock.now()
				for call(false); h.b.Status().SlowStart > 0; call(false) {
					if took := h.clock.now().Sub(from); took > 3*cooldown {
						t.Fatalf("still paced after %v: %s", took, describe(h.b.Status()))
					}
				}
				return ""
			}, ""})
		})
	}
}

// A call that is refused long after the last one that was accepted says nothing of a pace.
func TestIdleTimeIsNoPace(t *testing.T) {
	t.Parallel()
	runRows(t, Options{MaxInFlight: 8}, row{0, func(h *harness) string {
		h.report(h.patientPermit(), RateLimited(5*time.Minute))
		for range 2 {
			h.report(h.patientPermit(), Success())
			h.clock.advance(time.Hour, time.Hour)
			h.report(h.patientPermit(), RateLimited(5*time.Minute))
		}
		for n := 0; h.b.Status().State != Closed || h.b.Status().SlowStart > 0; n++ {
			if n == 20 {
				t.Fatalf("after %d calls: %s", n, describe(h.b.Status()))
			}
			h.report(h.patientPermit(), Success())
		}
		return ""
	}, ""})
}
