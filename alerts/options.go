package alerts

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Defaults of Options.
const (
	DefaultOpenTooLong  = 15 * time.Minute
	DefaultSlackAPI     = "https://slack.com/api/"
	DefaultPagerDutyAPI = "https://events.pagerduty.com/v2/enqueue"
)

// Options say who is told of what. At least Slack or PagerDuty has to be set.
type Options struct {
	// SlackToken is the bot token (xoxb-…) of a Slack app in SlackChannel, a name
	// ("#publishing") or an id. It needs the scope chat:write; with channels:read a
	// wrong channel is found at the start, with channels:history no message is posted
	// twice even where Slack's answer was lost.
	SlackToken, SlackChannel string
	// SlackWebhook is an incoming webhook of Slack. Through it, messages cannot be
	// updated and have no threads: each step is a short message of its own. With a
	// token, the webhook gets what the token may not post (revoked, channel gone).
	SlackWebhook string
	// SlackAPI is the base of Slack's methods. Default https://slack.com/api/.
	SlackAPI string
	// OpenTooLong is how long a breaker is open before on-call is paged. Default 15
	// minutes; negative: never.
	OpenTooLong time.Duration
	// Mention is who is mentioned by a page in Slack: @name, @here, @channel, @everyone,
	// the id of a user (U…, W…) or of a user group (S…), or any of them in Slack's own
	// form (<@U…>, <!subteam^S…>, <!here>).
	Mention string
	// PagerDutyKey is the routing key of a PagerDuty service (Events API v2).
	PagerDutyKey string
	// PagerDutyAPI is the full URL that its events are posted to. Default
	// https://events.pagerduty.com/v2/enqueue.
	PagerDutyAPI string
	// FailedBurst jobs of one destination that fail within FailedWithin are an alert.
	// 0: they are not.
	FailedBurst  int
	FailedWithin time.Duration
	// OldestPending is how long the job that is next in line may have been waiting
	// before that is an alert. 0: for ever.
	OldestPending time.Duration
	// PublicURL is the base of the links in messages; "": none.
	PublicURL string
	// Destinations are those whose breakers and queues are watched.
	Destinations []string
	// Logger gets what goes wrong with alerting itself. Default slog.Default().
	Logger *slog.Logger
	// Worker names this process. Default: [breaker.ProcessName].
	Worker string
	// OnDelivery, if set, is told of each message, update or event that was sent to
	// people, or could not be. It is called by several goroutines at once and must return
	// quickly.
	OnDelivery func(Delivery)
	// Transport makes the HTTP calls. Default: one of its own.
	Transport http.RoundTripper
}

func (o Options) withDefaults() Options {
	if o.SlackAPI == "" {
		o.SlackAPI = DefaultSlackAPI
	}
	if !strings.HasSuffix(o.SlackAPI, "/") {
		o.SlackAPI += "/"
	}
	if o.PagerDutyAPI == "" {
		o.PagerDutyAPI = DefaultPagerDutyAPI
	}
	if o.OpenTooLong == 0 {
		o.OpenTooLong = DefaultOpenTooLong
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Worker == "" {
		o.Worker = breaker.ProcessName()
	}
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	return o
}

// validate returns all that is wrong, without secrets.
func (o Options) validate() error {
	var errs []error
	if (o.SlackToken == "") != (o.SlackChannel == "") {
		errs = append(errs, errors.New("a Slack token and a Slack channel need each other"))
	}
	if o.SlackToken == "" && o.SlackWebhook == "" && o.PagerDutyKey == "" {
		errs = append(errs, errors.New("nobody to tell: set a Slack token and channel, a Slack webhook or a PagerDuty key"))
	}
	for _, u := range []struct{ what, value string }{
		{"the Slack API", o.SlackAPI}, {"the Slack webhook", o.SlackWebhook}, {"the PagerDuty API", o.PagerDutyAPI},
	} {
		if u.value == "" {
			continue
		}
		parsed, err := url.Parse(u.value)
		if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
			errs = append(errs, fmt.Errorf("the URL of %s is not an absolute http or https URL", u.what))
		}
	}
	if o.FailedBurst < 0 || o.FailedBurst > 0 && o.FailedWithin < time.Second {
		errs = append(errs, errors.New("a burst is one or more failed jobs within at least a second"))
	}
	if o.OldestPending < 0 {
		errs = append(errs, errors.New("the bound of the oldest pending job is negative"))
	}
	return errors.Join(errs...)
}

func (o *Options) slack() bool { return o.SlackToken != "" || o.SlackWebhook != "" }
