package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// MaxProgressBytes is the longest Progress of a job.
const MaxProgressBytes = 4 << 10

// ErrTokenUsed is returned when a token of a callback has brought another result before, or its attempt has ended.
var ErrTokenUsed = errors.New("the token has been used, or the attempt that it is for has ended")

// actionReport is the Action of a *StatusError of Complete.
const actionReport Action = "report"

// Completion is the result of a job from outside its worker, or a part of it.
type Completion struct {
	// Status is Completed, Failed, or "" while the job goes on: then Progress or Extend are set.
	Status Status
	// Output of a completed job, as JSON: see Job.Output. nil: its latest Progress, if there is any.
	Output json.RawMessage
	// Error says why the job failed. Default "failed".
	Error string
	// Progress, as JSON of at most MaxProgressBytes, is shown with the job. nil: as it is.
	Progress json.RawMessage
	// Extend moves the deadline of the result by so much, without a Status. 0: not.
	Extend time.Duration
}

// Validate returns nil or a *ValidationError.
func (c Completion) Validate() error {
	var fields []FieldError
	add := func(field, message string) { fields = append(fields, FieldError{field, message}) }
	checkJSON := func(field string, value json.RawMessage, most int) {
		switch {
		case len(value) > most:
			add(field, fmt.Sprintf("has more than %d bytes", most))
		case value != nil && (!json.Valid(value) || !utf8.Valid(value)):
			add(field, "is not valid JSON")
		}
	}
	switch c.Status {
	case Completed, Failed:
		if c.Extend != 0 {
			add("extend", "goes with a job that has not ended; leave out one of extend and status")
		}
	case "":
		if c.Progress == nil && c.Extend == 0 {
			add("status", "is missing: it is completed or failed; without it there must be progress or extend")
		}
	default:
		add("status", fmt.Sprintf("%q is neither completed nor failed", clip(string(c.Status))))
	}
	if c.Output != nil && c.Status != Completed {
		add("output", "goes with the status completed")
	}
	if c.Error != "" && c.Status != Failed {
		add("error", "goes with the status failed")
	}
	if c.Extend < 0 {
		add("extend", "must not be negative")
	}
	checkJSON("output", c.Output, MaxOutputBytes)
	checkJSON("progress", c.Progress, MaxProgressBytes)
	if fields != nil {
		return &ValidationError{Fields: fields}
	}
	return nil
}

// Complete takes the result of a job that its API has accepted (see [Accepted]), or a part of it: its progress, or a later
// deadline. A failed job is retried by its policy, with trigger "explicit". The option By is kept with the history.
//
// While the call of the job is made, the result is kept, and counts when that has ended: Asked is true in place of Done. A
// completion counts whatever the call came to, and a failure if the API has accepted the job. A result that has come before
// is no error. Errors: ErrNotFound, a *ValidationError, a *StatusError, or Redis's.
func (c *Client) Complete(ctx context.Context, id string, result Completion, opts ...ActOption) (ActResult, error) {
	who, err := actorOf(opts)
	if err == nil {
		err = result.Validate()
	}
	if err != nil {
		return ActResult{}, err
	}
	if !ValidName(id) {
		return ActResult{}, fmt.Errorf("jobs: complete %q: %w", clip(id), ErrNotFound)
	}
	queue, err := c.findQueue(ctx, id)
	if err != nil {
		return ActResult{}, fmt.Errorf("jobs: complete %s: %w", id, err)
	}
	return c.report(ctx, store.Ref{Queue: queue, ID: id}, "", result, who.by)
}

// CompleteByToken is Complete for the job that a token names, which is the last part of a {{ callback }}. A token
// ends one attempt once. Errors: ErrNotFound, if the token is not known; ErrTokenUsed; a *ValidationError, or Redis's.
func (c *Client) CompleteByToken(ctx context.Context, token string, result Completion) (ActResult, error) {
	if err := result.Validate(); err != nil {
		return ActResult{}, err
	}
	ref, hash, ok := c.ns.ParseToken(token)
	if !ok || !ValidName(ref.ID) {
		return ActResult{}, fmt.Errorf("jobs: complete: the token: %w", ErrNotFound)
	}
	return c.report(ctx, ref, hash, result, "callback")
}

func (c *Client) report(ctx context.Context, ref store.Ref, hash string, result Completion, by string) (ActResult, error) {
	o := store.Outside{
		Status: string(result.Status), Output: string(result.Output), Progress: string(result.Progress), Extend: store.Bounded(result.Extend), By: by,
	}
	if result.Status == Failed {
		if o.Error = text.CutBytes(text.Printable(result.Error), maxReason); o.Error == "" {
			o.Error = "failed"
		}
	}
	effect, state, err := store.Report(ctx, c.rdb, ref, hash, o)
	if err == nil && effect == store.OutsideDone && result.Status != "" {
		err = c.releaseChildren(ctx, ref.Queue)
	}
	if err != nil {
		return ActResult{}, fmt.Errorf("jobs: complete: %w", err)
	}
	r := ActResult{ID: ref.ID, Done: effect == store.OutsideDone || effect == store.OutsideAgain, Asked: effect == store.OutsideKept, Status: statusOf[state]}
	switch effect {
	case store.OutsideNone:
		r.Err = fmt.Errorf("%s: %w", clip(ref.ID), ErrNotFound)
	case store.OutsideUsed:
		r.Err = ErrTokenUsed
	case store.OutsideRefused:
		r.Err = &StatusError{ID: ref.ID, Action: actionReport, Status: r.Status}
	case store.OutsideDone, store.OutsideKept, store.OutsideAgain:
		return r, nil
	}
	return r, fmt.Errorf("jobs: complete: %w", r.Err)
}
