package jobs_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// countTrips counts the round trips of a client from now on.
func countTrips(rdb redis.UniversalClient) func() int {
	h := &tripHook{}
	rdb.AddHook(h)
	return func() int { return int(h.n.Load()) }
}

type tripHook struct{ n atomic.Int64 }

func (h *tripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !greeting([]redis.Cmder{cmd}) {
			h.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (h *tripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !greeting(cmds) {
			h.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// pipelineHook calls f before each pipeline.
type pipelineHook func([]redis.Cmder)

func (pipelineHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !greeting(cmds) {
			f(cmds)
		}
		return next(ctx, cmds)
	}
}

// greeting reports whether this is what go-redis says on a new connection.
func greeting(cmds []redis.Cmder) bool {
	return slices.Contains([]string{"hello", "client", "select"}, cmds[0].Name())
}

// failing fails each single command about a key, as a node that is away does.
type failing string

func (failing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (key failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for _, arg := range cmd.Args() {
			if arg == string(key) {
				return errors.New("no connection to " + string(key))
			}
		}
		return next(ctx, cmd)
	}
}

func (failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
