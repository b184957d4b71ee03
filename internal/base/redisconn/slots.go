package redisconn

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// slotsAnew makes a Cluster client ask again which node owns which slots when a command
// failed for want of a node. Of itself the client asks after a redirection only, and
// once a minute: a dead master redirects no client, so that its slots would be
// out of reach long after a replica has taken them over.
type slotsAnew struct{ client *redis.ClusterClient }

// DialHook leaves dialling as it is.
func (h slotsAnew) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook looks at how single commands end.
func (h slotsAnew) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.look(ctx, err)
		return err
	}
}

// ProcessPipelineHook looks at how pipelines end, where each command has its own
// error.
func (h slotsAnew) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if h.look(ctx, cmd.Err()) {
				break
			}
		}
		return err
	}
}

// look asks for the slots if the error is not the answer of a node that is at work.
// The client asks in the background, five times a second at most.
func (h slotsAnew) look(ctx context.Context, err error) bool {
	var answer redis.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed):
		return false
	case errors.As(err, &answer) && !strings.HasPrefix(answer.Error(), "CLUSTERDOWN"):
		return false
	}
	h.client.ReloadState(ctx)
	return true
}
