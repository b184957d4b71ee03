package explain_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
)

// Each cause of a transition has a text.
func TestCauses(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../../breaker/state.go")
	if err != nil {
		t.Fatal(err)
	}
	causes := regexp.MustCompile(`\tCause\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	denies := []string{"slow_start", "concurrency", "rate"} // calls, and opens nothing
	for _, c := range causes {
		if !slices.Contains(denies, c[1]) && explain.Cause(c[1]) == c[1] {
			t.Errorf("the cause %s has no text", c[1])
		}
	}
	if len(causes) < 11 {
		t.Errorf("found %d causes", len(causes))
	}
}

func TestStreak(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]string{
		"down": "2 of 3 calls in a row failed with 5xx or without an answer",
		"403":  "2 of 3 calls in a row failed with 403",
		"429":  "2 of 3 keys in a row were rate limited",
	} {
		if got := explain.Streak(breaker.Status{Streak: 2, StreakLimit: 3, StreakOf: of}); got != want {
			t.Errorf("%s: got %q, want %q", of, got, want)
		}
	}
}

// What a breaker is said to be follows from why it opened, not from the usual reason.
func TestConditions(t *testing.T) {
	t.Parallel()
	open := func(cause, incident string) breaker.Status {
		return breaker.Status{State: breaker.Open, Cause: cause, IncidentCause: incident}
	}
	for _, c := range []struct {
		b    breaker.Status
		want string
	}{
		{open(breaker.CauseThreshold, breaker.CauseThreshold), "is rate limited"},
		{open(breaker.CauseHint, breaker.CauseHint), "is rate limited"},
		{open(breaker.CauseLearned, breaker.CauseLearned), "is at its learned limit"},
		{open(breaker.CauseBudget, breaker.CauseBudget), "has no calls left"},
		{open(breaker.CauseOutage, breaker.CauseOutage), "is down: its last calls all failed"},
		{open(breaker.CauseProbe, breaker.CauseOutage), "is down: its last calls all failed"},
		{open(breaker.CauseCredentials, breaker.CauseCredentials), "has no valid token"},
		{breaker.Status{State: breaker.Open, IncidentCause: breaker.CauseCredentials, NoCredentials: true}, "has no token"},
		{open(breaker.CauseManual, breaker.CauseManual), "is opened by hand"},
	} {
		if got := explain.Condition(c.b); got != c.want {
			t.Errorf("%s in an incident by %s: %q, want %q", c.b.Cause, c.b.IncidentCause, got, c.want)
		}
	}
	keys := []breaker.Status{
		{},
		open(breaker.CauseHint, breaker.CauseHint), open(breaker.CauseOutage, breaker.CauseOutage), open(breaker.CauseProbe, breaker.CauseThreshold),
		open(breaker.CauseCredentials, breaker.CauseCredentials), open(breaker.CauseOutage, breaker.CauseOutage),
	}
	if got, want := explain.Conditions(keys), "1 key has no valid token, 2 keys are down, 2 keys are rate limited"; got != want {
		t.Errorf("keys %q, want %q", got, want)
	}
}
