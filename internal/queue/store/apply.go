package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	applyScript = script("apply")
	stuckScript = script("stuck")
)

// Kind is the kind of an outcome.
type Kind string

// The kinds of outcomes.
const (
	KindComplete   Kind = "complete"   // by Complete
	KindReschedule Kind = "reschedule" // later, not a failure: counts in reschedules
	KindRetry      Kind = "retry"      // failed, again later: counts in attempt
	KindFail       Kind = "fail"       // failed for good
	KindCancel     Kind = "cancel"     // cancelled while it ran
	KindPause      Kind = "pause"      // only of Applied: paused while it ran
	KindUnstarted  Kind = "defer"      // it was not started; nothing counted
	KindRequeue    Kind = "requeue"    // back to the head, nothing counted
	KindAccept     Kind = "accept"     // its API has accepted it and reports the result until At
	KindRecover    Kind = "recover"    // its worker died: counts in crashes
)

// Outcome is the outcome of a run.
type Outcome struct {
	Kind Kind
	// At is when the job may run again, by the local clock; for KindReschedule and
	// KindRetry, and of KindAccept the deadline of the result. It is turned into a delay when the call to Redis is made, so that
	// time spent repeating the call is not added.
	At time.Time
	// Reason is why the job waits, or the rule that completed or failed it.
	Reason Reason
	// Error is kept as last_error unless empty.
	Error string
	// Limit bounds the counter of the kind; nil for none. Reaching beyond it
	// fails the job.
	Limit *int
	// CountedBy is the record's field of a counter that Limit bounds in place of the
	// kind's own; "" for none.
	CountedBy string
	// Refusals is kept as FieldRefusals with the time of Redis, NoRefusals deletes that, and ""
	// leaves it.
	Refusals string
	// Response is kept with the job unless nil.
	Response *Response
	// Output, of KindComplete, is the value of FieldOutput; "" for none.
	Output string
	// Took is how long the call took; 0 without one.
	Took time.Duration
	// Extend is added to the job's expiry, if it has one.
	Extend time.Duration
	// Terms, of KindAccept, says what a result from outside comes to; "" leaves what the record says. See Terms.
	Terms string
}

// NoRefusals says that the job's last call was not refused.
const NoRefusals = "-"

// Applied is the result of applying an outcome.
type Applied struct {
	// Kind is the outcome's, KindFail if a limit was exceeded, KindComplete, KindRetry or KindFail if a result had come
	// from outside, KindCancel or KindPause if
	// that was requested while it ran, or "" if the run does not have the job any more.
	Kind Kind
	// Count is the new value of the kind's counter.
	Count int
	// AvailableAt is when it may run again, by Redis's clock; zero if never.
	AvailableAt time.Time
	// Error is the last_error if Kind is KindFail.
	Error string
	// Children is true if the job has finished and has children to cancel.
	Children bool
}

// Apply applies an outcome, other than KindComplete, to the job of a run; run "" means any
// run. Errors: Redis's.
func Apply(ctx context.Context, rdb redis.Scripter, queue, id, run string, o Outcome) (Applied, error) {
	delay := int64(0)
	if !o.At.IsZero() {
		delay = Millis(time.Until(o.At))
	}
	limit, extend := "", ""
	if o.Limit != nil {
		limit = strconv.Itoa(*o.Limit)
	}
	if o.Extend > 0 {
		extend = strconv.FormatInt(Millis(o.Extend), 10)
	}
	status, body := o.Response.args()
	took := ""
	if o.Took > 0 {
		took = strconv.FormatInt(Millis(o.Took), 10)
	}
	v, err := valuesOf(applyScript.Run(ctx, rdb, []string{TaskKey(queue, id), ActiveKey(queue), LeaseKey(queue)},
		queue, id, string(o.Kind), delay, string(o.Reason), o.Error, limit, status, body, extend, run, o.CountedBy, o.Refusals, took, o.Terms))
	if err != nil {
		return Applied{}, fmt.Errorf("%s job %s: %w", o.Kind, id, err)
	}
	a := Applied{Kind: Kind(v.text()), Count: v.integer(), AvailableAt: v.instant(), Children: v.integer() == 1}
	if v.err != nil {
		return Applied{}, fmt.Errorf("%s job %s: %w", o.Kind, id, v.err)
	}
	if a.Kind == "gone" {
		a.Kind = ""
	}
	if a.Kind == KindFail && len(v.left) > 0 {
		a.Error = v.text()
	}
	return a, nil
}

// MarkStuck records that the handler of a run has not returned long after its context
// ended. A cancel then returns Stuck.
func MarkStuck(ctx context.Context, rdb redis.Scripter, queue, id, run string) error {
	if err := stuckScript.Run(ctx, rdb, []string{TaskKey(queue, id)}, queue, run).Err(); err != nil {
		return fmt.Errorf("record a stuck handler of job %s: %w", id, err)
	}
	return nil
}

// RequestedAction reads which action is requested of a running job, "" if none is.
func RequestedAction(ctx context.Context, rdb redis.Cmdable, queue, id string) (Action, error) {
	action, err := rdb.HGet(ctx, TaskKey(queue, id), FieldAction).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return "", fmt.Errorf("read the requested action of job %s: %w", id, err)
	}
	return Action(action), nil
}
