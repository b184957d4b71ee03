package explain

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

func TestRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"60/1h": "60 calls an hour", "60/1m": "60 calls a minute", "10/s": "10 calls a second", "1/1h": "24 calls a day", "1/1d": "1 call a day",
		"500/1d": "500 calls a day", "1000/15m": "4000 calls an hour", "7/1h": "7 calls an hour", "5000/s": "5000 calls a second", "1/7d": "one call every 7d",
		"900/1mo@UTC": "900 calls per month of UTC", "700001/1d@Europe/Paris": "700001 calls per 1 d of Europe/Paris", "1/6h@UTC": "1 call per 6 h of UTC",
	} {
		r, err := breaker.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		status := breaker.RateStatus{Interval: r.Per / time.Duration(r.Calls), Burst: 1, Zone: r.Zone}
		if r.Zone != "" {
			status.Burst = r.Calls
		}
		if got := Rate(status); got != want {
			t.Errorf("%s is told as %q, want %q", text, got, want)
		}
	}
}

// Where the place is not known the turn is not either, and no rate holds what it has let go.
func TestTurnByRate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 30, 48, 0, time.UTC)
	r := breaker.RateStatus{Interval: time.Minute, Burst: 1, Next: now.Add(30 * time.Second)}
	number := func(n int) *int { return &n }
	for _, row := range []struct {
		w      Waiting
		others bool
		want   string
		until  time.Time
	}{
		{Waiting{Ahead: number(0)}, false, "RATE allows 60 calls an hour; next in line, its turn is due in 30s, at 14:31:18", now.Add(30 * time.Second)},
		{Waiting{Ahead: number(2)}, false, "RATE allows 60 calls an hour; 2 jobs are ahead, its turn is due in 2m30s, at 14:33:18", now.Add(150 * time.Second)},
		{Waiting{Ahead: number(2)}, true, "RATE allows 60 calls an hour; 2 jobs are ahead, its turn is not before 14:33:18, because jobs of other priorities wait too", time.Time{}},
		{Waiting{Ahead: number(100)}, false, "RATE allows 60 calls an hour; 100 jobs are ahead, its turn is due in 1h41m, at 16:11:18", now.Add(100*time.Minute + 30*time.Second)},
		{Waiting{Ahead: number(101)}, false, "RATE allows 60 calls an hour; 101 jobs are ahead, its turn is not before 16:12:18", time.Time{}}, // their costs are not read
		{Waiting{AheadAtLeast: number(60)}, false, "RATE allows 60 calls an hour; at least 60 jobs are ahead, its turn is not before 15:31:18", time.Time{}},
	} {
		row.w.addTurn(r, row.w.ahead(), min(row.w.ahead(), mostRead), row.others, now)
		if row.w.Text != row.want || (row.w.Until == nil) != row.until.IsZero() || row.w.Until != nil && !row.w.Until.Equal(row.until) {
			t.Errorf("%q until %v, want %q until %v", row.w.Text, row.w.Until, row.want, row.until)
		}
	}
	passed := Waiting{Ahead: number(0)}
	passed.addTurn(r, 0, 0, false, now.Add(time.Minute))
	if want := "RATE allows 60 calls an hour; next in line, its turn is now"; passed.Text != want || passed.Until != nil {
		t.Errorf("%q until %v, want %q", passed.Text, passed.Until, want)
	}
	closed := breaker.Status{State: breaker.Closed, Rate: &r}
	if !RateHolds(closed, now) || RateHolds(closed, now.Add(31*time.Second)) || RateHolds(breaker.Status{State: breaker.Open, Rate: &r}, now) || RateHolds(breaker.Status{}, now) {
		t.Error("a rate holds calls of a closed breaker until its next call is due, and no others")
	}
	held := facts{now: now, breaker: breaker.Status{Name: "shop", State: breaker.Closed}, key: &breaker.Status{Name: "shop/alice", State: breaker.Closed, Rate: &r}}
	want := "KEY_RATE allows 60 calls an hour; the next is due in 30s, at 14:31:18"
	if w := held.byKey(&jobs.Job{Destination: "shop", Key: "alice", ReasonCode: "held shop/alice"}); w.Reason != ByRate || w.Text != want || w.Breaker != "shop/alice" {
		t.Errorf("a job of a key waits by %s: %q, want %q", w.Reason, w.Text, want)
	}
	want += "; KEY_BY makes it a job of key v1:chat"
	if w := held.byKey(&jobs.Job{Destination: "shop", Key: "alice", ReasonCode: "held shop/v1:chat"}); w.Text != want || w.Breaker != "shop/v1:chat" {
		t.Errorf("a job that another key holds: %q of %s, want %q", w.Text, w.Breaker, want)
	}
}
