package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// AlertOptions are the alerts that cfg asks for. They may be told to nobody; see
// config.Alerts.Enabled.
func AlertOptions(cfg *config.Config, log *slog.Logger) alerts.Options {
	c := cfg.Alerts
	o := alerts.Options{
		SlackToken: c.SlackBotToken.Reveal(), SlackChannel: c.SlackChannel,
		SlackWebhook: c.SlackWebhookURL.Reveal(), SlackAPI: c.SlackAPIURL,
		OpenTooLong: atOnce(c.OpenTooLong), Mention: c.OncallMention,
		PagerDutyKey: c.PagerDutyRoutingKey.Reveal(), PagerDutyAPI: c.PagerDutyAPIURL,
		FailedBurst: c.FailedBurst.Jobs, FailedWithin: c.FailedBurst.Within,
		OldestPending: c.OldestPending,
		PublicURL:     cfg.PublicURL,
		Logger:        log,
	}
	for _, d := range cfg.Destinations {
		o.Destinations = append(o.Destinations, d.Name)
	}
	return o
}

// telling is a worker's part in the alerting; nil is none.
type telling struct{ alerts *alerts.Alerts }

// newTelling prepares the alerting, if somebody is to be told.
func newTelling(cfg *config.Config, rdb redis.UniversalClient, counted *metrics.Metrics, log *slog.Logger, stop *teardown) (*telling, error) {
	if !cfg.Alerts.Enabled() {
		return nil, nil //nolint:nilnil // nil is none
	}
	options := AlertOptions(cfg, log)
	options.Worker = publisher.WorkerName()
	options.OnDelivery = func(d alerts.Delivery) { counted.OnDelivery(d.Receiver, d.Kind, d.Err) }
	a, err := alerts.New(rdb, options)
	if err != nil {
		return nil, fmt.Errorf("app: alerts: %w", err)
	}
	stop.add(func() error { a.Close(); return nil })
	return &telling{a}, nil
}

// observe has the publisher tell what the alerts are about.
func (t *telling) observe(o *publisher.Options) {
	if t == nil {
		return
	}
	o.Observe(publisher.Observer{
		OnAnswer: func(x publisher.Answer) {
			t.alerts.OnAnswer(alerts.Answer{
				At: x.At, Destination: x.Destination, Key: x.Key, Job: x.Job, Status: x.Status, Body: x.Body, RetryAfter: x.RetryAfter,
			})
		},
		OnJob: func(e publisher.JobEvent) {
			if e.Result == publisher.FailedFinal {
				t.alerts.OnJob(alerts.JobEnd{
					Destination: e.Destination, Key: e.Job.Key, Job: e.Job.ID,
					Poison: e.Poison, Crashes: e.Job.Crashes, LastError: e.LastError,
				})
			}
		},
	})
}

// onEvent is told of the transitions of a destination's breakers.
func (t *telling) onEvent(e breaker.Event) {
	if t != nil {
		t.alerts.OnEvent(e)
	}
}

// serve has this worker deliver alerts, and watches until stop is run.
func (t *telling) serve(ctx context.Context, p *publisher.Publisher, stop *teardown) error {
	if t == nil {
		return nil
	}
	err := p.Handle(alerts.Destination, t.alerts,
		publisher.Concurrency(alerts.Concurrency), publisher.Timeout(alerts.Timeout), publisher.Breaker(alerts.BreakerOptions()))
	if err != nil {
		return fmt.Errorf("app: alerts: %w", err)
	}
	stop.background(ctx, func(ctx context.Context) { _ = t.alerts.Run(ctx) })
	return nil
}
