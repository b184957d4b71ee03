package alerts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// What is not a limit has words of its own, and says what to do.
func TestWordsOfOtherCauses(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 14, 30, 0, 0, time.UTC)
	for cause, want := range map[string]string{
		breaker.CauseCredentials: ": token refused since ",
		breaker.CauseOutage:      " is down, or refuses every call",
	} {
		s := situation{
			Now: now, Destination: "shop", Name: "shop", State: breaker.Open, Cause: cause, Reason: "answered 401",
			Since: now.Add(-28 * time.Minute), Until: now.Add(time.Minute), Openings: 1, Backlog: 3, Expiring: -1, Wasted: 10,
		}
		if got := headline(&s).Rest[0].Text; got != want {
			t.Errorf("%s: %q, want %q", cause, got, want)
		}
		if got := refusals(&s); got != "" {
			t.Errorf("%s: its calls were called %q", cause, got)
		}
	}
}

// Once a limit is learned, the message has it, while the incident lasts and after it.
func TestMessageHasTheLearnedLimit(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 14, 30, 0, 0, time.UTC)
	s := situation{
		Now: now, Destination: "shop", Name: "shop", State: breaker.Open, Cause: breaker.CauseThreshold, Learned: "about 60 calls per 5 min",
		Since: now.Add(-time.Minute), Until: now.Add(time.Minute), Openings: 1, Backlog: 3, Expiring: -1, Wasted: 3,
	}
	text := func() string { return fmt.Sprintf("%+v", why(&s)[0].Lines.Lines) }
	if got := text(); !strings.Contains(got, "; learned limit: about 60 calls per 5 min") {
		t.Errorf("while it lasts: %s", got)
	}
	s.State, s.Cause, s.Ended = breaker.Closed, breaker.CauseProbe, now
	if got := text(); !strings.Contains(got, "It keeps a learned limit: about 60 calls per 5 min") {
		t.Errorf("after it: %s", got)
	}
	s.State, s.Cause, s.Ended = breaker.Open, breaker.CauseCredentials, time.Time{}
	if got := text(); strings.Contains(got, "learned") {
		t.Errorf("of refused credentials: %s", got)
	}
}

// Credentials that only a person can renew page at once, even where nothing else pages.
func TestPermanentRefusalPagesAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 14, 30, 0, 0, time.UTC)
	for _, row := range []struct {
		permanent bool
		tooLong   time.Duration
		want      bool
	}{{true, 15 * time.Minute, true}, {true, 0, true}, {false, 15 * time.Minute, false}, {false, 0, false}} {
		c := thread{lastIncident: lastIncident{Started: now, Permanent: row.permanent}}
		if got := c.pageDue(now, row.tooLong); got != row.want {
			t.Errorf("permanent %t, pages after %s: %t, want %t", row.permanent, row.tooLong, got, row.want)
		}
	}
}
