package policy

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	epoch  = 1_763_690_400_123_000 // µs
	second = 1000                  // ms
)

var options = Options{Cooldown: 300 * second, Multiplier: 1, MaxCooldown: 3600 * second, Caller: "worker-1", Instance: true}

// The columns of the table in the package's documentation, as states of a breaker.
var columns = []struct {
	name  string
	state State
}{
	{"CLOSED", closedState()},
	{"OPEN", openState()},
	{"by the probe", halfOpenState("p")},
	{"another call", halfOpenState("other")},
}

func closedState() State { return State{Name: "D", Circuit: Circuit{State: Closed}} }

func openState() State {
	s := State{Name: "D", Circuit: Circuit{State: Open, Cause: "threshold", OpenUntil: epoch/1000 + 300*second, LastCooldown: 300 * second}}
	s.Episode = Episode{IncidentCause: "threshold", OpenedAt: epoch / 1000}
	s.Meter = Meter{Counts: Counts{Failures: 3, Wasted: 3}, Incident: "D-1"}
	s.Generation, s.Revision, s.UpdatedAt = 100, 100, epoch/1000
	return s
}

func halfOpenState(token string) State {
	s := openState()
	s.Circuit.State, s.OpenUntil = HalfOpen, 0
	s.Lease = Lease{ProbeToken: token, ProbeStarted: epoch / 1000, ProbeUntil: epoch/1000 + 30*second}
	return s
}

// describe is a breaker in the words of the rows.
func describe(s State, effects []Effect) string {
	words := []string{s.State}
	add := func(name string, n int64) {
		if n != 0 {
			words = append(words, fmt.Sprint(name, "=", n))
		}
	}
	if s.State != Closed {
		words = append(words, s.Cause)
	}
	if s.OpenUntil > 0 {
		words = append(words, fmt.Sprint("for ", float64(s.OpenUntil-epoch/1000)/second, "s"))
	}
	if s.AskedUntil > 0 {
		words = append(words, fmt.Sprint("asked ", float64(s.AskedUntil-epoch/1000)/second, "s"))
	}
	if s.ProbeToken != "" {
		words = append(words, "probe "+s.ProbeToken)
	}
	if s.ProbeAfter > 0 {
		words = append(words, fmt.Sprint("probe in ", float64(s.ProbeAfter-epoch/1000)/second, "s"))
	}
	add("failures", s.Failures)
	add("wasted", s.Wasted)
	add("probes", s.Probes)
	add("streak", s.Streak)
	add("slow", s.Ramp)
	add("left", s.BudgetLeft)
	if s.Forced != "" {
		words = append(words, "forced")
	}
	for _, e := range effects {
		if e.Event != nil {
			words = append(words, fmt.Sprintf("(%s→%s %s)", e.Event.From, e.Event.To, e.Event.Cause))
		}
	}
	return strings.Join(words, " ")
}

type rule struct {
	event, column string
	name          string
	change        func(s *State)
	e             Event
	after         int64 // ms
	want          string
}

func rules() []rule {
	var all []rule
	add := func(event string, e Event, wants ...string) {
		e.Permit, e.Generation = "p", 1000
		if e.Threshold == 0 {
			e.Threshold, e.Enough = 3, 10
		}
		for i, want := range wants {
			all = append(all, rule{event: event, column: columns[i].name, e: e, want: want})
		}
	}
	more := func(event, column, name string, e Event, after int64, change func(s *State), want string) {
		e.Permit, e.Generation = "p", 1000
		if e.Threshold == 0 {
			e.Threshold, e.Enough = 3, 10
		}
		all = append(all, rule{event, column, name, change, e, after, want})
	}
	const still, probing, other = "OPEN threshold for 300s failures=3 wasted=3", "HALF_OPEN threshold probe p failures=3 wasted=3", "HALF_OPEN threshold probe other failures=3 wasted=3"
	add("limited", Event{Kind: Limited}, "CLOSED failures=1", "OPEN threshold for 300s failures=3 wasted=4",
		"OPEN probe for 300s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN probe)", "HALF_OPEN threshold probe other failures=3 wasted=4")
	more("limited", "CLOSED", "the third", Event{Kind: Limited}, 0, func(s *State) { s.Failures = 2 }, "OPEN threshold for 300s failures=3 wasted=3 (CLOSED→OPEN threshold)")
	more("limited", "CLOSED", "with a hint", Event{Kind: Limited, Hint: 5 * second}, 0, nil, "OPEN hint for 5s failures=1 wasted=1 (CLOSED→OPEN hint)")
	more("limited", "CLOSED", "in slow start", Event{Kind: Limited}, 0, func(s *State) { s.Ramp = 2 }, "OPEN ramp for 300s failures=1 wasted=1 (CLOSED→OPEN ramp)")
	more("limited", "CLOSED", "counted before", Event{Kind: Limited, Known: true}, 0, func(s *State) { s.Failures = 2 }, "CLOSED failures=2")
	more("limited", "CLOSED", "late", Event{Kind: Limited}, 0, func(s *State) { s.Generation = 2000 }, "CLOSED")
	more("limited", "OPEN", "with a later hint", Event{Kind: Limited, Hint: 400 * second}, 0, nil, "OPEN threshold for 400s failures=3 wasted=4")
	more("limited", "by the probe", "with a hint that was wrong", Event{Kind: Limited, Hint: 40}, 0, func(s *State) { s.Cause, s.LastCooldown = "hint", 4*second },
		"OPEN hint for 2s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	more("limited", "by the probe", "with the same hint as before", Event{Kind: Limited, Hint: 4 * second}, 0, func(s *State) { s.Cause, s.LastCooldown = "hint", 4*second },
		"OPEN hint for 8s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	more("limited", "by the probe", "with a hint whose test came before its end", Event{Kind: Limited, Hint: 4 * second}, 0, func(s *State) { s.Cause, s.LastCooldown, s.AskedUntil = "hint", 4*second, 1<<50 },
		"OPEN hint for 4s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	const hours = 3600 * second
	more("limited", "CLOSED", "with a hint beyond the longest cooldown", Event{Kind: Limited, Hint: 22 * hours}, 0, nil, "OPEN hint for 3600s asked 79200s failures=1 wasted=1 (CLOSED→OPEN hint)")
	asked := func(s *State) { s.AskedUntil = epoch/1000 + 21*hours }
	more("limited", "OPEN", "likewise, in flight", Event{Kind: Limited, Hint: 22 * hours}, 0, asked, "OPEN threshold for 3600s asked 79200s failures=3 wasted=4")
	more("limited", "by the probe", "of a wait that it asks for again", Event{Kind: Limited, Hint: 21*hours - second}, 0, asked,
		"OPEN hint for 75599s asked 75599s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	more("limited", "by the probe", "of a wait that ends later", Event{Kind: Limited, Hint: 30 * hours}, 0, asked,
		"OPEN hint for 86400s asked 108000s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	more("limited", "by the probe", "of a wait that ends earlier", Event{Kind: Limited, Hint: 2 * hours}, 0, asked,
		"OPEN hint for 3600s asked 7200s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	more("limited", "by the probe", "of a short wait", Event{Kind: Limited, Hint: 60 * second}, 0, asked,
		"OPEN hint for 60s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN hint)")
	more("success", "by the probe", "within a wait that was asked for", Event{Kind: Succeeded}, 0, asked, "CLOSED slow=1 (HALF_OPEN→CLOSED success)")
	add("success", Event{Kind: Succeeded}, "CLOSED", still, "CLOSED slow=1 (HALF_OPEN→CLOSED success)", other)
	more("success", "CLOSED", "after refusals", Event{Kind: Succeeded}, 0, func(s *State) { s.Failures, s.Streak = 2, 4 }, "CLOSED")
	more("success", "CLOSED", "in slow start", Event{Kind: Succeeded, Metered: true}, 0, func(s *State) { s.Ramp, s.RampOK = 2, 1 }, "CLOSED slow=4")
	more("success", "CLOSED", "announces little", Event{Kind: Succeeded, Announces: true, Left: 2, ResetIn: 60 * second}, 0, nil, "CLOSED left=2")
	more("success", "CLOSED", "announces nothing", Event{Kind: Succeeded, Announces: true, ResetIn: 60 * second}, 0, nil, "OPEN budget for 60s (CLOSED→OPEN budget)")
	more("success", "CLOSED", "announces another window, counted before", Event{Kind: Succeeded, Known: true, Announces: true, Left: 50, ResetIn: second}, 0,
		func(s *State) { s.Budget, s.BudgetLeft = Budget{Metered: 1, BudgetReset: epoch/1000 + 30*second}, 1 }, "CLOSED left=1")
	add("failure", Event{Kind: Failed}, "CLOSED", still, "HALF_OPEN threshold probe in 1s failures=3 wasted=3", other)
	add("outage", Event{Kind: Failed, Outage: "down"}, "CLOSED streak=1", still, "HALF_OPEN threshold probe in 1s failures=3 wasted=3", other)
	more("outage", "CLOSED", "the tenth", Event{Kind: Failed, Outage: "down"}, 0, func(s *State) { s.StreakOf, s.Streak = "down", 9 }, "OPEN outage for 1s wasted=10 (CLOSED→OPEN outage)")
	more("outage", "CLOSED", "a job's second", Event{Kind: Failed, Outage: "down", Job: "j"}, 0, func(s *State) { s.StreakOf, s.Streak, s.StreakJobs = "down", 9, "i,j" }, "CLOSED streak=9")
	more("outage", "OPEN", "of one", Event{Kind: Failed, Outage: "down"}, 0, func(s *State) { s.Cause, s.Outage = "outage", "down" }, "OPEN outage for 300s failures=3 wasted=4")
	more("outage", "by the probe", "of one", Event{Kind: Failed, Outage: "down"}, 0, func(s *State) { s.Cause, s.Outage, s.LastCooldown = "outage", "down", 4*second },
		"OPEN outage for 8s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN outage)")
	add("neutral", Event{Kind: Neutral}, "CLOSED", still, "HALF_OPEN threshold failures=3 wasted=3", other)
	add("unauthorized", Event{Kind: Unauthorized}, "OPEN credentials for 300s wasted=1 (CLOSED→OPEN credentials)", "OPEN threshold for 300s failures=3 wasted=4",
		"OPEN credentials for 300s failures=3 wasted=4 probes=1 (HALF_OPEN→OPEN credentials)", "HALF_OPEN threshold probe other failures=3 wasted=4")
	add("counted", Event{Kind: Counted}, "CLOSED", still, probing, other)
	more("counted", "CLOSED", "a round of the slow start", Event{Kind: Counted, MeterEvent: "grow:0:0:0"}, 0, func(s *State) { s.Ramp, s.RampOK = 4, 4 }, "CLOSED slow=8")
	add("due", Event{Kind: Due}, "CLOSED", still, probing, other)
	more("due", "OPEN", "its time has come", Event{Kind: Due}, 300*second, nil, "HALF_OPEN threshold failures=3 wasted=3 (OPEN→HALF_OPEN cooldown)")
	more("due", "another call", "the lease has lapsed", Event{Kind: Due}, 30*second, nil, "HALF_OPEN threshold probe in 30s failures=3 wasted=3")
	more("due", "CLOSED", "the window has ended", Event{Kind: Due}, 2*second, func(s *State) { s.Budget, s.BudgetLeft = Budget{Metered: 1, BudgetReset: epoch/1000 + second}, 1 }, "CLOSED")
	more("due", "CLOSED", "the budget is used up", Event{Kind: Due}, 0, func(s *State) { s.Budget = Budget{Metered: 1, BudgetReset: epoch/1000 + second} }, "OPEN budget for 1s (CLOSED→OPEN budget)")
	add("trip", Event{Kind: Tripped, Length: 60 * second}, "OPEN manual for 60s (CLOSED→OPEN manual)", "OPEN manual for 60s failures=3 wasted=3 (OPEN→OPEN manual)",
		"OPEN manual for 60s failures=3 wasted=3 (HALF_OPEN→OPEN manual)", "OPEN manual for 60s failures=3 wasted=3 (HALF_OPEN→OPEN manual)")
	add("force", Event{Kind: Forcing}, "CLOSED forced (CLOSED→CLOSED forced)", "CLOSED forced (OPEN→CLOSED forced)",
		"CLOSED forced (HALF_OPEN→CLOSED forced)", "CLOSED forced (HALF_OPEN→CLOSED forced)")
	add("reset", Event{Kind: Reset}, "CLOSED", "CLOSED slow=1 (OPEN→CLOSED reset)", "CLOSED slow=1 (HALF_OPEN→CLOSED reset)", "CLOSED slow=1 (HALF_OPEN→CLOSED reset)")
	more("reset", "CLOSED", "in slow start", Event{Kind: Reset}, 0, func(s *State) { s.Ramp = 4 }, "CLOSED (CLOSED→CLOSED reset)")
	add("renewed", Event{Kind: Renewed}, "CLOSED", still, probing, other)
	more("renewed", "OPEN", "credentials opened it", Event{Kind: Renewed}, 0, func(s *State) { s.Cause = "credentials" }, "CLOSED slow=1 (OPEN→CLOSED renewed)")
	add("forget", Event{Kind: Forgotten}, "CLOSED", still, probing, other)
	more("forget", "CLOSED", "a budget", Event{Kind: Forgotten}, 0, func(s *State) { s.Budget, s.BudgetLeft = Budget{Metered: 1}, 3 }, "CLOSED (CLOSED→CLOSED forgotten)")
	return all
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, r := range rules() {
		for _, c := range columns {
			if c.name != r.column {
				continue
			}
			s := c.state
			if r.change != nil {
				r.change(&s)
			}
			p, effects := Pair{Destination: s, Capacity: 16}.Next(r.e, epoch+1000*r.after, options)
			if got := describe(p.Destination, effects); got != r.want {
				t.Errorf("%s, %s, %s:\n got %s\nwant %s", r.event, r.column, r.name, got, r.want)
			}
		}
	}
}

// Each cell of the table has a row.
func TestTableIsCovered(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("next.go")
	if err != nil {
		t.Fatal(err)
	}
	events := regexp.MustCompile(`(?m)^//\t([a-z]+) {2,}`).FindAllStringSubmatch(string(text), -1)
	if len(events) < 12 || events[0][1] != "event" {
		t.Fatalf("the table has the events %v", events)
	}
	covered := map[string]bool{}
	for _, r := range rules() {
		covered[r.event+" "+r.column] = true
	}
	for _, e := range events[1:] {
		for _, c := range columns {
			if !covered[e[1]+" "+c.name] {
				t.Errorf("no row for %s in %s", e[1], c.name)
			}
		}
	}
}

// A key's refusal is the key's, unless the API says that it is of all, and a keyed probe opens both again.
func TestWhomARefusalConcerns(t *testing.T) {
	t.Parallel()
	key := func(s State) State {
		s.Name = "D/k"
		return s
	}
	for name, c := range map[string]struct {
		pair      Pair
		scope     string
		own, ofIt string
	}{
		"closed":           {Pair{Destination: closedState(), Key: key(closedState())}, "", "CLOSED", "CLOSED failures=1"},
		"closed, of all":   {Pair{Destination: closedState(), Key: key(closedState())}, "global", "CLOSED failures=1", "CLOSED"},
		"probe":            {Pair{Destination: halfOpenState("p"), Key: key(closedState())}, "", "OPEN probe for 300s failures=3 wasted=4 probes=1", "CLOSED failures=1"},
		"probe, the key's": {Pair{Destination: halfOpenState("p"), Key: key(closedState())}, "user", "HALF_OPEN threshold failures=3 wasted=3", "CLOSED failures=1"},
	} {
		c.pair.Keyed, c.pair.Capacity = true, 16
		p, _ := c.pair.Next(Event{Kind: Limited, Permit: "p", Generation: 1000, Threshold: 3, Scope: c.scope}, epoch, options)
		if own, ofIt := describe(p.Destination, nil), describe(p.Key, nil); own != c.own || ofIt != c.ofIt {
			t.Errorf("%s:\n got %s | %s\nwant %s | %s", name, own, ofIt, c.own, c.ofIt)
		}
	}
}

// After the clock went back, the level of the cooldown falls as before.
func TestLevelFallsAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	const hour = 3600 * second
	s := closedState()
	s.Level, s.LastCooldown, s.QuietSince, s.UpdatedAt = 2, 10*second, epoch/1000+hour, epoch/1000+hour
	p := Pair{Destination: s}
	p, _ = p.Next(Event{Kind: Limited, Permit: "a", Generation: epoch, Threshold: 9}, epoch, options)
	p, _ = p.Next(Event{Kind: Limited, Permit: "b", Generation: epoch, Threshold: 9}, epoch+25*second*1000, options)
	if p.Destination.Level != 0 {
		t.Errorf("after 25 s of quiet the level is %d, as of a cooldown of 10 s: want 0", p.Destination.Level)
	}
}
