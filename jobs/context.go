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
)

// prompt is a client whose calls end with their context. go-redis looks at the deadline of a
// context only if its ContextTimeoutEnabled is set, and at a cancellation never, once a
// command has been written. A call that ends so goes on in the background until the
// timeouts of the given client or its Close end it; its result is dropped.
//
// Its own *redis.Client has no connection: it gives the commands their methods, and promptly
// passes them on. What is not a command (Subscribe, Watch) is not passed on.
type prompt struct {
	*redis.Client
	rdb redis.UniversalClient
}

// methods is a client that makes commands of calls and is never asked to send one.
var methods = sync.OnceValue(func() *redis.Client {
	return redis.NewClient(&redis.Options{
		PoolSize: 1, PipelinePoolSize: -1,
		// It would run goroutines.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
})

func newPrompt(rdb redis.UniversalClient) redis.UniversalClient {
	// A clone has hooks of its own, and shares what is not used.
	c := methods().WithTimeout(0)
	c.AddHook(passOn{rdb})
	return prompt{Client: c, rdb: rdb}
}

// ScriptLoad loads a script. On a Cluster that takes more than the command: all nodes get it.
func (p prompt) ScriptLoad(ctx context.Context, source string) *redis.StringCmd {
	var own *redis.StringCmd // not to be looked at unless it is done
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

// passOn is the hook that hands the commands of a prompt to the client that sends them.
type passOn struct{ rdb redis.UniversalClient }

func (passOn) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p passOn) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		own := cmd.Clone() // which the caller does not see before it is done
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
			pipe := p.rdb.Pipeline()
			if err := pipe.BatchProcess(ctx, own...); err != nil {
				return err
			}
			_, err := pipe.Exec(ctx)
			return err
		})
		for i, cmd := range cmds {
			if answered {
				take(cmd, own[i])
			} else {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// take gives a command the result of its clone.
func take(cmd, clone redis.Cmder) {
	reflect.ValueOf(cmd).Elem().Set(reflect.ValueOf(clone).Elem())
}

// within returns what send does, or at the end of ctx, without an answer, the error of ctx:
// send then goes on.
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
	deadline, bounded := ctx.Deadline()
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() && bounded && !time.Now().Before(deadline) {
		// go-redis saw the end of ctx first, and calls it a timeout of the network.
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return true, err
}
