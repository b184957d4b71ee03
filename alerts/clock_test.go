package alerts

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// start is when the clock of a test begins. It is ahead of the machine's, so that what
// is due later lies in Redis as such.
var start = time.Date(2050, 1, 1, 12, 0, 0, 0, time.UTC)

// fakeClock stands still until it is set. As a hook of a Redis client it is what Redis's
// clock is to all who use that client: to TIME, and to the breaker's scripts, which take
// an instant for that.
type fakeClock struct {
	mu       sync.Mutex
	now      time.Time
	enqueued bool // since enqueues was asked last
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// enqueues says whether jobs may have been enqueued since it was asked last.
func (c *fakeClock) enqueues() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.enqueued = false }()
	return c.enqueued
}

func (c *fakeClock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *fakeClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.before(cmd)
		err := next(ctx, cmd)
		c.after(cmd)
		return err
	}
}

func (c *fakeClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.before(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			c.after(cmd)
		}
		return err
	}
}

// before gives the breaker's scripts an instant where they would ask Redis.
func (c *fakeClock) before(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return
	}
	args := cmd.Args()
	keys, _ := args[2].(int)
	if keys == 0 || len(args) <= 3+keys {
		return
	}
	first, _ := args[3].(string)
	if strings.Contains(first, "}:breaker") && args[3+keys] == "" {
		args[3+keys] = strconv.FormatInt(c.Now().UnixMicro(), 10)
	}
	if strings.HasPrefix(first, "asynq:") {
		c.mu.Lock()
		c.enqueued = true
		c.mu.Unlock()
	}
}

func (c *fakeClock) after(cmd redis.Cmder) {
	if t, ok := cmd.(*redis.TimeCmd); ok && t.Err() == nil {
		t.SetVal(c.Now())
	}
}

// databases of the shared server, each for one test at a time.
var databases = func() chan int {
	free := make(chan int, 15)
	for i := range cap(free) {
		free <- i + 1
	}
	return free
}()

// ownDatabase returns the address and the number of an empty database.
func ownDatabase(t testing.TB) (addr string, db int) {
	t.Helper()
	addr = redistest.Shared(t).Addr()
	db = <-databases
	t.Cleanup(func() { databases <- db })
	rdb := connect(t, addr, db)
	if err := rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return addr, db
}

func connect(t testing.TB, addr string, db int, hooks ...redis.Hook) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, DB: db, ContextTimeoutEnabled: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// age lets the time pass for what Redis keeps for a time.
var age = redis.NewScript(`
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left > 0 and left <= tonumber(ARGV[1]) then
    redis.call('DEL', key)
  elseif left > 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', left - ARGV[1]))
  end
end
return 1`)
