package publisher

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/jobs"
)

// errGoexit is the error of a handler that called runtime.Goexit, as t.FailNow does.
var errGoexit = errors.New("the publisher ended its goroutine (runtime.Goexit)")

// inFlight is notified of a call while it is in flight. The zero value ignores all.
type inFlight struct {
	progress.Watcher // but for Limited

	// limited: the answer is rate limited, which is known before the handler returns. The
	// job is the handler's copy.
	limited func(*jobs.Job, callResult)
	// stuck: the handler has not returned after its context ended.
	stuck func()
	// caller runs the handler; nil: the call makes one.
	caller *caller
}

// call runs the handler within the destination's timeout or a shorter one of the job, and a probe within the lease of its
// permit: after that another probe may start. The handler gets a copy of the job; see takeBack.
func (d *destination) call(ctx context.Context, job *jobs.Job, permit breaker.Permit, w inFlight) callResult {
	timeout, ownTimeout := d.s.timeout, false
	if own := time.Duration(job.Request.TimeoutSecs) * time.Second; own > 0 && own < timeout {
		timeout, ownTimeout = own, true
	}
	deadline := time.Now().Add(timeout)
	if !permit.Until().IsZero() && permit.Until().Before(deadline) {
		deadline, ownTimeout = permit.Until(), false
	}
	ctx, cancel := context.WithDeadline(permit.Context(ctx), deadline)
	defer cancel()
	own := job.Clone()
	if w.limited != nil {
		bounded := ctx
		w.Limited = func(err error) {
			seen := *job
			takeBack(&seen, own, err)
			w.limited(&seen, classify(bounded, err))
		}
		ctx = progress.With(ctx, &w.Watcher)
	}
	noticed, returned, err := d.publish(ctx, job, own, w)
	r := classify(ctx, err)
	if returned {
		takeBack(job, own, err)
		if own.Cost != job.Cost {
			r.cost = own.Cost
		}
		r.draws = d.really(own)
	}
	if ownTimeout && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r = r.withinJobTimeout(job)
	}
	if r.noAnswer(job) && noticedLate(deadline, noticed) {
		r = r.stoodStill()
	}
	return r
}

// takeBack copies what the handler has set in its copy of the job, and the response from its
// error if it has set none.
func takeBack(job, own *jobs.Job, err error) {
	job.Response, job.Budget, job.Output, job.ReasonCode = own.Response, own.Budget, own.Output, own.ReasonCode
	if limited, ok := errors.AsType[*jobs.RateLimitedError](err); ok && limited != nil && job.Response == nil {
		job.Response = limited.Response
	}
}

// caller runs handlers, one after the other, in a goroutine of its own because runtime.Goexit
// ends the calling goroutine. One for each call would have to grow its stack each time. The
// zero value is ready for use.
type caller struct {
	calls chan func() // nil without a goroutine
	done  chan error  // results of calls
}

// start has f send its result to the returned channel.
func (c *caller) start(f func(done chan<- error)) <-chan error {
	if c.calls == nil {
		calls := make(chan func())
		c.calls, c.done = calls, make(chan error, 1)
		go func() {
			for call := range calls {
				call()
			}
		}()
	}
	done := c.done
	c.calls <- func() { f(done) }
	return done
}

// end ends the goroutine when the handler that it runs returns.
func (c *caller) end() {
	if c.calls != nil {
		close(c.calls)
		c.calls = nil
	}
}

// publish runs the handler with its own copy of the job, in the goroutine of a caller. It
// returns when the handler does; at the end of a shutdown it does not wait for a handler that
// ignores its context, and returned is false. noticed is when publish saw the handler return
// or its context end.
func (d *destination) publish(ctx context.Context, job, own *jobs.Job, w inFlight) (noticed time.Time, returned bool, err error) {
	c := w.caller
	if c == nil {
		c = &caller{}
		defer c.end()
	}
	done := c.start(func(done chan<- error) {
		err := errGoexit
		defer func() {
			if r := recover(); r != nil {
				d.log.Error("the handler panicked", "job", job.ID, "panic", r, "stack", string(debug.Stack()))
				err = fmt.Errorf("the handler panicked: %v", r)
			} else if err == errGoexit { //nolint:errorlint // the one set above
				d.log.Error("the publisher ended its goroutine", "job", job.ID, "error", errGoexit, "stack", string(debug.Stack()))
			}
			done <- err
		}()
		err = readable(d.handler.Publish(ctx, own))
	})
	select {
	case err = <-done:
		noticed, returned = time.Now(), true
	case <-ctx.Done():
		noticed = time.Now()
		returned, err = d.awaitReturn(ctx, job, done, w)
	}
	if !returned || err == errGoexit { //nolint:errorlint // the goroutine is busy or has ended
		c.end()
	}
	return noticed, returned, err
}

// readable returns an error whose methods can be called. An error with a nil pointer is not
// nil, and its Error method usually panics.
func readable(err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("the handler returned a nil %T as its error, which is not nil: return nil without a type", err)
	}
	_ = err.Error() // if it panics, it counts as a panic of the handler
	return err
}
