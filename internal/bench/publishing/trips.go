package main

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// trips counts a client's round trips to Redis: a pipeline is one.
type trips struct{ n atomic.Int64 }

var _ redis.Hook = (*trips)(nil)

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}
