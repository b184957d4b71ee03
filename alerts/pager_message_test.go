package alerts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPagerSummary(t *testing.T) {
	t.Parallel()
	c := composer{}
	late := changed(shopProbeFailed(), func(s *situation) { s.Now = afterNoon(15 * time.Minute) })
	for _, row := range []struct {
		name string
		s    situation
		want string
	}{
		{"limited", late, "shop has been rate limited for 15 min: 5 × 429; 1,377 jobs wait; 1 expires before then; next try at 12:15:02 UTC"},
		{"tripped", shopTripped(), "shop: open by hand for 10 s, by ann@laptop (They move their servers until about two o'clock); 1 job waits; it stays open until it is reset"},
		{"flapping", shopFlaps(), "shop has been hitting its limit for 9 min: 14 × 429; 1,204 jobs wait; 17 expire before then; next try at 12:14:00 UTC"},
		{"markup", changed(shopTripped(), func(s *situation) { s.Reason = "<a> & @b" }), "shop: open by hand for 10 s, by ann@laptop (<a> & @b); 1 job waits; it stays open until it is reset"},
	} {
		if got := paged(t, c.page(row.s, 15*time.Minute)).Summary; got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestPagerDetails(t *testing.T) {
	t.Parallel()
	c := composer{publicURL: "https://tidegate.example.com"}
	hinted, tripped, limited := shopHinted(), shopTripped(), keysLimited()
	got := c.details(&hinted)
	want := map[string]any{
		"breaker": "shop", "destination": "shop", "state": "OPEN", "lasted": "10 s", "openings": 1, "failed_probes": 0,
		"wasted_calls": 1, "rescheduled_jobs": 1, "since": "2026-11-21T12:00:00Z", "until": "2026-11-21T12:12:30Z",
		"cause": "the API said how long to wait", "by": "worker-2:4711", "incident": "0199a1b2", "backlog": 1204, "expire_before_then": 0,
		"last_answers": []map[string]any{{
			"at": "2026-11-21T12:00:00Z", "status": 429, "retry_after": "12 min 30 s",
			"body": "<html><head><title>429 Too Many Requests</title></head></html>",
		}},
		"commands": []string{
			"tidegate breaker get shop", "tidegate breaker incidents shop", "tidegate list --destination shop --status pending",
			"tidegate breaker reset shop", "tidegate queue pause shop",
		},
		"link": "https://tidegate.example.com/breakers/shop",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if got := c.details(&tripped)["until"]; got != "it is reset" {
		t.Errorf("tripped until %v", got)
	}
	keys := c.details(&limited)
	if keys["keys_limited"] != 12 || keys["state"] != nil {
		t.Errorf("of keys: %v", keys)
	}
}
