package answers

import (
	"errors"

	"github.com/tidegate/tidegate/internal/call/expression"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// Estimate compiles an expression over a job, as [KeyBy] does: how much of a named limit a job takes. Without a source
// it is nil.
func Estimate(source string) (func(*jobs.Job) (float64, error), error) {
	eval, err := overJob(source)
	if eval == nil {
		return nil, err
	}
	return func(job *jobs.Job) (float64, error) {
		v, err := eval(job)
		if err != nil {
			return 0, err
		}
		return number(v)
	}, nil
}

// Actual compiles an expression over a response, with the variables of rules: how much of a named limit a call has really
// cost. ok is false if the response does not say it. Without a source it is nil.
func Actual(source string) (func(httpdest.Answered) (n float64, ok bool), error) {
	if source == "" {
		return nil, nil
	}
	program, err := expression.Compile(source, expression.Options{Vars: vars})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the column
	}
	return func(a httpdest.Answered) (float64, bool) {
		v, err := program.Eval(environment(a))
		if err != nil {
			return 0, false
		}
		n, err := number(v)
		return n, err == nil && n >= 0
	}, nil
}

// overJob compiles an expression over a job; nil without a source.
func overJob(source string) (func(*jobs.Job) (any, error), error) {
	if source == "" {
		return nil, nil
	}
	program, err := expression.Compile(source, expression.Options{Vars: keyVars})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the column
	}
	return func(job *jobs.Job) (any, error) {
		var unread error
		v, err := program.Eval(map[string]any{
			"key": job.Key, "priority": string(job.Priority),
			"request": func() any { return requestOf(job.Request) },
			"payload": func() any { return payloadOf(job, &unread) },
		})
		switch {
		case unread != nil:
			return nil, unread
		case err != nil:
			return nil, withoutValues(err, source)
		case v == nil:
			return nil, errors.New("there is no such value")
		}
		return v, nil
	}, nil
}
