package publisher

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/doctor"
	"github.com/tidegate/tidegate/internal/lifecycle"
)

// sweepEvery is how often one worker of the fleet looks for jobs that would be
// stranded. Whoever takes the lock does it.
const (
	sweepEvery = time.Minute
	sweepLock  = "tidegate:sweep"
)

// sweep repairs, in portions, what a crash or a foreign tool has left behind, until
// ctx ends. It does what tidegate doctor does.
func (p *Publisher) sweep(ctx context.Context) {
	sweeper := doctor.NewSweeper(p.rdb, doctor.Options{
		By: p.o.Worker, Retention: p.o.Retention, Family: lifecycle.AskParents(p.rdb),
	})
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A little less than the interval, so that it is free at the next tick.
		mine, err := p.rdb.SetNX(ctx, sweepLock, p.o.Worker, sweepEvery*9/10).Result()
		if err != nil || !mine {
			continue
		}
		report, _, err := sweeper.Sweep(ctx, 0)
		if err != nil && ctx.Err() == nil {
			p.o.Logger.WarnContext(ctx, "the sweep for stranded jobs was cut off; it goes on in a minute", "error", err)
		}
		for _, f := range report.Findings {
			if f.Repaired {
				p.o.Logger.WarnContext(ctx, "the sweep repaired something", "kind", f.Kind, "queue", f.Queue, "count", f.Count, "detail", f.Detail)
			}
		}
	}
}
