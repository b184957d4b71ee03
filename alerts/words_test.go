package alerts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
)

// Once a limit is learned, the message has it, while the incident lasts and after it.
func TestMessageHasTheLearnedLimit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		change func(*situation)
		want   string
	}{
		{func(*situation) {}, "; learned limit: about 60 calls per 5 min"},
		{func(s *situation) { s.State, s.Cause, s.Ended = breaker.Closed, breaker.CauseProbe, s.Now }, "It keeps a learned limit: about 60 calls per 5 min"},
		{func(s *situation) { s.Cause = breaker.CauseCredentials }, ""},
		{func(s *situation) { s.Cause = breaker.CauseOutage }, ""},
	} {
		s := shopLimited()
		s.Learned = "about 60 calls per 5 min"
		row.change(&s)
		text := string(rendered(t, composer{}.compose(notice.Opened, &s), "", false).Blocks)
		if row.want == "" && strings.Contains(text, "learned") || !strings.Contains(text, row.want) {
			t.Errorf("cause %s, %s: want %q in\n%s", s.Cause, s.State, row.want, text)
		}
	}
	// It is that of the breaker.
	b := newHarness(t, 1, withoutPager)
	b.call("shop", breaker.RateLimited(0))
	if err := b.rdb.HSet(t.Context(), "tidegate:{shop}:breaker", "learned_since", start.UnixMilli(),
		"learner", `{"pace":{"stage":"holding","slow":5,"length":300,"seen":3}}`).Err(); err != nil {
		t.Fatal(err)
	}
	b.settle()
	if text := string(b.slack.Messages()[0].Blocks); !strings.Contains(text, "; learned limit: about 60 calls per 5 min") {
		t.Errorf("the message is %s", text)
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
		s := shopLimited()
		s.Name, s.Destination = row.name, strings.Split(row.name, "/")[0]
		n := composer{publicURL: row.base}.compose(notice.Opened, &s)
		same(t, fmt.Sprintf("%.40s, %s", row.base, row.name), row.want, n.Link)
		text := string(rendered(t, n, "", false).Blocks)
		if strings.Contains(text, `"actions"`) != (row.want != "") || !strings.Contains(text, `"`+row.want) {
			t.Errorf("%.40s, %s: the button in %s", row.base, row.name, text)
		}
	}
}

// What people read as an alert and what Prometheus fires is one list: an alert of the same condition exists, is as
// urgent, and comes after the same time.
func TestRulesOfPrometheus(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{}
	for _, part := range strings.Split(string(raw), "- alert: ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		of[name] = text
	}
	twins := map[string]string{
		limited: "TidegateBreakerOpenTooLong", byHand: "TidegateBreakerOpenTooLong", tokenRefused: "TidegateBreakerOpenTooLong",
		noToken: "TidegateBreakerOpenTooLong", down: "TidegateBreakerOpenTooLong",
		limitedKeys: "TidegateManyKeysLimited", refusedOfKeys: "TidegateManyKeysLimited",
		redisLost: "TidegateRedisDown", redisBack: "TidegateRedisDown",
		unreached: "TidegateDestinationUnreachable", unservedJobs: "TidegateDestinationUnserved", flows: "TidegateDestinationUnserved",
	}
	for kind := range templates() {
		name, known := twins[kind]
		text := of[name]
		if known == (kind == "common") || known && text == "" {
			t.Errorf("%s: which alert of Prometheus has its condition? %q", kind, name)
		}
		if critical := singles[kind].critical; known && strings.Contains(text, "severity: critical") != critical {
			t.Errorf("%s: critical is %v, otherwise in %s", kind, critical, name)
		}
		if after := fmt.Sprintf("for: %.0fm", DefaultOpenTooLong.Minutes()); known && singles[kind].class == "" && !strings.Contains(text, after) {
			t.Errorf("%s: pages after %s, %s does not", kind, after, name)
		}
	}
}
