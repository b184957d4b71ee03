package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// Action is an operation on jobs.
type Action string

// The actions.
const (
	// ActionCancel cancels an unfinished job. The worker cancels the call of a running one
	// within a second; if the destination has accepted it already, the job completes.
	ActionCancel Action = "cancel"
	// ActionPause keeps a job from running until it is resumed. A running one is paused after
	// its call, unless the call finishes it.
	ActionPause Action = "pause"
	// ActionResume returns a paused job to its previous state, with its available time.
	ActionResume Action = "resume"
	// ActionRetry runs a failed or cancelled job again, with its counters at 0. A job that
	// was cancelled because of a parent waits for that parent again. [Set] changes it before.
	ActionRetry Action = "retry"
	// ActionExpire expires a waiting job before its time.
	ActionExpire Action = "expire"
)

// ActOption sets the actor or the reason of an action.
type ActOption func(*actor)

// actor is the actor of an action, with the reason.
type actor struct {
	by, reason string
	states     []string
	edits      []edit
}

// Bounds of the actor and the reason, in bytes.
const (
	maxBy     = 128
	maxReason = 1024
)

// By sets the actor in the history of the jobs: up to 128 bytes.
func By(name string) ActOption { return func(a *actor) { a.by = text.CutBytes(name, maxBy) } }

// Because sets the reason: up to 300 bytes in the history, up to 1024 bytes in the last error
// of a cancelled job.
func Because(reason string) ActOption {
	return func(a *actor) { a.reason = text.CutBytes(reason, maxReason) }
}

// ActResult is the result of an action on one job.
type ActResult struct {
	ID string `json:"id"`
	// Done is true if the action is complete.
	Done bool `json:"done"`
	// Asked is true if the job was running: the action is requested from its worker, and the
	// job may still end otherwise.
	Asked bool `json:"asked"`
	// Stuck is true if the action is requested and the job's handler has not returned long
	// after its context ended. It runs until it returns or its worker is restarted; the job
	// is not started again.
	Stuck bool `json:"stuck,omitempty"`
	// Status before the action; "" if there is no such job.
	Status Status `json:"status"`
	// Err is ErrNotFound or a *StatusError if nothing was done, or says that an error of the
	// whole call came before this job.
	Err error `json:"-"`
}

// StatusError says that the status of a job does not allow an action. It matches
// ErrStatus.
type StatusError struct {
	ID     string
	Action Action
	// Status of the job when the action was tried; "" if a tool of asynq has archived it.
	Status Status
	// Detail is an explanation, or empty.
	Detail string
}

func (e *StatusError) Error() string {
	verb := map[Action]string{
		ActionCancel: "cancelled", ActionPause: "paused", ActionResume: "resumed", ActionRetry: "retried", ActionExpire: "expired",
		actionReport: "completed or failed from outside",
	}[e.Action]
	return fmt.Sprintf("job %s cannot be %s: it is %s", clip(e.ID), verb, strings.TrimSpace(string(e.Status)+" "+e.Detail))
}

// Is makes errors.Is(err, ErrStatus) true.
func (e *StatusError) Is(target error) bool { return target == ErrStatus }

// Cancel cancels an unfinished job. A nil error means that the job will not be started
// again: it is cancelled, or, if it was running, its worker is notified to cancel the call, and a call
// that the destination accepted before that counts as completed. Children are cancelled too.
// A failed job can be cancelled while it [Job.Blocks] the later jobs of its key; they go on then.
// Errors: ErrNotFound, a *StatusError, ErrStuck, or Redis's.
func (c *Client) Cancel(ctx context.Context, id string, opts ...ActOption) error {
	return c.actOne(ctx, ActionCancel, id, opts)
}

// Pause keeps a job from running until Resume. It still expires. A running one is paused
// after its call, unless the call finishes it. Errors as of Cancel.
func (c *Client) Pause(ctx context.Context, id string, opts ...ActOption) error {
	return c.actOne(ctx, ActionPause, id, opts)
}

// Resume returns a paused job to its previous state: to its place in the queue if the queue
// has not moved past it, or to its available time. Errors as of Cancel.
func (c *Client) Resume(ctx context.Context, id string, opts ...ActOption) error {
	return c.actOne(ctx, ActionResume, id, opts)
}

// Retry runs a failed or cancelled job again, with its counters at 0; its children
// that were cancelled stay so. An expired job cannot be retried, and neither can one with a newer job of its [Replace] key.
// With [Set] it is changed before; if that cannot be done, the error is a *ValidationError. Other errors as of Cancel.
func (c *Client) Retry(ctx context.Context, id string, opts ...ActOption) error {
	return c.actOne(ctx, ActionRetry, id, opts)
}

// MarkExpired expires a waiting job that is no longer needed, before its ExpiresAt. Jobs with
// ExpiresAt expire by themselves. Errors as of Cancel.
func (c *Client) MarkExpired(ctx context.Context, id string, opts ...ActOption) error {
	return c.actOne(ctx, ActionExpire, id, opts)
}

// IfPending restricts an action to a job with status pending: one that does not run now and does not wait for a
// retry. The result of another one is a *StatusError.
func IfPending() ActOption {
	return func(a *actor) { a.states = []string{store.StatePending, store.StateScheduled, store.StateHeld} }
}

var errUnreached = errors.New("not reached, because of an error before it")

func (c *Client) actOne(ctx context.Context, a Action, id string, opts []ActOption) error {
	results, err := c.Act(ctx, a, []string{id}, opts...)
	if err != nil {
		return err
	}
	if err := results[0].Err; err != nil {
		return fmt.Errorf("jobs: %s: %w", a, err)
	}
	if results[0].Stuck {
		return fmt.Errorf("jobs: %s: %s: %w", a, id, ErrStuck)
	}
	return nil
}

// Act applies an action to many jobs and returns a result for each of them, in their order.
// The error concerns all of them: results then hold what was done before it.
func (c *Client) Act(ctx context.Context, a Action, ids []string, opts ...ActOption) ([]ActResult, error) {
	o, err := orderOf(a, opts)
	if err != nil {
		return nil, err
	}
	results := make([]ActResult, len(ids))
	var known []string
	for i, id := range ids {
		results[i] = ActResult{ID: id, Err: errUnreached}
		if ValidName(id) {
			known = append(known, id)
		}
	}
	where, err := c.locate(ctx, unique(known))
	if err != nil {
		return results, fmt.Errorf("jobs: %s: %w", a, err)
	}
	byQueue := map[string][]int{}
	for i, id := range ids {
		if q := where[id]; q != "" {
			byQueue[q] = append(byQueue[q], i)
		} else {
			results[i].take(a, store.ActResult{Effect: store.NotFound})
		}
	}
	for queue, places := range byQueue {
		some := make([]string, len(places))
		for k, i := range places {
			some[k] = ids[i]
		}
		verdicts, err := c.act(ctx, o, queue, some)
		err = errors.Join(err, c.releaseChildren(ctx, queue))
		for k, i := range places {
			results[i].take(a, verdicts[k])
		}
		if err != nil {
			return results, fmt.Errorf("jobs: %s: %w", a, err)
		}
	}
	return results, nil
}

func orderOf(a Action, opts []ActOption) (actOrder, error) {
	switch a {
	case ActionCancel, ActionPause, ActionResume, ActionRetry, ActionExpire:
	default:
		return actOrder{}, &ValidationError{Fields: []FieldError{{"action", fmt.Sprintf("%q is none of cancel, pause, resume, retry, expire", clip(string(a)))}}}
	}
	who, err := actorOf(opts)
	if err == nil {
		err = checkEdits(a, who.edits)
	}
	return actOrder{store.Order{Action: store.Action(a), By: who.by, Reason: who.reason, States: who.states}, who.edits}, err
}

func actorOf(opts []ActOption) (actor, error) {
	var a actor
	for i, o := range opts {
		if o == nil {
			return actor{}, &ValidationError{Fields: []FieldError{{"options", fmt.Sprintf("option %d is nil", i+1)}}}
		}
		o(&a)
	}
	return a, nil
}

// act executes an order in one queue, and registers retried jobs with their parents. The
// caller releases the children: see releaseChildren.
func (c *Client) act(ctx context.Context, o actOrder, queue string, ids []string) ([]store.ActResult, error) {
	var verdicts []store.ActResult
	var err error
	if len(o.edits) > 0 {
		verdicts, err = c.retryEdited(ctx, o, queue, ids)
	} else {
		verdicts, err = store.Act(ctx, c.rdb, queue, o.Order, ids)
	}
	for i, v := range verdicts {
		if v.Effect == store.Orphan {
			err = errors.Join(err, c.readopt(ctx, store.Ref{Queue: queue, ID: ids[i]}, &verdicts[i]))
		}
	}
	return verdicts, err
}

// readopt registers a job that runs again with its parents. One of them may cancel it at
// once.
func (c *Client) readopt(ctx context.Context, ref store.Ref, v *store.ActResult) error {
	if err := store.Readopt(ctx, c.rdb, ref, c.locate); err != nil {
		return err
	}
	now, err := store.ReadStates(ctx, c.rdb, ref.Queue, []string{ref.ID})
	if err == nil && now[0].State == store.StateCancelled {
		*v = store.ActResult{Effect: store.ParentDead, State: store.StateCancelled}
	}
	return err
}

// releaseChildren releases or cancels the children of finished jobs of the queue. Workers do
// so too, within a second.
func (c *Client) releaseChildren(ctx context.Context, queue string) error {
	return store.ReleaseAllChildren(ctx, c.rdb, queue, func() {})
}

// take sets the result from the effect of the action.
func (r *ActResult) take(a Action, v store.ActResult) {
	detail := ""
	if v.State == "cancelling" {
		v.State, detail = store.StateActive, "and about to be cancelled"
	}
	r.Status = statusOf[v.State]
	if v.State == stateArchived {
		detail = "archived by a tool of asynq: run tidegate doctor, which makes it a failed job that can be retried"
	}
	if v.Err != nil {
		r.Err = v.Err
		return
	}
	switch v.Effect {
	case store.Unreached:
		return
	case store.NotFound:
		r.Err = fmt.Errorf("%s: %w", clip(r.ID), ErrNotFound)
		return
	case store.Done, store.Orphan:
		r.Done, r.Err = true, nil
		return
	case store.Asked, store.Stuck:
		r.Asked, r.Stuck, r.Err = true, v.Effect == store.Stuck, nil
		return
	case store.ParentDead:
		detail = "because of a parent, which has not completed; retry that one first"
	case store.TooLate:
		detail = "and its expires_at has passed"
	case store.Replaced:
		detail = "and a newer job of its replace-key was enqueued; enqueue it again to run it"
	case store.Refused, store.Skipped, store.Changed:
	}
	if r.Status == Expired && a == ActionRetry {
		detail = "and expired jobs cannot be run again; enqueue a new one"
	}
	r.Err = &StatusError{ID: r.ID, Action: a, Status: r.Status, Detail: detail}
}
