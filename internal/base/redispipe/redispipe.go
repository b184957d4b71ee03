// Package redispipe runs pipelines of Redis commands. Use it for each pipeline: go-redis leaves
// the commands without an error if the server refuses the connection, such as its login.
package redispipe

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Client makes pipelines.
type Client interface {
	Pipeline() redis.Pipeliner
}

// Run sends the commands that queue adds, in one round trip. It returns them, and the first error
// of queue, of the connection or of a command. A command that was not sent has an error, so each
// may be read by itself.
func Run(ctx context.Context, client Client, queue func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	pipe := client.Pipeline()
	if err := queue(pipe); err != nil {
		return nil, err
	}
	cmds, err := pipe.Exec(ctx)
	if err == nil {
		return cmds, nil
	}
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return cmds, err //nolint:wrapcheck // a client's error, whose text callers compare
		}
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return cmds, err //nolint:wrapcheck // likewise
}

// Each is [Run] of one command for each item, which it returns in their order.
func Each[T any, C redis.Cmder](ctx context.Context, client Client, items []T, queue func(redis.Pipeliner, T) C) ([]C, error) {
	cmds := make([]C, len(items))
	_, err := Run(ctx, client, func(pipe redis.Pipeliner) error {
		for i, item := range items {
			cmds[i] = queue(pipe, item)
		}
		return nil
	})
	return cmds, err
}
