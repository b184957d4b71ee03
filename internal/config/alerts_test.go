package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAlertErrors(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	const (
		channel  = `SLACK_CHANNEL: %s is not the name or id of a channel; use the name or the id of a channel, such as #publishing or C0123ABCD`
		mention  = `ALERT_ONCALL_MENTION: %s is not a mention; use a mention, such as @oncall, @here, <!subteam^S0123ABCD> or the id of a person or user group`
		burst    = "; use off or failed jobs in a time from 1s to 24h, such as 50/5m"
		duration = ", such as 30s, 5m, 24h or 7d"
	)
	said := func(form, value string) []string { return []string{strings.Replace(form, "%s", quote(value), 1)} }
	bot := func(more ...string) []string {
		return append([]string{"SLACK_BOT_TOKEN=xoxb-hunter2", "SLACK_CHANNEL=#ops"}, more...)
	}
	tests := []struct {
		name    string
		environ []string
		want    []string
	}{
		{
			"token without channel",
			[]string{"SLACK_BOT_TOKEN=xoxb-hunter2"},
			[]string{"SLACK_CHANNEL: is not set, but SLACK_BOT_TOKEN is; set it to the channel for alerts, such as #publishing"},
		},
		{
			"channel without token",
			[]string{"SLACK_CHANNEL=#ops"},
			[]string{"SLACK_BOT_TOKEN: is not set, but SLACK_CHANNEL is; set it to the bot token of your Slack app (xoxb-…), or take SLACK_CHANNEL out"},
		},
		{
			"channel with a webhook",
			[]string{"SLACK_CHANNEL=#ops", "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/hunter2"},
			[]string{"SLACK_BOT_TOKEN: is not set, but SLACK_CHANNEL is; set it to the bot token of your Slack app (xoxb-…), or take SLACK_CHANNEL out: a webhook posts to its own channel"},
		},
		{
			"token unreadable, channel set, told once",
			[]string{"SLACK_BOT_TOKEN_FILE=" + missing, "SLACK_CHANNEL=#ops", "ALERT_OLDEST_PENDING=1h"},
			[]string{`SLACK_BOT_TOKEN_FILE: cannot read file "` + missing + `": no such file or directory; check the file and its permissions`},
		},
		{
			"channel wrong, told once",
			[]string{"SLACK_BOT_TOKEN=xoxb-hunter2", "SLACK_CHANNEL=the ops"},
			said(channel, "the ops"),
		},
		{
			"token with a line break",
			[]string{"SLACK_BOT_TOKEN=xoxb-hunter2\nX", "SLACK_CHANNEL=#ops"},
			[]string{"SLACK_BOT_TOKEN: holds a space, a line break or a character that is not ASCII; give the token alone, on one line"},
		},
		{
			"token with a control character, and no channel",
			[]string{"SLACK_BOT_TOKEN=xoxb-hunter2\x1b"},
			[]string{
				"SLACK_BOT_TOKEN: holds a space, a line break or a character that is not ASCII; give the token alone, on one line",
				"SLACK_CHANNEL: is not set, but SLACK_BOT_TOKEN is; set it to the channel for alerts, such as #publishing",
			},
		},
		{
			"webhook without scheme",
			[]string{"SLACK_WEBHOOK_URL=hooks.slack.com/services/hunter2"},
			[]string{"SLACK_WEBHOOK_URL: does not start with http:// or https://; write it like https://hooks.slack.com/services/…"},
		},
		{
			"webhook without host",
			[]string{"SLACK_WEBHOOK_URL=https:///services/hunter2"},
			[]string{"SLACK_WEBHOOK_URL: has no host; write it like https://hooks.slack.com/services/…"},
		},
		{
			"webhook with a space",
			[]string{"SLACK_WEBHOOK_URL= https://hooks.slack.com/services/hunter2"},
			[]string{"SLACK_WEBHOOK_URL: holds a space, a line break or another control character; give the URL alone, on one line"},
		},
		{
			"webhook unreadable",
			[]string{"SLACK_WEBHOOK_URL=https://hooks.slack.com:hunter2/services"},
			[]string{"SLACK_WEBHOOK_URL: is not a URL; write it like https://hooks.slack.com/services/…, with special characters percent-encoded"},
		},
		{"addresses", bot("SLACK_API_URL=slack.com/api/", "PAGERDUTY_API_URL=/v2/enqueue", "PUBLIC_URL=ftp://hunter2.example"), []string{
			"PAGERDUTY_API_URL: does not start with http:// or https://; write it like https://events.pagerduty.com/v2/enqueue",
			"PUBLIC_URL: does not start with http:// or https://; write it like https://tidegate.example.com",
			"SLACK_API_URL: does not start with http:// or https://; write it like https://slack.com/api/",
		}},
		{"addresses with users", bot("SLACK_API_URL=https://me:hunter2@h/api/", "PAGERDUTY_API_URL=https://hunter2@h/", "PUBLIC_URL=https://hunter2@h"), []string{
			"PAGERDUTY_API_URL: holds a user or password; take it out",
			"PUBLIC_URL: holds a user or password; take it out",
			"SLACK_API_URL: holds a user or password; take it out",
		}},
		{"addresses with queries and fragments", bot("SLACK_API_URL=https://h/api/?hunter2", "PAGERDUTY_API_URL=https://h/#hunter2", "PUBLIC_URL=https://h/?hunter2"), []string{
			"PAGERDUTY_API_URL: has a fragment (#…), which is never sent; take it out",
			"PUBLIC_URL: has a query (?…); take it out: paths are added to the address",
			"SLACK_API_URL: has a query (?…); take it out: names of methods are added to the address",
		}},
		{"empty query", []string{"SLACK_API_URL=https://h/api/?", "PUBLIC_URL=https://h?"}, []string{
			"PUBLIC_URL: has a query (?…); take it out: paths are added to the address",
			"SLACK_API_URL: has a query (?…); take it out: names of methods are added to the address",
		}},
		{"fragment in a link", []string{"PUBLIC_URL=https://h/#/jobs"}, []string{"PUBLIC_URL: has a fragment (#…), which is never sent; take it out"}},
		{"channel in capitals", bot("SLACK_CHANNEL=#Ops"), []string{`SLACK_CHANNEL: "#Ops" is not the name or id of a channel; write its name in lower case: #ops`}},
		{"channel that is no id", bot("SLACK_CHANNEL=GENERAL"), []string{`SLACK_CHANNEL: "GENERAL" is not the name or id of a channel; write its name in lower case: general`}},
		{"channel with a dot", bot("SLACK_CHANNEL=#ops.eu"), said(channel, "#ops.eu")},
		{"channel of a person", bot("SLACK_CHANNEL=@alice"), said(channel, "@alice")},
		{"channel of nothing", bot("SLACK_CHANNEL=#"), said(channel, "#")},
		{"channel in quotes", bot(`SLACK_CHANNEL="#ops"`), said(channel, `"#ops"`)},
		{"channel too long", bot("SLACK_CHANNEL=" + strings.Repeat("x", 81)), said(channel, strings.Repeat("x", 81))},
		{"mention without @", bot("ALERT_ONCALL_MENTION=oncall"), []string{`ALERT_ONCALL_MENTION: "oncall" is not a mention; write @oncall, or the id of a person or user group`}},
		{"mention in capitals", bot("ALERT_ONCALL_MENTION=SRE"), []string{`ALERT_ONCALL_MENTION: "SRE" is not a mention; write @SRE, or the id of a person or user group`}},
		{"mention of two", bot("ALERT_ONCALL_MENTION=@a @b"), said(mention, "@a @b")},
		{"mention with markup", bot("ALERT_ONCALL_MENTION=<https://h|x>"), said(mention, "<https://h|x>")},
		{"mention of a channel", bot("ALERT_ONCALL_MENTION=<#C0123ABCD>"), said(mention, "<#C0123ABCD>")},
		{"mention left open", bot("ALERT_ONCALL_MENTION=<!here"), said(mention, "<!here")},
		{"open too long", bot("ALERT_OPEN_TOO_LONG=-1m"), []string{`ALERT_OPEN_TOO_LONG: "-1m" is too small; use off or a duration, 0s or more` + duration}},
		{"open too long without unit", bot("ALERT_OPEN_TOO_LONG=15"), []string{`ALERT_OPEN_TOO_LONG: "15" has no unit; use off or a duration, 0s or more` + duration}},
		{"open too long in words", bot("ALERT_OPEN_TOO_LONG=never"), []string{`ALERT_OPEN_TOO_LONG: "never" is not a duration; use off or a duration, 0s or more` + duration}},
		{"oldest pending", bot("ALERT_OLDEST_PENDING=999ms"), []string{`ALERT_OLDEST_PENDING: "999ms" is too small; use off or a duration, 1s or more` + duration}},
		{"burst of nothing", bot("ALERT_FAILED_BURST=0/5m"), []string{`ALERT_FAILED_BURST: "0/5m" is not a number of jobs in a time` + burst}},
		{"burst without time", bot("ALERT_FAILED_BURST=50"), []string{`ALERT_FAILED_BURST: "50" is not a number of jobs in a time` + burst}},
		{"burst in too short a time", bot("ALERT_FAILED_BURST=50/999ms"), []string{`ALERT_FAILED_BURST: "50/999ms" counts over too short a time` + burst}},
		{"burst in too long a time", bot("ALERT_FAILED_BURST=50/24h1s"), []string{`ALERT_FAILED_BURST: "50/24h1s" counts over too long a time` + burst}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, warnings, err := Load(tt.environ)
			if cfg != nil || err == nil {
				t.Fatalf("Load returned %v, %v", cfg, err)
			}
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := err.Error() + strings.Join(texts(warnings), "\n"); strings.Contains(text, "hunter2") {
				t.Errorf("shows a secret: %s", text)
			}
		})
	}
}

func TestAlertWarnings(t *testing.T) {
	t.Parallel()
	const (
		wanted     = "; alerts need a bot token, which starts with xoxb-: the Bot User OAuth Token under OAuth & Permissions of your Slack app"
		noReceiver = ": is set, but alerts have no receiver; set SLACK_BOT_TOKEN and SLACK_CHANNEL, or SLACK_WEBHOOK_URL, or PAGERDUTY_ROUTING_KEY"
		inClear    = ": is http: what is sent there, a secret among it, is not encrypted; use https"
		goodKey    = "PAGERDUTY_ROUTING_KEY=0123456789abcdef0123456789abcdef"
		webhook    = "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/hunter2"
		noSlack    = "ALERT_ONCALL_MENTION: is set, but no message of Slack can mention anyone; set SLACK_BOT_TOKEN and SLACK_CHANNEL, or SLACK_WEBHOOK_URL"
	)
	token := func(value string) []string { return []string{"SLACK_CHANNEL=#ops", "SLACK_BOT_TOKEN=" + value} }
	bounds := []string{"ALERT_FAILED_BURST=50/5m", "ALERT_OLDEST_PENDING=1h", "ALERT_ONCALL_MENTION=@oncall", "ALERT_OPEN_TOO_LONG=15m"}
	tests := []struct {
		name    string
		environ []string
		want    []string
	}{
		{"bot token", token("xoxb-hunter2"), nil},
		{"bot token that is renewed", token("xoxe.xoxb-hunter2"), nil},
		{"token of a user", token("xoxp-hunter2"), []string{"SLACK_BOT_TOKEN: is the token of a user" + wanted}},
		{"token of a user that is renewed", token("xoxe.xoxp-hunter2"), []string{"SLACK_BOT_TOKEN: is the token of a user" + wanted}},
		{"token of a workspace app", token("xoxa-hunter2"), []string{"SLACK_BOT_TOKEN: is the token of a workspace app of old" + wanted}},
		{"token of an app", token("xapp-hunter2"), []string{"SLACK_BOT_TOKEN: is an app-level token" + wanted}},
		{"refresh token", token("xoxe-hunter2"), []string{"SLACK_BOT_TOKEN: is a refresh token" + wanted}},
		{"webhook for a token", token("https://hooks.slack.com/services/hunter2"), []string{"SLACK_BOT_TOKEN: looks like a URL" + wanted}},
		{"another token", token("hunter2"), []string{"SLACK_BOT_TOKEN: does not look like a bot token" + wanted}},
		{"token and webhook", append(token("xoxb-hunter2"), webhook), nil},
		{"routing key", []string{goodKey}, nil},
		{"another routing key", []string{"PAGERDUTY_ROUTING_KEY=hunter2"}, []string{
			"PAGERDUTY_ROUTING_KEY: is not 32 letters and digits as the keys of PagerDuty are; use the integration key of an Events API v2 integration",
		}},
		{"nobody", bounds, []string{
			"ALERT_FAILED_BURST" + noReceiver, "ALERT_OLDEST_PENDING" + noReceiver, "ALERT_ONCALL_MENTION" + noReceiver, "ALERT_OPEN_TOO_LONG" + noReceiver,
		}},
		{"nobody, and nothing asked for", []string{
			"ALERT_FAILED_BURST=off", "ALERT_OLDEST_PENDING=0", "ALERT_ONCALL_MENTION=", "ALERT_OPEN_TOO_LONG=off", "PUBLIC_URL=https://h",
		}, nil},
		{"somebody by webhook", append([]string{webhook}, bounds...), nil},
		{"somebody by token", append(token("xoxb-hunter2"), bounds...), nil},
		{"somebody by PagerDuty", append([]string{goodKey}, bounds...), []string{noSlack}},
		{
			"in the clear",
			append(token("xoxb-hunter2"), goodKey, "SLACK_API_URL=http://slack.example/", "PAGERDUTY_API_URL=http://pd.example/", "SLACK_WEBHOOK_URL=http://slack.example/hunter2"),
			[]string{"PAGERDUTY_API_URL" + inClear, "SLACK_API_URL" + inClear, "SLACK_WEBHOOK_URL" + inClear},
		},
		{
			"in the clear, but near or without a secret",
			append(token("xoxb-hunter2"), "SLACK_API_URL=http://localhost:1/", "PAGERDUTY_API_URL=http://pd.example/", "SLACK_WEBHOOK_URL=http://[::1]/hunter2"), nil,
		},
		{
			"names nearly right",
			[]string{"SLACK_CHANEL=#ops", "SLACK_TOKEN=hunter2", "PAGER_DUTY_ROUTING_KEY=hunter2"},
			[]string{
				"PAGER_DUTY_ROUTING_KEY: is not a variable of Tidegate; did you mean PAGERDUTY_ROUTING_KEY?",
				"SLACK_CHANEL: is not a variable of Tidegate; did you mean SLACK_CHANNEL?",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, warnings := load(t, tt.environ...)
			if diff := cmp.Diff(tt.want, warnings); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

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
	for s, want := range map[string]Burst{
		"1/1s": {1, time.Second}, "50/5m": {50, 5 * time.Minute}, "1000/24h": {1000, 24 * time.Hour}, "7/1d": {7, 24 * time.Hour},
		"20/1h30m": {20, 90 * time.Minute}, " off ": {}, "OFF": {}, "": {},
	} {
		if got := get(t, "ALERT_FAILED_BURST", s).Alerts.FailedBurst; got != want {
			t.Errorf("ALERT_FAILED_BURST=%s is read as %+v, want %+v", s, got, want)
		}
	}
	for s, want := range map[string]time.Duration{
		"off": 0, "Off": 0, "0": 0, "0s": 0, "1s": time.Second, "90s": 90 * time.Second, "7d": 168 * time.Hour, "2w": 336 * time.Hour,
	} {
		for _, name := range []string{"ALERT_OPEN_TOO_LONG", "ALERT_OLDEST_PENDING"} {
			a := get(t, name, s).Alerts
			got := map[string]time.Duration{"ALERT_OPEN_TOO_LONG": time.Duration(a.OpenTooLong), "ALERT_OLDEST_PENDING": time.Duration(a.OldestPending)}[name]
			if got != want {
				t.Errorf("%s=%s is read as %v, want %v", name, s, got, want)
			}
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
		{"bounds alone", Alerts{OpenTooLong: OffDuration(time.Minute), FailedBurst: Burst{1, time.Second}, OncallMention: "@a"}, false},
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
	f.Add("#ops", "@oncall", "50/5m", "15m", "https://h/")
	f.Add("C0123ABCD", "<!subteam^S1>", "off", "off", "https://h/?a=b")
	f.Fuzz(func(t *testing.T, channel, mention, burst, duration, url string) {
		environ := []string{
			"SLACK_BOT_TOKEN=xoxb-1", "SLACK_CHANNEL=" + channel, "ALERT_ONCALL_MENTION=" + mention, "ALERT_FAILED_BURST=" + burst,
			"ALERT_OLDEST_PENDING=" + duration, "ALERT_OPEN_TOO_LONG=" + duration, "SLACK_API_URL=" + url, "PUBLIC_URL=" + url,
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
			strings.HasSuffix(cfg.API.PublicURL, "/") || a.OpenTooLong < 0 || (a.OldestPending != 0 && time.Duration(a.OldestPending) < time.Second) {
			t.Fatalf("Load(%q) = %+v, %s", environ, a, cfg.API.PublicURL)
		}
	})
}
