package store

import "context"

// decodeJob reads a record into a *jobs.Job.
var decodeJob func(job any, msg *Message, fields map[string]string) error

// SetDecoder sets how JobOf makes its Job of a record. Package jobs, which this package
// cannot import, calls it, so that its public API needs no function for it.
func SetDecoder[J any](decode func(job *J, msg *Message, fields map[string]string) error) {
	decodeJob = func(job any, msg *Message, fields map[string]string) error {
		j, _ := job.(*J)
		return decode(j, msg, fields)
	}
}

// JobOf makes a *jobs.Job, which J is, of asynq's message and the fields that change; with
// a nil message, of all fields of its record. A job of a message is running.
func JobOf[J any](msg *Message, fields map[string]string) (*J, error) {
	job := new(J)
	if err := decodeJob(job, msg, fields); err != nil {
		return nil, err
	}
	return job, nil
}

// asSystem is the key of a context for Tidegate's own jobs.
type asSystem struct{}

// AsSystem returns a context in which a jobs.Client enqueues to system destinations too,
// whether or not a worker serves them.
func AsSystem(ctx context.Context) context.Context { return context.WithValue(ctx, asSystem{}, true) }

// IsSystem reports whether a context is one of AsSystem.
func IsSystem(ctx context.Context) bool { return ctx.Value(asSystem{}) != nil }
