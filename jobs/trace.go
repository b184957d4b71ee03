package jobs

import (
	"context"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/store"
)

type traceFunc = func(ctx context.Context, job *Job) (carrier map[string]string, end func(error))

// WithTrace has f make the trace context that is kept with each job and is there as
// Job.Trace in the worker. Default: none, at no cost. See publisher/tracing.
//
// f is called once for each job that passed the checks, must return quickly, and must not
// change the job. It returns the carrier, under the names of the propagation format, such as
// traceparent, and a function that is called when the enqueue has ended, which may be nil.
// By then job.Duplicate says whether the id existed, in which case nothing was kept. The
// error is as in Result, or what EnqueueMany returned, if that ended before this job was
// answered.
//
// Of a carrier the first 8 entries by name are kept, and of those the ones that have a
// name of at most 64 and a value of at most 1024 bytes. Left out are also names that a
// job's record has for itself (such as key, path and retry) and text that is not valid
// UTF-8.
func WithTrace(f func(ctx context.Context, job *Job) (carrier map[string]string, end func(error))) ClientOption {
	return func(c *Client) { c.trace = f }
}

// The bounds of what is kept of a carrier: it is written with each job, and read with it
// whenever the job is.
const (
	maxTraceEntries = 8
	maxTraceName    = 64   // bytes
	maxTraceValue   = 1024 // bytes
)

// startTrace asks for the trace context of a job.
func (c *Client) startTrace(ctx context.Context, job *Job) func(error) {
	if c.trace == nil {
		return nil
	}
	carrier, end := c.trace(ctx, job)
	for _, name := range slices.Sorted(maps.Keys(carrier)) {
		value := carrier[name]
		if len(job.Trace) == maxTraceEntries {
			break
		}
		if !keepsTrace(name, value) {
			continue
		}
		if job.Trace == nil {
			job.Trace = make(map[string]string, len(carrier))
		}
		job.Trace[name] = value
	}
	return end
}

// keepsTrace reports whether an entry of a carrier can stand in a job's record. asynq
// cannot read a record with text that is not valid UTF-8.
func keepsTrace(name, value string) bool {
	return name != "" && len(name) <= maxTraceName && utf8.ValidString(name) && !store.OwnHeader(name) &&
		value != "" && len(value) <= maxTraceValue && utf8.ValidString(value)
}

// traceOf is the trace context in the headers of a record; nil without one.
func traceOf(headers map[string]string) map[string]string {
	var out map[string]string
	for name, value := range headers {
		if store.OwnHeader(name) {
			continue
		}
		if out == nil {
			out = make(map[string]string, 2)
		}
		out[name] = value
	}
	return out
}

// endTraces tells what became of the jobs that were prepared. err ended all of
// EnqueueMany; jobs that were answered before it are not concerned.
func (p *portion) endTraces(results []Result, err error) {
	for _, one := range p.traced {
		r := results[one.index]
		switch {
		case r.Err != nil:
			one.endTrace(r.Err)
		case r.Job != nil:
			one.job.Duplicate = r.Job.Duplicate
			one.endTrace(nil)
		default:
			one.endTrace(err)
		}
	}
}
