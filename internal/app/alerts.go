package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/alerts/pagerduty"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/metrics"
)

// AlertOptions are the alerts that cfg asks for. Without a notifier there are none: see
// config.Alerts.Enabled. observe, which may be nil, observes what is delivered.
func AlertOptions(cfg *config.Config, observe notice.Observer, log *slog.Logger) (alerts.Options, error) {
	c := cfg.Alerts
	o := alerts.Options{
		OpenTooLong: explicit(time.Duration(c.OpenTooLong)), PublicURL: cfg.API.PublicURL, Namespace: cfg.RedisNamespace, Logger: log,
	}
	for _, d := range cfg.Destinations {
		o.Destinations = append(o.Destinations, d.Name)
	}
	var errs []error
	register := func(n notice.Notifier, err error) {
		o.Notifiers = append(o.Notifiers, n)
		errs = append(errs, err)
	}
	// A notifier is registered here.
	if token, webhook := c.SlackBotToken.Reveal(), c.SlackWebhookURL.Reveal(); token != "" || webhook != "" {
		register(slack.New(slack.Options{
			Token: token, Channel: c.SlackChannel, Webhook: webhook, API: c.SlackAPIURL, Mention: c.OncallMention, OnDelivery: observe,
		}))
	}
	if key := c.PagerDutyRoutingKey.Reveal(); key != "" {
		register(pagerduty.New(pagerduty.Options{Key: key, API: c.PagerDutyAPIURL, PublicURL: cfg.API.PublicURL, OnDelivery: observe}))
	}
	return o, errors.Join(errs...)
}

// alerting is a worker's part in alerting; nil is none.
type alerting struct{ *alerts.Alerts }

// newAlerting prepares alerting, if the configuration names a notifier.
func newAlerting(cfg *config.Config, rdb redis.UniversalClient, counted *metrics.Metrics, log *slog.Logger, stop *teardown) (*alerting, error) {
	if !cfg.Alerts.Enabled() {
		return nil, nil //nolint:nilnil // nil is none
	}
	options, err := AlertOptions(cfg, func(d notice.Delivery) { counted.OnDelivery(d.Receiver, d.Kind, d.Err) }, log)
	if err != nil {
		return nil, fmt.Errorf("app: alerts: %w", err)
	}
	options.Worker = breaker.ProcessName()
	a, err := alerts.New(rdb, options)
	if err != nil {
		return nil, fmt.Errorf("app: alerts: %w", err)
	}
	stop.add(func() error { a.Close(); return nil })
	return &alerting{a}, nil
}

// observe makes the publisher report what alerts are about.
func (a *alerting) observe(o *publisher.Options) {
	if a != nil {
		a.Observe(o)
	}
}

// serve makes this worker deliver alerts and watch until stop is run.
func (a *alerting) serve(ctx context.Context, p *publisher.Publisher, stop *teardown) error {
	if a == nil {
		return nil
	}
	if err := a.Serve(p); err != nil {
		return fmt.Errorf("app: alerts: %w", err)
	}
	stop.background(ctx, func(ctx context.Context) { _ = a.Run(ctx) })
	return nil
}
