package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Action is the name of a script that changes jobs by id.
type Action string

// The actions.
const (
	Cancel Action = "cancel"
	Pause  Action = "pause"
	Resume Action = "resume"
	Retry  Action = "retry"
	Expire Action = "expire"
)

var actScripts = map[Action]*Script{
	Cancel: script("actions", "cancel"), Pause: script("actions", "pause"), Resume: script("actions", "resume"),
	Retry: script("actions", "retry"), Expire: script("actions", "expire"),
}

// Effect is the effect of an action on one job.
type Effect int

// The effects of actions; actions.lua defines the numbers that scripts return.
const (
	Refused Effect = 0 // its state does not allow it
	Done    Effect = 1
	Asked   Effect = 2 // it runs: its worker applies it
	Skipped Effect = 3 // not in one of the wanted states
	Orphan  Effect = 4 // done, but it waits for parents: call Readopt
	TooLate Effect = 5 // its expiry has passed
	// ParentDead is not a script's result: a parent has cancelled an Orphan again.
	ParentDead Effect = 6
	// Replaced: a newer job of its replace-key was enqueued.
	Replaced Effect = 8
	// Changed: the message of a job to change is not the one that was read; see RetryEdited.
	Changed Effect = 9
	// Stuck is Asked of a job whose handler has not returned long after its context ended.
	Stuck    Effect = 7
	NotFound Effect = -1
	// Unreached is not a script's result: an error came before the job.
	Unreached Effect = -2
)

// ActResult is the effect on one job.
type ActResult struct {
	Effect Effect
	State  string // before; "" if there is no such job. "cancelling" for a running one that is to be cancelled
	Err    error  // not a script's result: why a job that is Refused cannot be changed
}

// Order is an action to execute.
type Order struct {
	Action Action
	By     string
	Reason string
	// States restricts the order to jobs in one of them; empty means any.
	States []string
}

// idsPerScript bounds one script: a thousand of the cheapest take about 10 ms.
const idsPerScript = 200

// Act executes the order for jobs of one queue and returns the result of each id. After an
// error the remaining jobs are Unreached.
func Act(ctx context.Context, rdb redis.UniversalClient, queue string, o Order, ids []string) ([]ActResult, error) {
	out := make([]ActResult, len(ids))
	for i := range out {
		out[i].Effect = Unreached
	}
	done := 0
	for chunk := range slices.Chunk(ids, idsPerScript) {
		if err := act(ctx, rdb, queue, o, chunk, out[done:]); err != nil {
			return out, fmt.Errorf("%s jobs of %s: %w", o.Action, queue, err)
		}
		done += len(chunk)
	}
	return out, nil
}

func act(ctx context.Context, rdb redis.UniversalClient, queue string, o Order, ids []string, out []ActResult) error {
	args := make([]any, 0, 4+len(ids))
	args = append(args, queue, o.By, o.Reason, statesArg(o.States))
	for _, id := range ids {
		args = append(args, id)
	}
	return actWith(ctx, rdb, actScripts[o.Action], queue, args, out[:len(ids)])
}

// statesArg is ARGV[4] of actions.lua.
func statesArg(states []string) string {
	if len(states) == 0 {
		return ""
	}
	return "," + strings.Join(states, ",") + ","
}

// actWith runs the script of an action, and fills in a result for each job.
func actWith(ctx context.Context, rdb redis.UniversalClient, s *Script, queue string, args []any, out []ActResult) error {
	reply, err := s.Run(ctx, rdb, []string{PendingKey(queue)}, args...).Slice()
	if err != nil {
		return err //nolint:wrapcheck // the callers name the action
	}
	if len(reply) != 2*len(out) {
		return fmt.Errorf("%d values for %d jobs", len(reply), len(out))
	}
	for i := range out {
		code, _ := reply[2*i].(int64)
		state, _ := reply[2*i+1].(string)
		out[i] = ActResult{Effect: Effect(code), State: state}
		if state == "-" {
			out[i] = ActResult{Effect: NotFound}
		}
	}
	return nil
}
