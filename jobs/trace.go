package jobs

import (
	"context"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/queue/store"
)

type traceFunc = func(ctx context.Context, job *Job) (carrier map[string]string, end func(error))

// WithTrace sets the function that makes the trace context of each job, which is stored with
// it and is Job.Trace in the worker. Default: none, at no cost. See publisher/tracing.
//
// f is called once for each job that passed the checks, must return quickly, and must not
// change the job. It returns the carrier, under the names of the propagation format, such as
// traceparent, and a function that is called when the enqueue has ended, which may be nil.
// By then job.Duplicate says whether the id existed, in which case nothing was kept. The
// error is as in Result, or what EnqueueMany returned, if that ended before this job was
// answered.
//
// The first 8 entries of a carrier by name are kept, if their name has at most 64 and their
// value at most 1024 bytes. Entries named like a field of the job's record (such as
// key, path and retry) are left out too, and so is text that is not valid UTF-8.
func WithTrace(f func(ctx context.Context, job *Job) (carrier map[string]string, end func(error))) ClientOption {
	return func(c *Client) { c.trace = f }
}

// Bounds of a carrier: it is written and read with each job.
const (
	maxTraceEntries = 8
	maxTraceName    = 64   // bytes
	maxTraceValue   = 1024 // bytes
)

// startTrace makes the trace context of a job.
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

// keepsTrace reports whether a job's record can hold an entry of a carrier. asynq cannot read
// a record with text that is not valid UTF-8.
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

// endTraces ends the traces of the prepared jobs with their results. err ended all of
// EnqueueMany; jobs with a result are not concerned.
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
