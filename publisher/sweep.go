package publisher

import (
	"context"
	"errors"
	"time"

	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// sweepEvery is the interval at which one worker of the fleet repairs stranded jobs.
const sweepEvery = time.Minute

// sweep repairs, in portions, inconsistencies that a crash or a foreign tool has caused, until
// ctx ends, as tidegate doctor does.
func (p *Publisher) sweep(ctx context.Context) {
	sweeper := doctor.NewSweeper(p.rdb, doctor.Options{
		Namespace: p.ns, By: p.o.Worker, Retention: p.o.Retention, Family: store.AskParents(p.rdb),
	})
	tick := time.Tick(sweepEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		p.sweepPortion(ctx, sweeper)
	}
}

// sweepPortion sweeps one portion, unless another worker sweeps. A round of many jobs takes
// many portions, and only the worker that began it can continue it: the worker keeps the lease
// between them. Two simultaneous sweeps are harmless.
func (p *Publisher) sweepPortion(ctx context.Context, sweeper *doctor.Sweeper) {
	if held, err := lease.Acquire(ctx, p.rdb, p.ns.Key("sweep"), p.o.Worker, 3*sweepEvery/2); err != nil || !held {
		return
	}
	if err := errors.Join(p.forgetWorkers(ctx), p.trimEvents(ctx)); err != nil && ctx.Err() == nil {
		p.o.Logger.DebugContext(ctx, "outdated records could not be removed", "error", err)
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

// trimEvents bounds the streams of job events of all destinations.
func (p *Publisher) trimEvents(ctx context.Context) error {
	queues, err := p.ns.ListQueues(ctx, p.rdb)
	if err != nil {
		return err
	}
	var errs []error
	for _, q := range queues {
		lost, err := store.TrimEvents(ctx, p.rdb, q)
		errs = append(errs, err)
		if lost > 0 {
			destination, _, _ := store.ParseQueue(q)
			p.o.Logger.ErrorContext(ctx, "finished jobs were dropped before callbacks were made of them: too many, or too old",
				"destination", destination, "queue", q, "count", lost)
			notifyOf(p.observers, "OnCallbacksDropped", func(x *Observer) func(string, int) { return x.OnCallbacksDropped }, destination, lost)
		}
	}
	return errors.Join(errs...)
}
