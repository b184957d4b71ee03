package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

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

// One call looks at a part of the jobs in flight, and the next calls at the rest.
func TestReclaimIsBounded(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		ctx := context.Background()
		const inFlight = 1300
		lost := []string{"j0000", "j0001", "j0249", "j0250", "j0499", "j0500", "j0777", "j1298", "j1299"}
		_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := range inFlight {
				id, run := fmt.Sprintf("j%04d", i), "other"
				if slices.Contains(lost, id) {
					run = "lost"
				}
				pipe.HSet(ctx, store.TaskKey(c.queue, id), store.FieldMsg, "m", store.FieldState, store.StateActive, store.FieldRun, run)
				pipe.LPush(ctx, store.ActiveKey(c.queue), id)
				pipe.ZAdd(ctx, store.LeaseKey(c.queue), redis.Z{Score: 1, Member: id})
			}
			return nil
		})
		c.must(err)
		calls := &scriptCalls{script: "reclaim"}
		c.rdb.AddHook(calls)
		c.must(store.Reclaim(ctx, c.rdb, c.queue, []string{"lost"}))
		pending := c.rdb.LRange(ctx, store.PendingKey(c.queue), 0, -1).Val()
		slices.Reverse(pending)
		if !slices.Equal(pending, lost) {
			t.Errorf("put back %v, want %v, the first one next", pending, lost)
		}
		if n := c.rdb.LLen(ctx, store.ActiveKey(c.queue)).Val(); n != inFlight-int64(len(lost)) {
			t.Errorf("%d are in flight", n)
		}
		if len(calls.args) < inFlight/500 {
			t.Errorf("%d calls look at %d jobs, want 500 a call", len(calls.args), inFlight)
		}
	})
}
