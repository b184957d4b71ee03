package asynqx

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// Engine is what a Server needs of internal/queue/engine, whose doc comments say what each does.
type Engine interface {
	Next() bool
	RecoverLapsed()
	Purge(ctx context.Context)
	Heartbeat(began time.Time, err error)
	Fatal(err error)
	Aborted() error
	Bounded(ctx context.Context) (context.Context, context.CancelFunc)
}

// Queue is the only queue of the Server and represents all queues of the engine. It does not
// exist in Redis.
const Queue = "tidegate"

// heartbeatTimeout bounds each of asynq's writes of the Server's state.
const heartbeatTimeout = 500 * time.Millisecond

// Client is the redis.UniversalClient of one asynq Server, whose only queue must be Queue.
type Client struct {
	redis.UniversalClient
	e     Engine
	tasks atomic.Uint64 // counts them
}

// New returns a client for one Server, on top of rdb, which it does not close.
func New(rdb redis.UniversalClient, e Engine) *Client {
	return &Client{UniversalClient: rdb, e: e}
}

// EvalSha answers asynq's scripts; see the package comment.
func (c *Client) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	s, ok := asynqScripts[sha]
	if !ok {
		err := &UnknownScriptError{SHA: sha}
		c.e.Fatal(err)
		return redis.NewCmdResult(nil, err)
	}
	if err := c.e.Aborted(); err != nil {
		return redis.NewCmdResult(nil, err)
	}
	switch s.action {
	case doDequeue:
		if !c.e.Next() {
			return redis.NewCmdResult(nil, redis.Nil)
		}
		return redis.NewCmdResult(c.task(), nil)
	case doNothing:
		return redis.NewCmdResult("OK", nil)
	case doForward:
		return redis.NewCmdResult(int64(0), nil) // the engine forwards by itself
	case doJanitor:
		c.e.Purge(ctx)
		return redis.NewCmdResult(int64(0), nil) // nothing is left for asynq to do
	case doLapsed:
		c.e.RecoverLapsed()
		return redis.NewCmdResult([]any{}, nil)
	case passOn, heartbeat:
	}
	ctx, cancel := c.e.Bounded(ctx)
	defer cancel()
	if s.action == heartbeat {
		// asynq begins and ends no task meanwhile.
		ctx, cancel = context.WithTimeout(ctx, heartbeatTimeout)
		defer cancel()
		args = args[:2:2] // without the tasks that asynq's goroutines began with: see docs/adr/0062
	}
	began := time.Now()
	cmd := c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if s.action == heartbeat {
		c.e.Heartbeat(began, cmd.Err())
	}
	return cmd
}

// task is the message of a task for asynq: a call of the Server's handler, which takes the job that
// Engine.Next has got.
func (c *Client) task() string {
	m := store.Message{Type: store.TaskType, ID: strconv.FormatUint(c.tasks.Add(1), 10), Queue: Queue, Retry: store.MaxRetry, Timeout: store.TaskTimeout}
	return string(m.AppendTo(nil))
}

// ZAddXX answers asynq's extension of leases, the only ZADD XX that it sends: it extends
// asynq's own leases, in memory.
func (c *Client) ZAddXX(context.Context, string, ...redis.Z) *redis.IntCmd {
	return redis.NewIntResult(0, c.e.Aborted())
}

// ZAdd bounds asynq's call, which is a part of its heartbeat.
func (c *Client) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if err := c.e.Aborted(); err != nil {
		return redis.NewIntResult(0, err)
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	return c.UniversalClient.ZAdd(ctx, key, members...)
}

// ZRem bounds asynq's call; see engine.Bounded.
func (c *Client) ZRem(ctx context.Context, key string, members ...any) *redis.IntCmd {
	if err := c.e.Aborted(); err != nil {
		return redis.NewIntResult(0, err)
	}
	ctx, cancel := c.e.Bounded(ctx)
	defer cancel()
	return c.UniversalClient.ZRem(ctx, key, members...)
}

// Eval passes on scripts that Redis does not know yet: go-redis calls it after a NOSCRIPT.
func (c *Client) Eval(ctx context.Context, src string, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := c.e.Bounded(ctx)
	defer cancel()
	return c.UniversalClient.Eval(ctx, src, keys, args...)
}
