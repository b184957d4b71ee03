package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/trial"
	"github.com/tidegate/tidegate/jobs"
)

func init() { trial.Call = try }

// try is one run of a job without Redis, for publishertest: what run does, with a
// breaker that is closed.
func try(ctx context.Context, r trial.Request) (trial.Answer, error) {
	opts, ok := r.Options.([]HandleOption)
	if !ok {
		return trial.Answer{}, fmt.Errorf("publisher: options of type %T", r.Options)
	}
	p := &Publisher{o: Options{}.withDefaults(), destinations: map[string]*destination{}}
	if err := p.Handle(r.Job.Destination, r.Handler, opts...); err != nil {
		return trial.Answer{}, err
	}
	d := p.destinations[r.Job.Destination]
	calls, cutCalls := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutCalls(nil)
	cut := func() {
		if errors.Is(context.Cause(ctx), trial.ErrCancelled) {
			cutCalls(errCancelled)
		}
		cutCalls(errShutdown)
	}
	if ctx.Err() != nil {
		cut()
	}
	stop := context.AfterFunc(ctx, cut)
	defer stop()

	started := time.Now()
	verdict := d.call(calls, r.Job, breaker.Permit{}, watch{})
	event := JobEvent{Job: r.Job, Called: verdict.called(), Took: time.Since(started), Err: verdict.err}
	o := d.outcome(r.Now, r.Job, verdict, breaker.Status{State: breaker.Closed}, &event)
	a := trial.Answer{
		Result: event.Result, Reason: event.Reason, Err: event.Err, Took: event.Took,
		RateLimited: verdict.kind == rateLimited, Hint: verdict.hint, Scope: verdict.scope, Budget: r.Job.Budget, Trigger: verdict.trigger,
		Limit: o.Limit, At: o.At, Waits: string(o.Reason), WaitsText: o.Reason.Text(), Extend: o.Extend, LastError: o.Error,
	}
	if o.Response != nil {
		a.Response = &jobs.Response{Status: o.Response.Status, Body: o.Response.Body}
	}
	return a, nil
}
