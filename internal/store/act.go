package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Action is one of the scripts that change jobs by id.
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
	Cancel: script("cancel"), Pause: script("pause"), Resume: script("resume"), Retry: script("retry"), Expire: script("expire"),
}

// Outcome says what an action came to for one job.
type Outcome int

// The outcomes.
const (
	Refused Outcome = 0 // its state does not allow it
	Done    Outcome = 1
	Asked   Outcome = 2 // it runs: its worker has been told
	Skipped Outcome = 3 // not in one of the wanted states
	Orphan  Outcome = 4 // done, but it waits for parents, which must be asked again
	TooLate Outcome = 5 // its expiry has passed
	// ParentDead is no script's answer: a parent has cancelled an Orphan again.
	ParentDead Outcome = 6
	// Stuck is Asked of a job whose handler has not returned long after its context ended.
	Stuck    Outcome = 7
	NotFound Outcome = -1
	// Unreached is no script's answer either: an error came before it.
	Unreached Outcome = -2
)

// Verdict is the answer for one job.
type Verdict struct {
	Outcome Outcome
	State   string // before; "" if there is no such job. "cancelling" for a running one that is to be cancelled
}

// Order is what is to be done.
type Order struct {
	Action Action
	By     string
	Reason string
	// States restricts the order to jobs in one of them; empty means any.
	States []string
}

// idsPerScript bounds one script: a thousand of the cheapest take about 10 ms.
const idsPerScript = 200

// Act carries the order out for jobs of one queue and returns a verdict for each
// id. On an error, the verdicts tell of those that were reached before it; the
// others are Unreached.
func Act(ctx context.Context, rdb redis.UniversalClient, queue string, o Order, ids []string) ([]Verdict, error) {
	out := make([]Verdict, len(ids))
	for i := range out {
		out[i].Outcome = Unreached
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

func act(ctx context.Context, rdb redis.UniversalClient, queue string, o Order, ids []string, out []Verdict) error {
	states := ""
	if len(o.States) > 0 {
		states = "," + strings.Join(o.States, ",") + ","
	}
	args := make([]any, 0, 4+len(ids))
	args = append(args, queue, o.By, o.Reason, states)
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := actScripts[o.Action].Run(ctx, rdb, []string{PendingKey(queue)}, args...).Slice()
	if err != nil {
		return err
	}
	if len(reply) != 2*len(ids) {
		return fmt.Errorf("%d values for %d jobs", len(reply), len(ids))
	}
	for i := range ids {
		code, _ := reply[2*i].(int64)
		state, _ := reply[2*i+1].(string)
		out[i] = Verdict{Outcome: Outcome(code), State: state}
		if state == "-" {
			out[i] = Verdict{Outcome: NotFound}
		}
	}
	return nil
}
