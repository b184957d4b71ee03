package config

import (
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Alerts says who is told of what. Without a receiver nobody is told of anything,
// see [Alerts.Enabled].
type Alerts struct {
	// SlackBotToken posts to SlackChannel; both are set or none is.
	SlackBotToken Secret
	// SlackChannel is a name, with # or without, or an id.
	SlackChannel string
	// SlackWebhookURL is absolute, http or https; empty for none. Beside a bot
	// token it is for what the token could not deliver.
	SlackWebhookURL Secret
	// SlackAPIURL is absolute, http or https, and ends in a slash. The default is
	// https://slack.com/api/.
	SlackAPIURL string
	// OpenTooLong is the time after which an open breaker pages on-call, 15 minutes
	// unless set; 0 never pages.
	OpenTooLong time.Duration
	// OncallMention is whom a page mentions in Slack: @name, @here, @channel,
	// @everyone, an id that starts with U, W or S, or Slack's own form of one of
	// these, in angle brackets. Empty for nobody.
	OncallMention string
	// PagerDutyRoutingKey names the service that is paged, empty for none.
	PagerDutyRoutingKey Secret
	// PagerDutyAPIURL is absolute, http or https. The default is
	// https://events.pagerduty.com/v2/enqueue.
	PagerDutyAPIURL string
	// FailedBurst is the number of failed jobs that is worth an alert.
	FailedBurst Burst
	// OldestPending is the age of the oldest pending job that is worth an alert, 1
	// second or more; 0 is off.
	OldestPending time.Duration
}

// Enabled reports whether there is anyone to tell: Slack (bot token and channel,
// or a webhook) or PagerDuty.
func (a Alerts) Enabled() bool { return a.slack() || a.PagerDutyRoutingKey != "" }

func (a Alerts) slack() bool {
	return (a.SlackBotToken != "" && a.SlackChannel != "") || a.SlackWebhookURL != ""
}

// Burst is a number of jobs within a time; the zero Burst is off.
type Burst struct {
	// Jobs is 1 or more.
	Jobs int
	// Within is 1 second to 24 hours.
	Within time.Duration
}

func (a alertVars) alerts() Alerts {
	return Alerts{
		SlackBotToken:       a.SlackBotToken,
		SlackChannel:        string(a.SlackChannel),
		SlackWebhookURL:     a.SlackWebhookURL,
		SlackAPIURL:         string(a.SlackAPIURL),
		OpenTooLong:         time.Duration(a.OpenTooLong),
		OncallMention:       string(a.OncallMention),
		PagerDutyRoutingKey: a.PagerDutyRoutingKey,
		PagerDutyAPIURL:     string(a.PagerDutyAPIURL),
		FailedBurst:         a.FailedBurst.burst(),
		OldestPending:       time.Duration(a.OldestPending),
	}
}

func (b burstText) burst() Burst {
	if b == off || b == "" {
		return Burst{}
	}
	r, err := breaker.ParseRate(string(b))
	if err != nil {
		panic("config: " + err.Error()) // it was written by its String
	}
	return Burst{Jobs: r.Calls, Within: r.Per}
}
