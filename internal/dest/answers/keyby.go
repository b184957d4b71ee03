package answers

import (
	"errors"
	"fmt"

	"github.com/tidegate/tidegate/internal/call/expression"
	"github.com/tidegate/tidegate/jobs"
)

// keyVars are the variables of KEY_BY.
var keyVars = map[string]expression.Type{
	"key": expression.Any, "request": expression.Lazy, "payload": expression.Lazy, "priority": expression.String,
}

// KeyBy compiles an expression over a job: the key under which the breaker and its limits hold it. The
// function that it returns evaluates it, and decodes the payload if the expression uses it; its errors hold no
// value of the job. Without a source it is nil. The error is an *expression.Error.
func KeyBy(source string) (func(*jobs.Job) (string, error), error) {
	eval, err := overJob(source)
	if eval == nil {
		return nil, err
	}
	return func(job *jobs.Job) (string, error) {
		v, err := eval(job)
		if err != nil {
			return "", err
		}
		switch v := v.(type) {
		case string:
			return v, nil
		case int, float64, bool:
			return fmt.Sprint(v), nil
		}
		return "", errors.New("the value is not a text or a number")
	}, nil
}

// payloadOf is the payload as expressions see it.
func payloadOf(job *jobs.Job, unread *error) any {
	if job.Payload == nil {
		return nil
	}
	v, err := expression.JSON(job.Payload)
	if err != nil {
		*unread = fmt.Errorf("payload %w", err)
	}
	return v
}

func requestOf(r jobs.Request) map[string]any {
	headers := map[string]any{}
	for name, value := range r.Headers {
		headers[name] = value
	}
	return map[string]any{
		"method": r.Method, "path": r.Path, "query": r.Query, "headers": headers, "encoding": string(r.Encoding),
		"timeout_secs": r.TimeoutSecs,
	}
}
