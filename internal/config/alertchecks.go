package config

import (
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// checkAlerts checks the variables of alerts and gives their URLs their final
// form.
func (l *loader) checkAlerts(a *alertVars) {
	l.checkSlackToken(*a)
	l.checkWebhook(*a)
	l.checkReceiver("SLACK_API_URL", string(a.SlackAPIURL), "https://slack.com/api/", a.SlackBotToken)
	l.checkReceiver("PAGERDUTY_API_URL", string(a.PagerDutyAPIURL), "https://events.pagerduty.com/v2/enqueue", a.PagerDutyRoutingKey)
	if u, err := url.Parse(string(a.SlackAPIURL)); err == nil && l.found.ok("SLACK_API_URL") {
		if u.RawQuery != "" || u.ForceQuery {
			l.found.fail("SLACK_API_URL", "take it out: names of methods are added to the address", "has a query (?…)")
		} else if !strings.HasSuffix(string(a.SlackAPIURL), "/") {
			a.SlackAPIURL += "/"
		}
	}
	if key := a.PagerDutyRoutingKey.Reveal(); key != "" && l.found.ok("PAGERDUTY_ROUTING_KEY") && !routingKey.MatchString(key) {
		l.found.warn("PAGERDUTY_ROUTING_KEY", "is not 32 letters and digits as the keys of PagerDuty are; "+
			"use the integration key of an Events API v2 integration")
	}
	l.warnNobody(*a)
}

// routingKey is the form of PagerDuty's integration keys.
var routingKey = regexp.MustCompile(`^[A-Za-z0-9]{32}$`)

// slackTokens are the tokens of Slack that are no bot tokens, by their start.
var slackTokens = []struct{ prefix, kind string }{
	{"xoxp-", "is the token of a user"},
	{"xoxe.xoxp-", "is the token of a user"},
	{"xoxe-", "is a refresh token"},
	{"xoxa-", "is the token of a workspace app of old"},
	{"xapp-", "is an app-level token"},
	{"http", "looks like a URL"},
}

// checkSlackToken checks the bot token and what goes with it. Tokens of an unknown
// form are only warned of: whether one works is for Slack to say.
func (l *loader) checkSlackToken(a alertVars) {
	const name, channel = "SLACK_BOT_TOKEN", "SLACK_CHANNEL"
	if !l.found.ok(name) {
		return
	}
	if a.SlackBotToken == "" {
		if a.SlackChannel != "" {
			fix := "set it to the bot token of your Slack app (xoxb-…), or take " + channel + " out"
			if a.SlackWebhookURL != "" {
				fix += ": a webhook posts to its own channel"
			}
			l.found.fail(name, fix, "is not set, but %s is", channel)
		}
		return
	}
	l.checkToken(name, a.SlackBotToken.Reveal())
	if a.SlackChannel == "" && l.found.ok(channel) {
		l.found.fail(channel, "set it to the channel for alerts, such as #publishing", "is not set, but %s is", name)
	}
	if value := a.SlackBotToken.Reveal(); l.found.ok(name) && !strings.HasPrefix(value, "xoxb-") && !strings.HasPrefix(value, "xoxe.xoxb-") {
		kind := "does not look like a bot token"
		for _, t := range slackTokens {
			if strings.HasPrefix(value, t.prefix) {
				kind = t.kind
				break
			}
		}
		l.found.warn(name, "%s; alerts need a bot token, which starts with xoxb-: "+
			"the Bot User OAuth Token under OAuth & Permissions of your Slack app", kind)
	}
}

// checkWebhook shows nothing of the URL: whoever has it can post.
func (l *loader) checkWebhook(a alertVars) {
	const name = "SLACK_WEBHOOK_URL"
	raw := a.SlackWebhookURL.Reveal()
	if raw == "" || !l.found.ok(name) {
		return
	}
	l.checkReceiver(name, raw, "https://hooks.slack.com/services/…", a.SlackWebhookURL)
}

// checkAddress is checkURL, and refuses what a copied URL may have at its ends.
func checkAddress(raw, like string) (problem, fix string) {
	if strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "holds a space, a line break or another control character", "give the URL alone, on one line"
	}
	return checkURL(raw, like)
}

// checkReceiver checks a URL that is sent a secret.
func (l *loader) checkReceiver(name, raw, like string, secret Secret) {
	if !l.found.ok(name) {
		return
	}
	if problem, fix := checkAddress(raw, like); problem != "" {
		l.found.fail(name, fix, "%s", problem)
		return
	}
	if u, err := url.Parse(raw); err == nil && u.Scheme == "http" && secret != "" && !loopback(u.Hostname()) {
		l.found.warn(name, "is http: what is sent there, a secret among it, is not encrypted; use https")
	}
}

// warnNobody warns of alerts that are asked for without anyone to get them.
func (l *loader) warnNobody(a alertVars) {
	const slack, pagerDuty = "SLACK_BOT_TOKEN and SLACK_CHANNEL, or SLACK_WEBHOOK_URL", "PAGERDUTY_ROUTING_KEY"
	if !l.found.ok("SLACK_BOT_TOKEN", "SLACK_CHANNEL", "SLACK_WEBHOOK_URL", "PAGERDUTY_ROUTING_KEY") {
		return
	}
	alerts := a.alerts()
	if alerts.OncallMention != "" && alerts.PagerDutyRoutingKey != "" && !alerts.slack() {
		l.found.warn("ALERT_ONCALL_MENTION", "is set, but no message of Slack can mention anyone; set %s", slack)
	}
	if alerts.Enabled() {
		return
	}
	for _, bound := range []struct {
		name string
		on   bool
	}{
		{"ALERT_FAILED_BURST", alerts.FailedBurst != Burst{}},
		{"ALERT_OLDEST_PENDING", alerts.OldestPending > 0},
		{"ALERT_ONCALL_MENTION", alerts.OncallMention != ""},
		{"ALERT_OPEN_TOO_LONG", alerts.OpenTooLong > 0},
	} {
		if bound.on && l.env.set(bound.name) {
			l.found.warn(bound.name, "is set, but nobody would get the alert; set %s, or %s", slack, pagerDuty)
		}
	}
}

// checkPublicURL checks the base of links and takes the slash from its end.
func (l *loader) checkPublicURL(a *apiVars) {
	const name = "PUBLIC_URL"
	if a.PublicURL == "" || !l.found.ok(name) {
		return
	}
	raw := string(a.PublicURL)
	problem, fix := checkAddress(raw, "https://tidegate.example.com")
	if problem == "" && strings.Contains(raw, "?") {
		problem, fix = "has a query (?…)", "take it out: paths are added to the address"
	}
	if problem != "" {
		l.found.fail(name, fix, "%s", problem)
		return
	}
	a.PublicURL = urlText(strings.TrimRight(raw, "/"))
}
