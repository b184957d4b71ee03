package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

func enqueueTidegate(ctx context.Context, rdb redis.UniversalClient, n int) ([]string, error) {
	client, err := jobs.NewClient(rdb, jobs.WithDestinations(destination), jobs.WithLogger(silent))
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(destination, []byte(picture))
	}
	results, err := client.EnqueueMany(ctx, specs)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	ids := make([]string, n)
	for i, r := range results {
		if r.Err != nil {
			return nil, fmt.Errorf("enqueue: %w", r.Err)
		}
		ids[i] = r.Job.ID
	}
	return ids, nil
}

func serveTidegate(ctx context.Context, rdb redis.UniversalClient, t task, deferred *atomic.Int64) error {
	p, err := publisher.New(rdb, publisher.Options{
		Logger: silent, ShutdownTimeout: callTimeout, RetryLoopInterval: forwardEvery,
		Observers: []publisher.Observer{{OnJob: func(e publisher.JobEvent) {
			if e.Result != publisher.Completed {
				deferred.Add(1)
			}
		}}},
	})
	if err != nil {
		return err
	}
	h, err := httpdest.New(httpdest.Options{URL: t.URL, Connections: concurrency})
	if err != nil {
		return err
	}
	rules := breaker.Options{FailureThreshold: threshold, Cooldown: t.Cooldown, NoLearning: t.Contender != learning}
	if t.Punishes && rules.NoLearning {
		rules.CooldownMultiplier = 2
	}
	err = p.Handle(destination, h, publisher.Concurrency(concurrency), publisher.Timeout(callTimeout), publisher.Breaker(rules))
	if err == nil {
		err = p.Run(ctx)
	}
	return errors.Join(err, h.Close())
}
