package breaker

import (
	"fmt"
	"testing"
	"time"
)

var refusedToken = Unauthorized().WithReason("answered 401 Unauthorized", false)

// why is the status with the reason of refused credentials.
func why(h *harness) string {
	s := h.status()
	permanent := ""
	if s.Permanent {
		permanent = " permanent"
	}
	return s.State.String() + " " + s.IncidentCause + ": " + s.Reason + permanent
}

// renew reports that credentials were renewed.
func renew(h *harness) string {
	s, err := h.b.CredentialsRenewed(patient(h.t), "")
	if err != nil {
		h.t.Fatal(err)
	}
	return describe(s)
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"refused credentials open at once", Options{Cooldown: minute}, []row{
			{0, call(RateLimited(0)), "CLOSED failures=1"},
			{0, ask("late"), "permit"},
			{0, call(refusedToken), "OPEN 1m0s failures=1 credentials wasted=1"},
			{0, why, "OPEN credentials: answered 401 Unauthorized"},
			{second, tell("late", refusedToken), "OPEN 59s failures=1 credentials wasted=2"},
			{minute, ask("probe"), "probe"},
			{minute, ask("other"), "HALF_OPEN for 35s"},
			{minute, tell("probe", Unauthorized().WithReason("invalid_grant", true)), "OPEN 1m0s failures=1 credentials probes=1 wasted=3"},
			{minute, why, "OPEN credentials: invalid_grant permanent"},
			{2 * minute, call(Success()), "CLOSED"},
			{2 * minute, why, "CLOSED : "},
		}},
		// A token that was refused in HALF_OPEN is why the breaker is open then.
		{"credentials refused in another incident", Options{Cooldown: minute}, []row{
			{0, call(RateLimited(second)), "OPEN 1s failures=1 hint wasted=1"},
			{second, call(refusedToken), "OPEN 1m0s failures=1 credentials probes=1 wasted=2"},
			{second, why, "OPEN credentials: answered 401 Unauthorized"},
		}},
		{"renewed credentials close the breaker", Options{Cooldown: minute, MaxInFlight: 8}, []row{
			{0, renew, "CLOSED"},
			{0, ask("old"), "permit"},
			{0, call(refusedToken), "OPEN 1m0s credentials wasted=1"},
			{second, renew, "CLOSED slow=1"},
			{second, renew, "CLOSED slow=1"},
			{second, tell("old", refusedToken), "CLOSED slow=1"}, // it had the old token
			{second, call(refusedToken), "OPEN 1m0s credentials wasted=1"},
			{2 * second, renew, "CLOSED slow=1"},
			{2 * second, call(Success()), "CLOSED slow=2"},
			{2 * second, story, "CLOSED→OPEN credentials #1 by worker-1; OPEN→CLOSED renewed #1 by worker-1; " +
				"CLOSED→OPEN credentials #2 by worker-1; OPEN→CLOSED renewed #2 by worker-1"},
			{2 * second, call(RateLimited(second)), "OPEN 1s failures=1 hint wasted=1"},
			{2 * second, renew, "OPEN 1s failures=1 hint wasted=1"},
		}},
	})
}

// What a probe of refused credentials meets instead.
func TestProbeOfRefusedCredentials(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outcome Outcome
		want    string
	}{
		"another refusal closes":   {Answered(422), "CLOSED"},
		"no answer proves nothing": {Failure(), "HALF_OPEN credentials wasted=1"},
		"a limit holds":            {RateLimited(10 * second), "OPEN 10s hint probes=1 wasted=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRows(t, Options{Cooldown: minute},
				row{0, call(refusedToken), "OPEN 1m0s credentials wasted=1"},
				row{minute, call(test.outcome), test.want},
			)
		})
	}
}

// Refused credentials hold the key's jobs, or all if they are the destination's.
func TestWhoseCredentialsWereRefused(t *testing.T) {
	t.Parallel()
	of := func(o Outcome) action {
		return func(h *harness) string {
			p, err := h.b.Key("alice").Allow(patient(h.t))
			if err != nil {
				h.t.Fatal(err)
			}
			if _, err := p.Report(patient(h.t), o); err != nil {
				h.t.Fatal(err)
			}
			look(h)
			return describe(h.b.Key("alice").Status()) + ", " + describe(h.b.Status())
		}
	}
	runRows(t, Options{Cooldown: minute}, row{0, of(refusedToken), "OPEN 1m0s credentials wasted=1, CLOSED"})
	runRows(t, Options{Cooldown: minute},
		row{0, of(refusedToken.WithScope(ScopeGlobal)), "CLOSED, OPEN 1m0s credentials wasted=1"})
	runRows(t, Options{Cooldown: minute, Disabled: true}, row{0, of(refusedToken), "CLOSED, CLOSED"})
}

// forGood is Permanent of each transition, oldest first.
func forGood(h *harness) string {
	events, err := historyOf(h.t.Context(), h.rdb, h.name(), 0)
	if err != nil {
		h.t.Fatal(err)
	}
	var all []bool
	for _, e := range events {
		all = append(all, e.Permanent)
	}
	return fmt.Sprint(all)
}

// Once only a person can renew the credentials, that goes for the rest of the incident, its end
// included; the next one begins without it.
func TestIncidentStaysPermanent(t *testing.T) {
	t.Parallel()
	permanent := refusedToken.WithReason("invalid_grant", true)
	opened := row{0, call(permanent), "OPEN 1m0s credentials wasted=1"}
	for name, rows := range map[string][]row{
		"another refusal": {
			opened,
			{minute, call(refusedToken), "OPEN 1m0s credentials probes=1 wasted=2"},
			{2 * minute, call(Success()), "CLOSED"},
			{2 * minute, call(refusedToken), "OPEN 1m0s credentials wasted=1"},
			{2 * minute, forGood, "[true true true true true false]"},
		},
		"a limit": {
			opened,
			{minute, call(RateLimited(second)), "OPEN 1s hint probes=1 wasted=2"},
			{minute, reset, "CLOSED"},
			{minute, forGood, "[true true true true]"},
		},
		"an operator": {
			opened,
			{second, trip(0), "OPEN until reset manual wasted=1"},
			{minute, force(0), "CLOSED forced closed"},
			{minute, reset, "CLOSED"},
			{minute, call(refusedToken), "OPEN 1m0s credentials wasted=1"},
			{minute, forGood, "[true true true false false]"},
		},
		"its data is lost": {
			opened,
			{second, lose(0), ""},
			{second, advance, "CLOSED"},
			{second, forGood, "[true true]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRows(t, Options{Cooldown: minute}, rows...)
		})
	}
}

// A token server that is away holds the calls until it is asked again: by one of them, which costs
// no cooldown and counts no wasted call.
func TestMissingCredentials(t *testing.T) {
	t.Parallel()
	missing := func(d time.Duration) Outcome {
		return Unauthorized().WithReason("the token server answered 503", false).WithRetry(d).WithoutCall()
	}
	absent := func(h *harness) string { return fmt.Sprint(h.status().NoCredentials) }
	runRows(t, Options{Cooldown: minute},
		row{0, ask("late"), "permit"},
		row{0, call(missing(2 * second)), "OPEN 2s credentials"},
		row{0, absent, "true"},
		row{second, tell("late", missing(2*second)), "OPEN 1s credentials"},
		row{2 * second, ask("probe"), "probe"},
		row{2 * second, ask("other"), "HALF_OPEN for 35s"},
		row{2 * second, tell("probe", missing(4*second)), "OPEN 4s credentials probes=1"},
		row{6 * second, call(refusedToken), "OPEN 1m0s credentials probes=2 wasted=1"},
		row{6 * second, absent, "false"},
		row{6*second + minute, call(missing(second)), "OPEN 1s credentials probes=3 wasted=1"},
		row{7*second + minute, call(RateLimited(minute)), "OPEN 1m0s hint probes=4 wasted=2"},
		row{7*second + minute, absent, "false"},
		row{7*second + 2*minute, call(Success()), "CLOSED"},
	)
}

// A key for which there are no credentials says nothing about the destination: no call was made.
func TestMissingCredentialsOfAKey(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string]struct {
		outcome Outcome
		want    string // of the key
	}{
		"the token server is away": {Unauthorized().WithRetry(2 * second).WithoutCall(), "OPEN 2s credentials"},
		"the token was revoked":    {Unauthorized().WithReason("invalid_grant", true).WithoutCall(), "OPEN 1m0s credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRows(t, Options{Cooldown: minute, OutageThreshold: 3},
				row{0, call(RateLimited(0)), "CLOSED failures=1"},
				row{0, of("a", call(missing.outcome)), missing.want},
				row{0, get, "CLOSED failures=1"},
				row{0, call(Success()), "CLOSED"},
				row{0, ofJobs(1, 2, Answered(503)), "CLOSED"},
				row{0, of("b", call(missing.outcome)), missing.want},
				row{0, streak, "2"},
				row{0, ofJobs(3, 3, Answered(503)), "OPEN 1s outage wasted=3"},
				row{minute, of("c", call(missing.outcome)), missing.want},
				row{minute, get, "HALF_OPEN outage wasted=3"},
				row{minute, ask("next"), "probe"},
				row{minute, tell("next", Success()), "CLOSED"},
			)
		})
	}
}

// Other credentials than those that were refused close the breaker; the same ones do not.
func TestCredentialsAreCompared(t *testing.T) {
	t.Parallel()
	with := func(id string) func(*harness) string {
		return func(h *harness) string {
			s, err := h.b.CredentialsRenewed(patient(h.t), id)
			if err != nil {
				h.t.Fatal(err)
			}
			return describe(s)
		}
	}
	runRows(t, Options{Cooldown: minute},
		row{0, call(refusedToken.WithCredentials("ab12")), "OPEN 1m0s credentials wasted=1"},
		row{second, with("ab12"), "OPEN 59s credentials wasted=1"},
		row{second, with("cd34"), "CLOSED"},
		row{2 * second, call(refusedToken.WithCredentials("cd34")), "OPEN 1m0s credentials wasted=1"},
		row{2 * second, with("cd34"), "OPEN 1m0s credentials wasted=1"},
		row{2 * second, with(""), "CLOSED"},
	)
}
