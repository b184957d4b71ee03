package alerts

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	answers := func(statuses ...int) (list []refusal) {
		for _, s := range statuses {
			list = append(list, refusal{Status: s})
		}
		return list
	}
	for _, row := range []struct {
		s    situation
		want string
	}{
		{situation{}, ""},
		{situation{Wasted: 1}, "1 rate-limited answer"},
		{situation{Wasted: 3, Answers: answers(429)}, "3 × 429"},
		{situation{Wasted: 1, Answers: answers(429, 429)}, "2 × 429"},
		{situation{Wasted: 1204, Answers: answers(429, 403)}, "1,204 rate-limited answers"},
		{situation{Wasted: 2, Answers: answers(0, 0)}, "2 rate-limited answers"},
	} {
		if got := refusals(&row.s); got != row.want {
			t.Errorf("%+v: %q, want %q", row.s, got, row.want)
		}
	}
}

// The one line of a notification has what matters.
func TestSummary(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*situation)
		want   string
	}{
		{"opened", func(*situation) {}, "shop is rate limited until 12:05:00 UTC: 3 × 429; 1,204 jobs wait; 17 expire before then"},
		{"one expires", func(s *situation) { s.Expiring, s.Backlog = 1, 1 }, "shop is rate limited until 12:05:00 UTC: 3 × 429; 1 job waits; 1 expires before then"},
		{"backlog not known", func(s *situation) { s.Backlog, s.Expiring = -1, -1 }, "shop is rate limited until 12:05:00 UTC: 3 × 429"},
		{"tomorrow", func(s *situation) { s.Until, s.Expiring = afterNoon(12*time.Hour), 0 }, "shop is rate limited until 2026-11-22 00:00:00 UTC: 3 × 429; 1,204 jobs wait"},
		{"its time has come", func(s *situation) { s.Now = s.Until }, "shop: testing recovery with one call; 1,204 jobs wait"},
		{"probe failed", func(s *situation) { s.Probes, s.Expiring = 1, 0 }, "shop is still rate limited until 12:05:00 UTC: 3 × 429; 1,204 jobs wait"},
		{"again", func(s *situation) { s.Openings, s.Expiring = 2, 0 }, "shop is rate limited again until 12:05:00 UTC, the 2nd time: 3 × 429; 1,204 jobs wait"},
		{"a key", func(s *situation) { s.Name, s.Expiring = "shop/alice", 0 }, "shop/alice is rate limited until 12:05:00 UTC: 3 × 429; 1,204 jobs wait"},
		{"by hand for a time", func(s *situation) { s.Cause, s.By, s.Expiring = breaker.CauseManual, "", 0 }, "shop: opened by hand until 12:05:00 UTC, by an operator; 1,204 jobs wait"},
		{"recovered", func(s *situation) { s.State, s.Ended = breaker.Closed, afterNoon(872*time.Second) }, "shop has recovered after 14 min 32 s: 1,204 jobs wait"},
	} {
		s := changed(shopLimited(), row.change)
		if got := rendered(t, composer{}.opened(s), "", false).Text; got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestDashboardLinks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ base, name, want string }{
		{"", "shop", ""},
		{"https://tidegate.example.com", "shop", "https://tidegate.example.com/breakers/shop"},
		{"https://example.com/tidegate/", "shop/alice@example.com", "https://example.com/tidegate/breakers/shop/alice@example.com"},
		{"http://10.0.0.1:8080", "shop/*", "http://10.0.0.1:8080/breakers/shop"},
		{"HTTPS://e.example", "shop", "https://e.example/breakers/shop"},
		{"javascript:alert(1)", "shop", ""},
		{"https://e.example/|x>", "shop", ""},
		{"https://e.example/" + strings.Repeat("a", 3000), "shop", ""},
		{"tidegate.example.com", "shop", ""},
	} {
		if got := (composer{publicURL: row.base}).breakerPage(row.name); got != row.want {
			t.Errorf("%.40s, %s: %q, want %q", row.base, row.name, got, row.want)
		}
	}
	if m := rendered(t, composer{}.opened(shopLimited()), "", false); strings.Contains(string(m.Blocks), `"actions"`) {
		t.Error("a button without an address")
	}
}
