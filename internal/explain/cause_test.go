package explain_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
)

// Each cause of a transition has a text.
func TestCauses(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../breaker/state.go")
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
