package asynqx

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// Engine is what a Server needs of internal/engine, whose doc comments say what each does.
type Engine interface {
	Next() (message string, ok bool)
	InFlight(queue, id string) bool
	Acknowledge(ctx context.Context, queue, id string) (decided bool, err error)
	Fail(ctx context.Context, queue, id, problem string) error
	Requeue(ctx context.Context, queue, id string) error
	Recover(ctx context.Context, queue, id string, msg *store.Message) error
	Lapsed() (messages []string)
	Purge(ctx context.Context)
	Heartbeat(began time.Time, err error)
	Running(f func(id, queue string, payload []byte, started time.Time))
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
	e Engine
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
	queue := queueOf(keys[0])
	switch s.action {
	case doDequeue:
		return c.dequeue()
	case doComplete:
		_, err := c.e.Acknowledge(ctx, queue, fmt.Sprint(args[0])) // usually the handler has settled it
		return acknowledged(err)
	case doRetry:
		return acknowledged(c.retry(ctx, queue, fmt.Sprint(args[0]), args[1]))
	case doRequeue:
		return acknowledged(c.requeue(ctx, queue, fmt.Sprint(args[0])))
	case doForward:
		return redis.NewCmdResult(int64(0), nil) // the engine forwards by itself
	case doJanitor:
		c.e.Purge(ctx)
		return redis.NewCmdResult(int64(0), nil) // nothing is left for asynq to do
	case doLapsed:
		messages := []any{}
		for _, m := range c.e.Lapsed() {
			messages = append(messages, m)
		}
		return redis.NewCmdResult(messages, nil)
	}
	ctx, cancel := c.e.Bounded(ctx)
	defer cancel()
	if s.action == heartbeat {
		// asynq begins and ends no task meanwhile.
		ctx, cancel = context.WithTimeout(ctx, heartbeatTimeout)
		defer cancel()
		args = c.withRunning(args)
	}
	began := time.Now()
	cmd := c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if s.action == heartbeat {
		c.e.Heartbeat(began, cmd.Err())
	}
	return cmd
}

// Field numbers of WorkerInfo in asynq.proto. The first three are the same in ServerInfo.
const (
	numServerID  = 3
	numTaskID    = 4
	numTaskType  = 5
	numPayload   = 6
	numQueue     = 7
	numStartTime = 8
	numDeadline  = 9
)

// withRunning replaces the tasks in the arguments of writeServerStateCmd, which are a TTL, the
// ServerInfo, and an id and a WorkerInfo for each, by the jobs that run: a goroutine of asynq's
// runs further jobs after its own.
func (c *Client) withRunning(args []any) []any {
	info, _ := args[1].([]byte)
	server := slices.Clip(fieldsUpTo(info, numServerID))
	args = args[:2:2]
	c.e.Running(func(id, queue string, payload []byte, started time.Time) {
		b := server
		for num, v := range map[protowire.Number][]byte{
			numTaskID: []byte(id), numTaskType: []byte(store.TaskType), numPayload: payload, numQueue: []byte(queue),
			numStartTime: timestamp(started), numDeadline: timestamp(started.Add(store.TaskTimeout * time.Second)),
		} {
			b = protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
		}
		args = append(args, id, b)
	})
	return args
}

// fieldsUpTo returns the fields of an encoded message with numbers up to last; they come first.
func fieldsUpTo(b []byte, last protowire.Number) []byte {
	for n := 0; ; {
		num, _, size := protowire.ConsumeField(b[n:])
		if size < 0 || num > last {
			return b[:n]
		}
		n += size
	}
}

// timestamp encodes a google.protobuf.Timestamp.
func timestamp(t time.Time) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(t.Unix()))       //nolint:gosec // after 1970
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(t.Nanosecond())) //nolint:gosec // never negative
}

// dequeue answers asynq's dequeue with a job of any queue: asynq takes the queue from the
// message.
func (c *Client) dequeue() *redis.Cmd {
	if message, ok := c.e.Next(); ok {
		return redis.NewCmdResult(message, nil)
	}
	return redis.NewCmdResult(nil, redis.Nil)
}

// retry answers asynq's retry and archive scripts: it applies the outcome of the handler.
// asynq's recoverer sends them too, for jobs of dead workers.
func (c *Client) retry(ctx context.Context, queue, id string, encoded any) error {
	if decided, err := c.e.Acknowledge(ctx, queue, id); decided {
		return err //nolint:wrapcheck // asynq logs it
	}
	raw, _ := encoded.([]byte)
	msg, err := store.DecodeMessage(raw)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // asynq logs it
	case msg.ErrorMsg == asynq.ErrLeaseExpired.Error():
		return c.e.Recover(ctx, queue, id, msg) //nolint:wrapcheck // asynq logs it
	case !c.e.InFlight(queue, id): // its outcome is recorded
		return nil
	}
	return c.e.Fail(ctx, queue, id, msg.ErrorMsg) //nolint:wrapcheck // asynq logs it
}

// requeue answers asynq's requeue script, which puts back jobs whose handlers still run at
// the end of a shutdown.
func (c *Client) requeue(ctx context.Context, queue, id string) error {
	if decided, err := c.e.Acknowledge(ctx, queue, id); decided { // the handler returned at the same moment
		return err //nolint:wrapcheck // asynq logs it
	}
	return c.e.Requeue(ctx, queue, id) //nolint:wrapcheck // asynq logs it
}

// acknowledged is the reply to an acknowledgement.
func acknowledged(err error) *redis.Cmd {
	if err != nil {
		return redis.NewCmdResult(nil, err)
	}
	return redis.NewCmdResult("OK", nil)
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

// queueOf parses the queue from one of asynq's keys: asynq:{<queue>}:…
func queueOf(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	queue, _, _ := strings.Cut(rest, "}")
	return queue
}
