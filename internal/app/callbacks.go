package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/callbacks"
	"github.com/tidegate/tidegate/publisher"
)

// calling is a worker's part in the callbacks; nil is none.
type calling struct{ callbacks *callbacks.Callbacks }

// newCalling prepares the callbacks, if a destination has them.
func newCalling(cfg *config.Config, rdb redis.UniversalClient, log *slog.Logger, stop *teardown) (*calling, error) {
	o := callbacks.Options{Namespace: cfg.RedisNamespace, Worker: breaker.ProcessName(), Hosts: cfg.CallbackHosts, Logger: log}
	for _, d := range cfg.Destinations {
		if d.CallbackURL == "" && (len(cfg.CallbackHosts) == 0 || len(d.CallbackSecrets()) == 0) {
			continue
		}
		r := callbacks.Receiver{Destination: d.Name, URL: d.CallbackURL}
		for _, s := range d.CallbackSecrets() {
			r.Secrets = append(r.Secrets, s.Reveal())
		}
		o.Receivers = append(o.Receivers, r)
	}
	if len(o.Receivers) == 0 {
		return nil, nil //nolint:nilnil // nil is none
	}
	c, err := callbacks.New(rdb, o)
	if err != nil {
		return nil, fmt.Errorf("app: callbacks: %w", err)
	}
	stop.add(c.Close)
	return &calling{c}, nil
}

// observe has the relay look when a job has ended here.
func (c *calling) observe(o *publisher.Options) {
	if c == nil {
		return
	}
	o.Observe(publisher.Observer{OnJob: func(e publisher.JobEvent) {
		switch e.Result {
		case publisher.Completed, publisher.FailedFinal, publisher.Cancelled:
			c.callbacks.Poke(e.Job.Destination)
		}
	}})
}

// serve has this worker make callbacks, and deliver them, until stop is run.
func (c *calling) serve(ctx context.Context, p *publisher.Publisher, log *slog.Logger, stop *teardown) error {
	if c == nil {
		return nil
	}
	// Before the first job is fetched: its end is reported too.
	if err := c.callbacks.Prepare(ctx); err != nil {
		log.WarnContext(ctx, "callbacks start later than publishing", "error", err)
	}
	err := p.Handle(callbacks.Destination, publisher.Func(c.callbacks.Publish),
		publisher.Concurrency(c.callbacks.Concurrency()), publisher.Timeout(callbacks.Timeout),
		publisher.Breaker(callbacks.BreakerOptions()), publisher.Retention(callbacks.Retention))
	if err != nil {
		return fmt.Errorf("app: callbacks: %w", err)
	}
	stop.background(ctx, func(ctx context.Context) { _ = c.callbacks.Run(ctx) })
	return nil
}
