package policy

import (
	"testing"
)

// Reports come late and in any order: a streak has the calls that ended after the last one that the API accepted.
func TestStreakIsInTheOrderOfEnds(t *testing.T) {
	t.Parallel()
	failed := func(job string, ended, accepted int64) Event {
		return Event{Kind: Failed, Outage: "down", Job: job, Enough: 3, Ended: epoch + ended, Accepted: epoch + accepted}
	}
	accepted := func(at int64) Event { return Event{Kind: Succeeded, Ended: epoch + at} }
	for name, row := range map[string]struct {
		events []Event
		want   string
	}{
		"a late success between them":        {[]Event{failed("a", 10, 1), failed("b", 30, 1), accepted(20)}, "CLOSED streak=1"},
		"a late success before them":         {[]Event{failed("a", 10, 1), failed("b", 30, 1), accepted(5)}, "CLOSED streak=2"},
		"a late failure":                     {[]Event{failed("a", 10, 1), accepted(20), failed("b", 15, 1)}, "CLOSED"},
		"a success that was not reported":    {[]Event{failed("a", 10, 1), failed("b", 30, 20)}, "CLOSED streak=1"},
		"and a late failure of another one":  {[]Event{failed("a", 30, 20), failed("b", 15, 1)}, "CLOSED streak=1"},
		"one that comes by itself":           {[]Event{failed("a", 10, 1), {Kind: Neutral, Accepted: epoch + 20}}, "CLOSED"},
		"a job that fails again":             {[]Event{failed("a", 10, 1), failed("b", 15, 1), failed("a", 30, 1), accepted(20)}, "CLOSED streak=1"},
		"failures without a success":         {[]Event{failed("a", 10, 1), failed("b", 30, 1), failed("c", 20, 5)}, "OPEN outage for 1.001s wasted=3 (CLOSED→OPEN outage)"},
		"three, and a success between them":  {[]Event{failed("a", 10, 1), failed("b", 30, 1), failed("c", 20, 15)}, "CLOSED streak=2"},
		"a success of another clock's hours": {[]Event{failed("a", 10, 1), accepted(3600_000_000)}, "CLOSED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Pair{Destination: closedState()}
			var effects []Effect
			for _, e := range row.events {
				p, effects = p.Next(e, epoch+1000, options)
			}
			if got := describe(p.Destination, effects); got != row.want {
				t.Errorf("got  %q\nwant %q", got, row.want)
			}
		})
	}
}
