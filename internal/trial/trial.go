// Package trial is the door through which publishertest reaches the code of
// package publisher that makes a call and says what becomes of the job, so that
// tests of apps meet the worker's own code and not a copy of it. It opens from
// the inside: package publisher sets Call.
package trial

import (
	"context"
	"errors"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// Handler is publisher.Handler, which this package cannot name.
type Handler interface {
	Publish(ctx context.Context, job *jobs.Job) error
}

// Request is one call to be made.
type Request struct {
	Handler Handler
	Options any       // []publisher.HandleOption
	Job     *jobs.Job // as the handler gets it
	Now     time.Time // that delays count from
}

// Answer is what the call came to, before Redis applies it to the job.
type Answer struct {
	Result, Reason string // as in publisher.JobEvent
	Err            error
	Took           time.Duration

	RateLimited bool
	Hint        time.Duration // of a rate-limited answer
	Scope       jobs.Scope    // likewise
	Budget      *jobs.Budget  // that the handler set
	Trigger     jobs.Trigger  // of a failure that could be retried

	Limit     *int      // of reschedules; nil for none
	At        time.Time // when a rescheduled job may run again; zero for at once
	Waits     string    // the code of why it waits
	WaitsText string    // why, in words
	Extend    time.Duration
	LastError string // "" leaves it alone
	Response  *jobs.Response
}

// ErrCancelled is the cause of a context whose job somebody has cancelled.
var ErrCancelled = errors.New("the job was cancelled")

// Call makes one call as a worker does. The end of ctx is that of a shutdown, or
// a cancel of the job if ErrCancelled is its cause. The error says what is wrong
// with the request.
var Call func(ctx context.Context, r Request) (Answer, error)
