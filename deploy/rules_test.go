package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	rulesFile = "prometheus/rules.yml"
	runbook   = "https://github.com/tidegate/tidegate/blob/main/docs/runbook.md#"
)

type rule struct {
	Record        string
	Alert         string
	Expr          string
	For           string
	KeepFiringFor string `yaml:"keep_firing_for"`
	Labels        map[string]string
	Annotations   map[string]string
}

// rules reads the rules and the names of what they record.
func rules(t *testing.T) (alerts []rule, recorded map[string]bool, all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	parse(t, rulesFile, &file, true)
	recorded = make(map[string]bool)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all = append(all, r)
			if r.Record != "" {
				recorded[r.Record] = true
			} else {
				alerts = append(alerts, r)
			}
		}
	}
	return alerts, recorded, all
}

func TestRulesAskForWhatIsThere(t *testing.T) {
	t.Parallel()
	_, recorded, all := rules(t)
	for _, r := range all {
		checkQuery(t, rulesFile+": "+r.Alert+r.Record, r.Expr, recorded)
	}
}

// commands are the verbs of tidegate that change nothing or are safe to name in an alert.
var commands = []string{
	"breaker get", "breaker incidents", "breaker list", "list", "stats", "queue resume", "alerts test", "config check", "doctor",
}

func TestAlertsNameACommand(t *testing.T) {
	t.Parallel()
	headings := anchors(string(read(t, "../docs/runbook.md")))
	named := regexp.MustCompile(`: tidegate ([a-z]+(?: [a-z]+)?)`)
	alerts, _, _ := rules(t)
	if len(alerts) < 16 {
		t.Errorf("%d alerts, want 16 or more", len(alerts))
	}
	for _, a := range alerts {
		if d, err := time.ParseDuration(a.For); err != nil || d < time.Minute {
			t.Errorf("%s: for is %q, want a minute or more", a.Alert, a.For)
		}
		if s := a.Labels["severity"]; !slices.Contains([]string{"info", "warning", "critical"}, s) {
			t.Errorf("%s: severity is %q", a.Alert, s)
		}
		if a.Annotations["summary"] == "" {
			t.Errorf("%s: no summary", a.Alert)
		}
		m := named.FindStringSubmatch(a.Annotations["description"])
		if m == nil || !slices.ContainsFunc(commands, func(c string) bool { return m[1] == c || strings.HasPrefix(m[1], c+" ") }) {
			t.Errorf("%s: the description names no command of tidegate that is known: %q", a.Alert, a.Annotations["description"])
		}
		anchor := strings.ToLower(a.Alert)
		if got := a.Annotations["runbook_url"]; got != runbook+anchor {
			t.Errorf("%s: runbook_url is %q, want %s", a.Alert, got, runbook+anchor)
		}
		if !headings[anchor] {
			t.Errorf("%s: docs/runbook.md has no such section", a.Alert)
		}
	}
}

// anchors are the fragments of a document's headings, as GitHub makes them.
func anchors(markdown string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(markdown) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = strings.ToLower(strings.TrimSpace(title))
			found[strings.ReplaceAll(strings.Trim(title, "`"), " ", "-")] = true
		}
	}
	return found
}

func TestAlertsAreTestedOnBothSides(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `yaml:"alertname"`
				Want  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	parse(t, "prometheus/rules_test.yml", &file, false)
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Want) > 0 {
				fires[c.Alert] = true
			} else {
				silent[c.Alert] = true
			}
		}
	}
	alerts, _, _ := rules(t)
	for _, a := range alerts {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: prometheus/rules_test.yml has a case where it fires: %v, where it does not: %v", a.Alert, fires[a.Alert], silent[a.Alert])
		}
		delete(fires, a.Alert)
		delete(silent, a.Alert)
	}
	for name := range fires {
		t.Errorf("prometheus/rules_test.yml: there is no alert called %s", name)
	}
	for name := range silent {
		t.Errorf("prometheus/rules_test.yml: there is no alert called %s", name)
	}
}

// A breaker also opens because of an outage, refused tokens or a learned limit: no rule that looks at its
// state alone says that it is rate limited.
func TestRulesDoNotCallEveryBreakerRateLimited(t *testing.T) {
	t.Parallel()
	alerts, _, _ := rules(t)
	for _, r := range alerts {
		if strings.Contains(r.Expr, "circuit_breaker") && strings.Contains(r.Annotations["summary"], "rate limited") {
			t.Errorf("%s: summary %q", r.Alert, r.Annotations["summary"])
		}
	}
}
