package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// scriptCalls counts the arguments of each call of a script.
type scriptCalls struct {
	script string
	mu     sync.Mutex
	args   []int
}

func (s *scriptCalls) count(cmds ...redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range cmds {
		if args := cmd.Args(); cmd.Name() == "evalsha" && store.ScriptName(args[1].(string)) == s.script && cmd.Err() == nil {
			s.args = append(s.args, len(args))
		}
	}
}

func (s *scriptCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scriptCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		s.count(cmd)
		return err
	}
}

func (s *scriptCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		s.count(cmds...)
		return err
	}
}

// One call writes no more copies of a parent's output than Redis does in a moment, and the next
// call goes on at once.
func TestCopiesOfAnOutputAreBounded(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		ctx := context.Background()
		const children = 100
		output := strings.Repeat("x", 64<<10)
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "parent"), store.FieldState, store.StateActive, store.FieldMsg, "m").Err())
		var refs []store.Ref
		for i := range children {
			refs = append(refs, c.child(fmt.Sprintf("c%03d", i), "parent"))
		}
		if _, err := store.Register(ctx, c.rdb, c.ref("parent"), refs); err != nil {
			t.Fatal(err)
		}
		c.endAs("parent", store.StateCompleted, "")
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, "parent"), store.FieldOutput, output).Err())
		calls := &scriptCalls{script: "parent_ended"}
		c.rdb.AddHook(calls)
		if err := store.ReleaseAllChildren(ctx, c.rdb, c.queue, func() {}); err != nil {
			t.Fatal(err)
		}
		if n := c.rdb.LLen(ctx, store.PendingKey(c.queue)).Val(); n != children {
			t.Errorf("%d children are pending, want all %d", n, children)
		}
		const others = 5 + 7 // the command up to its keys, and what comes before the children
		if most := slices.Max(calls.args) - others; most > 16 {
			t.Errorf("one call copied an output of 64 KiB for %d children, want at most 16: 1 MiB", most)
		}
	})
}

// A call takes half as many jobs that wait for an instant, which have a place in two sets.
func TestJobsOfOneEnqueueAreBounded(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		ctx := context.Background()
		for more, want := range map[string]int{"": 200, `{"delay":3600000}`: 100} {
			calls := &scriptCalls{script: "enqueue"}
			c.rdb.AddHook(calls)
			var jobs []store.NewJob
			for i := range 400 {
				id := fmt.Sprintf("j%d%d", len(more), i)
				jobs = append(jobs, store.NewJob{ID: id, Message: []byte("m"), More: more})
			}
			if _, err := store.Enqueue(ctx, c.rdb, time.Now(), []store.NewJobs{{Queue: c.queue, Jobs: jobs}}); err != nil {
				t.Fatal(err)
			}
			if most := (slices.Max(calls.args) - 6) / 3; most != want {
				t.Errorf("one call enqueues up to %d jobs with %q, want %d", most, more, want)
			}
		}
	})
}
