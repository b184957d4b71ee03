package alerts

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/alerts/pagerduty"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/breaker"
)

func opened(i int) breaker.Event {
	return breaker.Event{
		At: start, Name: fmt.Sprint("d", i), From: breaker.Closed, To: breaker.Open, Incident: fmt.Sprint("i", i), Generation: uint64(i) + 1,
	}
}

// What is remembered while Redis is away is bounded.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	a := b.workers[0]
	for i := range maxTriggers + 1000 {
		a.onTransition(opened(i))
		a.noteRefusal(refusal{Destination: fmt.Sprint("d", i), Job: "j"})
	}
	for range 100 {
		a.noteRefusal(refusal{Destination: "d0", Job: "j"})
	}
	same(t, "triggers", maxTriggers, len(a.buffer.triggers))
	same(t, "answers", maxTriggers, len(a.buffer.answers))
	same(t, "answers of one", maxAnswers, len(a.buffer.answers[" d0/"]))
}

// All workers make the same jobs of the same events.
func TestTriggersOfEvents(t *testing.T) {
	t.Parallel()
	at := start.Add(7 * time.Second)
	tests := map[string]struct {
		event breaker.Event
		want  []string
	}{
		"opened": {
			breaker.Event{Name: "shop", From: breaker.Closed, To: breaker.Open, Incident: "i1", Generation: 5},
			[]string{"i1.opened.pagerduty pagerduty", "i1.opened.slack slack", "i1.why.slack slack +8s"},
		},
		"a failed probe is nothing for PagerDuty": {
			breaker.Event{Name: "shop", From: breaker.HalfOpen, To: breaker.Open, Incident: "i1", Generation: 7, Probes: 1},
			[]string{"i1.probe-7.slack slack"},
		},
		"many failed probes are summed up": {
			breaker.Event{Name: "shop", From: breaker.HalfOpen, To: breaker.Open, Incident: "i1", Generation: 70, Probes: 21},
			[]string{fmt.Sprintf("i1.probes-%d.slack slack +30s", start.Add(30*time.Second).Unix())},
		},
		"closed": {
			breaker.Event{Name: "shop", From: breaker.HalfOpen, To: breaker.Closed, Incident: "i1", Generation: 8},
			[]string{"i1.closed.pagerduty pagerduty", "i1.closed.slack slack"},
		},
		"half open makes no alert":      {breaker.Event{Name: "shop", From: breaker.Open, To: breaker.HalfOpen, Incident: "i1"}, nil},
		"a reset of one that is CLOSED": {breaker.Event{Name: "shop", From: breaker.Closed, To: breaker.Closed}, nil},
		"a key": {
			breaker.Event{Name: "shop/ann", Key: "ann", From: breaker.Closed, To: breaker.Open, Incident: "i1"},
			[]string{fmt.Sprintf("shop.keys.%d.slack slack +10s", start.Add(10*time.Second).Unix())},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := New(nil, (&setup{Slack: slack.Options{Token: "xoxb-1", Channel: "#a"}, Pager: pagerduty.Options{Key: "k"}}).options(t))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // observed several times
				e := test.event
				e.At = at
				a.onTransition(e)
			}
			var got []string
			for _, id := range slices.Sorted(maps.Keys(a.buffer.triggers)) {
				one := a.buffer.triggers[id]
				s := one.id + " " + one.to.Name()
				if !one.at.IsZero() {
					s += fmt.Sprintf(" +%v", one.at.Sub(start))
				}
				got = append(got, s)
			}
			same(t, "jobs", test.want, got)
		})
	}
}

// A look around sees what is open, and one of the workers looks each minute.
func TestOneWorkerScansEachMinute(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 3, withoutPager)
	b.lookAround()
	b.trip("shop")
	b.settle()
	for i := range 3 {
		b.play(time.Duration(i+1) * time.Minute)
		b.lookAround()
		b.settle()
	}
	var looks []string
	for _, task := range b.tasks {
		if task.job.ID[:9] == "shop.scan" {
			looks = append(looks, task.job.ID)
		}
	}
	slices.Sort(looks)
	same(t, "looks", 3, len(looks))
}
