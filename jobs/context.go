package jobs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// prompt is a client whose calls end with their context. go-redis checks the deadline of a
// context only with ContextTimeoutEnabled, and never a cancellation once a command is
// written. An abandoned call continues in the background until the timeouts of the given
// client, or its Close, end it; its result is dropped.
//
// Its own *redis.Client has no connection: it builds the commands, and a hook passes them to
// the given client. Subscribe and Watch are not passed on.
type prompt struct {
	*redis.Client
	rdb redis.UniversalClient
}

// methods builds commands; it never sends one.
var methods = sync.OnceValue(func() *redis.Client {
	return redis.NewClient(&redis.Options{
		PoolSize: 1, PipelinePoolSize: -1,
		// The default starts goroutines.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
})

func newPrompt(rdb redis.UniversalClient) redis.UniversalClient {
	// WithTimeout clones the client: the clone has its own hooks.
	c := methods().WithTimeout(0)
	c.AddHook(passOn{rdb})
	return prompt{Client: c, rdb: rdb}
}

// ScriptLoad loads a script: on a Cluster on all nodes, which the hook of a command cannot
// do.
func (p prompt) ScriptLoad(ctx context.Context, source string) *redis.StringCmd {
	var own *redis.StringCmd // valid only if send has returned
	answered, err := within(ctx, func() error {
		own = p.rdb.ScriptLoad(ctx, source)
		return own.Err()
	})
	if answered {
		return own
	}
	cmd := redis.NewStringCmd(ctx, "script", "load", source)
	cmd.SetErr(err)
	return cmd
}

// passOn is the hook that passes the commands of a prompt to the client that sends them.
type passOn struct{ rdb redis.UniversalClient }

func (passOn) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p passOn) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		own := cmd.Clone() // the caller must not see it before it is complete
		answered, err := within(ctx, func() error { return p.rdb.Process(ctx, own) })
		if answered {
			take(cmd, own)
		}
		return err
	}
}

func (p passOn) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		own := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			own[i] = cmd.Clone()
		}
		answered, err := within(ctx, func() error {
			_, err := redispipe.Run(ctx, p.rdb, func(pipe redis.Pipeliner) error {
				return pipe.BatchProcess(ctx, own...)
			})
			return err
		})
		for i, cmd := range cmds {
			if answered {
				take(cmd, own[i])
				cmd.SetErr(ended(ctx, cmd.Err()))
			} else {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// take copies the result of a clone to its command.
func take(cmd, clone redis.Cmder) {
	reflect.ValueOf(cmd).Elem().Set(reflect.ValueOf(clone).Elem())
}

// within returns the error of send, or of ctx if it ends before send answers: send then continues.
func within(ctx context.Context, send func() error) (answered bool, err error) {
	if ctx.Done() == nil {
		return true, send()
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	select {
	case err = <-sent:
	case <-ctx.Done():
		select {
		case err = <-sent: // both at once
		default:
			return false, ctx.Err()
		}
	}
	return true, ended(ctx, err)
}

// ended returns err, wrapping ctx's error if go-redis noticed the end of ctx first and reports a timeout of the
// network.
func ended(ctx context.Context, err error) error {
	deadline, bounded := ctx.Deadline()
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() && bounded && !time.Now().Before(deadline) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}
