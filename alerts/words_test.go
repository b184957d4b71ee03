package alerts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/alerts/notice"
)

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
		blockedKeys: "TidegateJobsFailing",
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
