package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/minutes"
	"github.com/tidegate/tidegate/publisher"
)

// counting is a worker's part in the charts of the dashboard.
type counting struct{ recorder *minutes.Recorder }

func newCounting(cfg *config.Config, rdb redis.UniversalClient, log *slog.Logger) (*counting, error) {
	client, err := NewClient(rdb, cfg, nil, log)
	if err != nil {
		return nil, fmt.Errorf("app: charts: %w", err)
	}
	return &counting{minutes.NewRecorder(rdb, client, log)}, nil
}

func (c *counting) observe(o *publisher.Options) { c.recorder.Observe(o) }

// run keeps what is counted in Redis until stop is run, which is after the publisher's
// end, so that its last jobs count.
func (c *counting) run(ctx context.Context, stop *teardown) {
	stop.background(ctx, func(ctx context.Context) { c.recorder.Run(ctx) })
}
