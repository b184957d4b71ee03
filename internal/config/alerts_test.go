package config

import (
	"strings"
	"testing"
	"time"
)

// TestAlertForms reads every form that a value may have.
func TestAlertForms(t *testing.T) {
	t.Parallel()
	slack := []string{"SLACK_BOT_TOKEN=xoxb-1", "SLACK_CHANNEL=ops"}
	get := func(t *testing.T, name, value string) *Config {
		t.Helper()
		cfg, warnings := load(t, append(slack[:2:2], name+"="+value)...)
		if warnings != nil {
			t.Errorf("%s=%s warns: %q", name, value, warnings)
		}
		return cfg
	}
	for _, s := range []string{"#ops", "ops", "ops-eu_2", "#1", "équipe", "運用", strings.Repeat("x", 80), "C0123ABCD", "G012", "D1", "CABCDEFGH"} {
		if got := get(t, "SLACK_CHANNEL", s).Alerts.SlackChannel; got != s {
			t.Errorf("SLACK_CHANNEL=%s is read as %q", s, got)
		}
	}
	for _, s := range []string{
		"@oncall", "@here", "@channel", "@everyone", "@Jo.doe-2_x", "<@U0123ABCD>", "<@W0123ABCD>", "<!subteam^S0123ABCD>",
		"<!here>", "<!channel>", "<!everyone>", "U0123ABCD", "W012", "S1", "UABCDEFGH",
	} {
		if got := get(t, "ALERT_ONCALL_MENTION", s).Alerts.OncallMention; got != s {
			t.Errorf("ALERT_ONCALL_MENTION=%s is read as %q", s, got)
		}
	}
	for s, want := range map[string]time.Duration{
		"off": 0, "Off": 0, "0": 0, "0s": 0, "1s": time.Second, "90s": 90 * time.Second, "7d": 168 * time.Hour, "2w": 336 * time.Hour,
	} {
		if got := time.Duration(get(t, "ALERT_OPEN_TOO_LONG", s).Alerts.OpenTooLong); got != want {
			t.Errorf("ALERT_OPEN_TOO_LONG=%s is read as %v, want %v", s, got, want)
		}
	}
	for s, want := range map[string]string{
		"https://slack.com/api/": "https://slack.com/api/", "http://127.0.0.1:1": "http://127.0.0.1:1/", "": "https://slack.com/api/",
	} {
		if got := get(t, "SLACK_API_URL", s).Alerts.SlackAPIURL; got != want {
			t.Errorf("SLACK_API_URL=%s is read as %s, want %s", s, got, want)
		}
	}
	for s, want := range map[string]string{
		"https://h": "https://h", "http://h/": "http://h", "https://h:8443/a/b///": "https://h:8443/a/b", "": "",
	} {
		if got := get(t, "PUBLIC_URL", s).API.PublicURL; got != want {
			t.Errorf("PUBLIC_URL=%s is read as %s, want %s", s, got, want)
		}
	}
}

func TestAlertsEnabled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		alerts Alerts
		want   bool
	}{
		{"nothing", Alerts{}, false},
		{"bounds alone", Alerts{OpenTooLong: OffDuration(time.Minute), OncallMention: "@a"}, false},
		{"token alone", Alerts{SlackBotToken: "t"}, false},
		{"channel alone", Alerts{SlackChannel: "c"}, false},
		{"token and channel", Alerts{SlackBotToken: "t", SlackChannel: "c"}, true},
		{"webhook", Alerts{SlackWebhookURL: "u"}, true},
		{"PagerDuty", Alerts{PagerDutyRoutingKey: "k"}, true},
	} {
		if got := tt.alerts.Enabled(); got != tt.want {
			t.Errorf("%s: Enabled() = %t", tt.name, got)
		}
	}
}

func FuzzAlerts(f *testing.F) {
	f.Add("#ops", "@oncall", "15m", "https://h/")
	f.Add("C0123ABCD", "<!subteam^S1>", "off", "https://h/?a=b")
	f.Fuzz(func(t *testing.T, channel, mention, duration, url string) {
		environ := []string{
			"SLACK_BOT_TOKEN=xoxb-1", "SLACK_CHANNEL=" + channel, "ALERT_ONCALL_MENTION=" + mention,
			"ALERT_OPEN_TOO_LONG=" + duration, "SLACK_API_URL=" + url, "PUBLIC_URL=" + url,
		}
		cfg, _, err := Load(environ)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\x00\x1b") {
				t.Fatalf("error holds control characters: %q", err)
			}
			return
		}
		a := cfg.Alerts
		if strings.ContainsAny(a.SlackChannel+a.OncallMention, " \t\r\n\x00\x1b") || !strings.HasSuffix(a.SlackAPIURL, "/") ||
			strings.HasSuffix(cfg.API.PublicURL, "/") || a.OpenTooLong < 0 {
			t.Fatalf("Load(%q) = %+v, %s", environ, a, cfg.API.PublicURL)
		}
	})
}
