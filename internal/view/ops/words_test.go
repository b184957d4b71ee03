package ops

import (
	"testing"

	"github.com/tidegate/tidegate/jobs"
)

// Each code has its row: one that is added fails here until it is worded.
func TestEachCodeIsWorded(t *testing.T) {
	t.Parallel()
	for _, s := range jobs.Statuses {
		if w := StatusWords(s); w.Class == "" || w.Text == "" || w.Hint == "" {
			t.Errorf("status %s is not worded: %+v", s, w)
		}
	}
	if len(statuses) != len(jobs.Statuses) {
		t.Errorf("%d statuses are worded, there are %d", len(statuses), len(jobs.Statuses))
	}
	for _, e := range []string{"created", string(jobs.Completed), string(jobs.Failed), string(jobs.Cancelled), string(jobs.Expired)} {
		if _, ok := events[e]; !ok {
			t.Errorf("event %s is not worded", e)
		}
	}
	if got := EventWords("newly_made"); got != "Newly made" {
		t.Errorf("an unknown event is worded %q", got)
	}
	for _, a := range []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionRetry} {
		act, ok := ActNamed(string(a))
		if !ok || act.Verb == "" || act.Past == "" || act.Means == "" || act.Effect == "" || len(act.For) == 0 {
			t.Errorf("action %s is not worded: %+v", a, act)
		}
	}
	if _, ok := ActNamed("explode"); ok {
		t.Error("there is an act that does not exist")
	}
}

// What a page offers, and what a filter may name.
func TestActs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		act           string
		status        jobs.Status
		offered, asks bool
	}{
		{"cancel", jobs.Running, true, true},
		{"cancel", jobs.Completed, false, false},
		{"cancel", jobs.Failed, false, true}, // only of one that blocks its key, which a filter finds
		{"pause", jobs.Running, true, true},
		{"resume", jobs.Running, false, true}, // it may be about to be paused, but a page does not know that
		{"resume", jobs.Paused, true, true},
		{"retry", jobs.Failed, true, true},
		{"retry", jobs.Running, false, false},
	} {
		act, _ := ActNamed(c.act)
		err := act.Check(jobs.Filter{Statuses: []jobs.Status{c.status}})
		if got := act.Offered(c.status); got != c.offered || (err == nil) != c.asks {
			t.Errorf("%s of a %s job: offered %t, %v", c.act, c.status, got, err)
		}
	}
	retry, _ := ActNamed("retry")
	want := "running jobs cannot be retried; failed, cancelled ones can"
	if err := retry.Check(jobs.Filter{Statuses: []jobs.Status{jobs.Failed, jobs.Running}}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for want, f := range map[string]jobs.Filter{
		"jobs":                 {},
		"failed jobs":          {Statuses: []jobs.Status{jobs.Failed}},
		"jobs of shop":         {Destination: "shop"},
		"jobs with key ann":    {Key: "ann"},
		"jobs in batch monday": {Batch: "monday"},
		"retry pending jobs of shop with key ann in batch b": {Statuses: []jobs.Status{jobs.RetryPending}, Destination: "shop", Key: "ann", Batch: "b"},
	} {
		if got := FilterWords(f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
